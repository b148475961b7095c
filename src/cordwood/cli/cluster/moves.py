"""What the commands that move partitions share: showing a plan, beginning it, waiting for it."""

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Annotated, Final

import typer

from cordwood.cli.at.cluster_access import ClusterAccess
from cordwood.cli.readable_values import counted, shown_bytes
from cordwood.cli.render import Column, Row, output_for, progress_bar
from cordwood.cli.terminal import say, shown_before_a_change, warn
from cordwood.cluster.operating.cluster_picture import ClusterPicture, PartitionPicture, Place
from cordwood.cluster.operating.reassignment import PlannedMove
from cordwood.errors import BrokerError, BrokerRefusedError, ConfigError, LogError

_LOOK_S: Final = 0.5
_REPORT_S: Final = 10.0
_REFUSALS_SHOWN: Final = 10

_MOVE_COLUMNS: Final = (
    Column(name="partition", field="name", is_whole=True),
    Column(name="from", field="before"),
    Column(name="to", field="after"),
    Column(name="copies", field="bytes", is_number=True, show=shown_bytes),
)

WaitOption = Annotated[
    bool, typer.Option("--wait", help="Return when everything has moved; shows the progress.")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", min=0.0, metavar="SECONDS", help="Give up waiting after this."),
]


def show_moves(moves: Sequence[PlannedMove], *, as_json: bool) -> None:
    """Print the plan, and what it costs. A reader that has ended does not stop the moves."""
    rows: list[Row] = [
        {
            "name": str(move.place),
            "topic": move.place.topic,
            "partition": move.place.partition,
            "before": list(move.before),
            "after": list(move.after),
            "adding": list(move.added),
            "removing": list(move.removed),
            "bytes": move.bytes_to_move,
        }
        for move in moves
    ]
    if rows or as_json:
        with shown_before_a_change():
            output_for(as_json=as_json).table(_MOVE_COLUMNS, rows)
    if not as_json:
        say(summary(moves))


def summary(moves: Sequence[PlannedMove]) -> str:
    """``3 partitions change, 2 replicas are copied, 1.5 GiB``"""
    if not moves:
        return "nothing to do: the replicas are where they should be"
    copies = sum(len(move.added) for move in moves)
    sizes = [move.bytes_to_move for move in moves]
    known = [each for each in sizes if each is not None]
    is_sum = len(known) == len(moves)
    size = shown_bytes(sum(known)) if is_sum else f"at least {shown_bytes(sum(known))}"
    verb = "changes" if len(moves) == 1 else "change"
    if not copies:
        return (
            f"{counted(len(moves), 'partition')} {verb} only in the order of replicas; nothing is "
            "copied"
        )
    copied = "replica is" if copies == 1 else "replicas are"
    return f"{counted(len(moves), 'partition')} {verb}, {copies:,} {copied} copied, {size}"


def begin(access: ClusterAccess, moves: Sequence[PlannedMove]) -> list[PlannedMove]:
    """Have the controllers begin. Returns what they accepted; the rest is reported."""
    refused = access.operations.reassign({move.place: move.after for move in moves})
    report_refusals(refused)
    return [move for move in moves if move.place not in refused]


def report_refusals(refused: Mapping[tuple[str, int], str]) -> None:
    for place, reason in list(refused.items())[:_REFUSALS_SHOWN]:
        warn(f"{Place(*place)} was refused: {reason}")
    if len(refused) > _REFUSALS_SHOWN:
        warn(f"{len(refused) - _REFUSALS_SHOWN:,} more were refused")


def await_moves(
    access: ClusterAccess, moves: Sequence[PlannedMove], *, timeout_s: float | None
) -> None:
    """Return when all replicas are where they should be. Raises `LogError` after the timeout."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    wanted = {move.place: move for move in moves if move.added or move.removed}
    total = sum(move.bytes_to_move or 0 for move in wanted.values())
    said_s = time.monotonic()
    with ExitStack() as stack:
        advance = stack.enter_context(progress_bar("moving", total=total or None))
        shown = 0
        while True:
            left = _still_moving(access, wanted)
            if left is not None:
                done = _copied(access, wanted, left) if sys.stderr.isatty() else 0
                if done > shown:
                    advance(done - shown)
                    shown = done
                if not left:
                    return
            now_s = time.monotonic()
            if deadline_s is not None and now_s >= deadline_s:
                number = len(wanted) if left is None else len(left)
                raise LogError(
                    f"{counted(number, 'partition')} still move after {timeout_s:g} s; they go "
                    "on: look with `cordwood cluster status`, or stop them with `cordwood "
                    "cluster reassign --cancel`"
                )
            if not sys.stderr.isatty() and now_s - said_s >= _REPORT_S and left is not None:
                say(f"{len(wanted) - len(left):,} of {counted(len(wanted), 'partition')} moved")
                said_s = now_s
            time.sleep(_LOOK_S)


def _still_moving(
    access: ClusterAccess, wanted: Mapping[Place, PlannedMove]
) -> dict[Place, PartitionPicture] | None:
    """The partitions that are not done; None if nobody answers now.

    A partition whose topic was deleted meanwhile is done.
    """
    try:
        found = {each.place: each for each in access.partitions()}
    except BrokerRefusedError:
        return None
    except BrokerError:
        with suppress(BrokerError):  # it is tried again
            access.reconnect()
        return None
    return {
        place: found[place]
        for place, move in wanted.items()
        if place in found
        and (found[place].is_moving or set(found[place].replicas) != set(move.after))
    }


def _copied(
    access: ClusterAccess,
    wanted: Mapping[Place, PlannedMove],
    left: Collection[Place],
) -> int:
    """How many bytes are at their new place, as far as brokers tell."""
    done = sum(wanted[place].bytes_to_move or 0 for place in wanted if place not in left)
    nodes = {node for place in left for node in wanted[place].added}
    for replica in access.operations.replicas(sorted(nodes)):
        place = Place(replica.topic, replica.partition)
        if place in left and replica.node_id in wanted[place].added:
            done += min(replica.size_bytes, wanted[place].size_bytes or 0)
    return done


def checked_brokers(picture: ClusterPicture, option: str, ids: Sequence[int]) -> None:
    """Raise `ConfigError` unless each is a broker that is alive."""
    for node_id in ids:
        broker = picture.broker(node_id)
        if broker is None:
            known = ", ".join(str(each.node_id) for each in picture.brokers)
            raise ConfigError(option, node_id, f"is not a broker of this cluster; it has {known}")
        if not broker.is_alive:
            raise ConfigError(option, node_id, f"is {broker.state}; start it first")


def carry_out(
    access: ClusterAccess,
    moves: Sequence[PlannedMove],
    *,
    waits: bool,
    timeout_s: float | None,
    when_done: Callable[[], None] = lambda: None,
) -> None:
    """Begin the moves and wait for them if wanted. Exit code 1 if some were refused."""
    begun = begin(access, moves)
    if waits and begun:
        await_moves(access, begun, timeout_s=timeout_s)
        say(f"moved {counted(len(begun), 'partition')}")
        when_done()
    elif begun:
        say("begun; `cordwood cluster status` shows the progress")
    if len(begun) < len(moves):
        raise typer.Exit(1)

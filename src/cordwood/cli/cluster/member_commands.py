"""``cordwood cluster drain``, ``elect`` and ``remove``: what happens to one broker."""

from collections.abc import Iterable
from typing import Annotated

import typer

from cordwood.cli.at.cluster_access import open_cluster
from cordwood.cli.cluster.moves import (
    TimeoutOption,
    WaitOption,
    carry_out,
    report_refusals,
    show_moves,
)
from cordwood.cli.completion import complete_topic
from cordwood.cli.failures import UsageError
from cordwood.cli.options import AtOption, DryRunOption, JsonOption, YesOption
from cordwood.cli.readable_values import counted
from cordwood.cli.render import Column, output_for
from cordwood.cli.terminal import require_confirmation, say, shown_before_a_change, warn
from cordwood.cluster.operating.cluster_picture import (
    BrokerPicture,
    ClusterPicture,
    PartitionPicture,
    with_missing,
)
from cordwood.cluster.operating.placement import plan_drain
from cordwood.cluster.operating.reassignment import moves_of
from cordwood.errors import ConfigError, LogError, UnknownTopicError

_NAMES_SHOWN = 5
_STUCK_SHOWN = 20

NodeArgument = Annotated[int, typer.Argument(metavar="NODE", min=0, help="The id of the broker.")]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC",
        autocompletion=complete_topic,
        help="Only this topic; repeatable.",
    ),
]


def drain(
    node: NodeArgument,
    *,
    at: AtOption = None,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    timeout_s: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move all replicas and leaderships off a broker, so that it can be removed.

    Each replica goes to the broker with the fewest replicas that has none of the same partition,
    in a rack of its own if there is one. Nothing else moves. Partitions that cannot move are
    listed with the reason, and the exit code is 1. A broker that is not alive can be drained too:
    others have the data.

    \b
    Examples:
      cordwood cluster drain 3 --dry-run
      cordwood cluster drain 3 --wait && cordwood cluster remove 3
    """
    with open_cluster(at) as access:
        picture = access.picture()
        broker = _check_known(picture, node)
        planned = plan_drain(picture, node)
        moves = moves_of(picture.partitions, planned.assignment, access.sizes(picture))
        show_moves(moves, as_json=as_json)
        stuck = list(planned.stuck.items())
        for place, reason in stuck[:_STUCK_SHOWN]:
            warn(f"{place} cannot leave broker {node}: {reason}")
        if len(stuck) > _STUCK_SHOWN:
            warn(f"{len(stuck) - _STUCK_SHOWN:,} more cannot leave broker {node}")

        def done() -> None:
            if not stuck:
                stop = "Stop it, then run" if broker.is_alive else "Run"
                say(f"broker {node} has no replicas. {stop}: cordwood cluster remove {node}")

        if not dry_run and moves:
            carry_out(access, moves, waits=wait, timeout_s=timeout_s, when_done=done)
        if stuck:
            raise typer.Exit(1)


def elect(
    *,
    at: AtOption = None,
    topics: TopicsOption = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Let a replica lead that is not in sync, where nobody leads. Records are lost.",
        ),
    ] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let the preferred replica of each partition lead again, as after a restart of brokers.

    The preferred replica is the first of the list. Only a replica that is in sync is elected,
    unless --unclean is given: then a partition without a leader gets one, and acknowledged
    records that only the others have are lost.

    \b
    Examples:
      cordwood cluster elect
      cordwood cluster elect --topic orders --dry-run
      cordwood cluster elect --topic orders --unclean
    """
    if unclean and not topics:
        raise UsageError("--unclean needs --topic: name the topics that may lose records")
    with open_cluster(at) as access:
        found = access.partitions(topics)
        if topics:
            for name in topics:
                if not any(each.place.topic == name for each in found):
                    raise UnknownTopicError(name)
        wanted = [each for each in found if _is_to_elect(each, is_unclean=unclean)]
        _show_elections(wanted, as_json=as_json)
        if not wanted or dry_run:
            return
        if unclean:
            require_confirmation(
                f"Records of {_named(wanted)} may be lost. Elect a replica that is not in sync?",
                is_given=yes,
            )
        refused = access.operations.elect((each.place for each in wanted), is_unclean=unclean)
    report_refusals(refused)
    say(f"elected {counted(len(wanted) - len(refused), 'leader')}")
    if refused:
        raise typer.Exit(1)


def remove(
    node: NodeArgument, *, at: AtOption = None, yes: YesOption = False, as_json: JsonOption = False
) -> None:
    """Have the controllers forget a broker that was drained and stopped.

    Refused while the broker is alive or has replicas. A broker that is removed can join again
    with the same id.

    \b
    Examples:
      cordwood cluster remove 3
      cordwood cluster remove 3 --yes --at localhost:9092
    """
    with open_cluster(at) as access:
        picture = access.picture()
        broker = _check_known(picture, node)
        held = [each for each in picture.partitions if node in each.replicas]
        if held:
            raise LogError(
                f"broker {node} has {counted(len(held), 'replica')} ({_named(held)}); move them "
                f"first: cordwood cluster drain {node}"
            )
        if broker.is_alive:
            raise LogError(f"broker {node} is alive; stop it first, or it registers again")
        require_confirmation(f"Remove broker {node} from the cluster?", is_given=yes)
        access.operations.unregister(node)
    if as_json:
        output_for(as_json=True).facts((), {"node_id": node, "state": "removed"})
    else:
        say(f"removed broker {node}")


def _check_known(picture: ClusterPicture, node: int) -> BrokerPicture:
    brokers = with_missing(picture)
    found = next((each for each in brokers if each.node_id == node), None)
    if found is None:
        known = ", ".join(str(each.node_id) for each in brokers)
        raise ConfigError("NODE", node, f"is not a broker of this cluster; it has {known}")
    return found


def _is_to_elect(partition: PartitionPicture, *, is_unclean: bool) -> bool:
    if is_unclean:
        return partition.is_offline
    return not partition.has_preferred_leader


def _show_elections(partitions: Iterable[PartitionPicture], *, as_json: bool) -> None:
    rows = [
        {
            "name": str(each.place),
            "topic": each.place.topic,
            "partition": each.place.partition,
            "leader": each.leader,
            "preferred": each.preferred_leader,
            "in_sync": list(each.in_sync),
        }
        for each in partitions
    ]
    if rows or as_json:
        columns = (
            Column(name="partition", field="name", is_whole=True),
            Column(name="leader", is_number=True),
            Column(name="preferred", is_number=True),
            Column(name="in sync", field="in_sync"),
        )
        with shown_before_a_change():
            output_for(as_json=as_json).table(columns, rows)
    else:
        say("nothing to do: every leader is the one it should be")


def _named(partitions: list[PartitionPicture]) -> str:
    names = [str(each.place) for each in partitions[:_NAMES_SHOWN]]
    more = len(partitions) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")

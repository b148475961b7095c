"""``cordwood cluster reassign``: puts the replicas of partitions on other brokers."""

import os
from typing import Annotated

import typer

from cordwood.cli.at.cluster_access import ClusterAccess, open_cluster
from cordwood.cli.cluster.moves import (
    TimeoutOption,
    WaitOption,
    carry_out,
    checked_brokers,
    report_refusals,
    show_moves,
)
from cordwood.cli.cluster.throttles import (
    limit_copies,
    parse_rate,
    remove_cancelled_limits,
    remove_limits,
    say_how_to_remove,
)
from cordwood.cli.completion import complete_topic
from cordwood.cli.failures import UsageError
from cordwood.cli.options import AtOption, DryRunOption, JsonOption
from cordwood.cli.readable_values import counted
from cordwood.cli.terminal import say
from cordwood.cluster.operating.cluster_picture import ClusterPicture, PartitionPicture, Place
from cordwood.cluster.operating.placement import plan_spread
from cordwood.cluster.operating.reassignment import (
    PLAN_BYTES_MAX,
    PlannedMove,
    moves_of,
    parse_plan,
    render_plan,
)
from cordwood.errors import ConfigError, UnknownPartitionError, UnknownTopicError


def reassign(
    *,
    at: AtOption = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            autocompletion=complete_topic,
            help="Move this topic; repeatable.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="NODES", help="The brokers that get the replicas: 1,2,3."),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="FILE", help="A plan in the JSON of Kafka's own tool."),
    ] = None,
    save: Annotated[
        str | None,
        typer.Option(
            "--save-current",
            metavar="FILE",
            help="Write the present replicas there first: a plan for the way back.",
        ),
    ] = None,
    cancel: Annotated[
        bool,
        typer.Option(
            "--cancel",
            help="Cancel what is under way; the old replicas stay. Removes the limits of "
            "--throttle.",
        ),
    ] = False,
    preserve_throttles: Annotated[
        bool,
        typer.Option("--preserve-throttles", help="With --cancel: leave the limits as they are."),
    ] = False,
    throttle: Annotated[
        str | None,
        typer.Option(
            "--throttle",
            metavar="RATE",
            help="Limit the copies of each broker to this many bytes a second: 50MiB. "
            "Alone: change the limit of what is under way.",
        ),
    ] = None,
    remove_throttle: Annotated[
        bool,
        typer.Option("--remove-throttle", help="Remove the limits, when everything has moved."),
    ] = False,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    timeout_s: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move the replicas of topics to other brokers, or as a plan says.

    With --to, replicas that are on one of these brokers stay; the others are spread over them
    evenly and over racks, and the number of replicas stays. The old replicas serve until the new
    ones are in sync. Works with brokers of ours and of Kafka.

    With --throttle and --wait, the limit is removed when everything has moved. Without --wait,
    run --remove-throttle then. --cancel removes it, too.

    \b
    Examples:
      cordwood cluster reassign --topic orders --to 1,2,3 --dry-run
      cordwood cluster reassign --topic orders --to 1,2,3 --throttle 50MiB --wait
      cordwood cluster reassign --throttle 200MiB
      cordwood cluster reassign --remove-throttle
      cordwood cluster reassign --topic orders --topic bills --to 2,3,4 --wait
      cordwood cluster reassign --plan plan.json --save-current before.json
      cordwood cluster reassign --cancel
    """
    chosen = sum((bool(to), bool(plan), cancel, remove_throttle))
    if chosen > 1 or not (chosen or throttle):
        raise UsageError("pass one of --to, --plan and --cancel, or --remove-throttle")
    if preserve_throttles and not cancel:
        raise UsageError("--preserve-throttles belongs to --cancel")
    if throttle and (cancel or remove_throttle):
        raise UsageError("--throttle limits copies; leave it out with --cancel, --remove-throttle")
    rate = None if throttle is None else parse_rate(throttle)
    if to and not topics:
        raise UsageError("--to needs --topic: which topics are to be moved?")
    if plan and topics:
        raise UsageError("--plan names the topics itself; leave --topic out")
    with open_cluster(at) as access:
        if cancel:
            _cancel(access, topics, keeps_limits=preserve_throttles, dry_run=dry_run)
            return
        if remove_throttle:
            remove_limits(access)
            return
        picture = access.picture()
        if to:
            moves = _spread(access, picture, topics or [], _node_ids(to))
        elif plan:
            moves = _planned(access, picture, plan)
        else:
            assert rate is not None
            limit_copies(access, picture, [], rate, dry_run=dry_run)
            return
        if save is not None:
            _save(save, moves)
        show_moves(moves, as_json=as_json)
        if rate is not None and moves:
            limit_copies(access, picture, moves, rate, dry_run=dry_run)
        if not dry_run and moves:
            _carry_out(access, moves, is_limited=rate is not None, waits=wait, timeout_s=timeout_s)


def _carry_out(
    access: ClusterAccess,
    moves: list[PlannedMove],
    *,
    is_limited: bool,
    waits: bool,
    timeout_s: float | None,
) -> None:
    """Move, and remove the limit at the end. It stays if the moves go on longer than we wait."""
    stays = is_limited

    def done() -> None:
        nonlocal stays
        if is_limited:
            remove_limits(access)
            stays = False

    try:
        carry_out(access, moves, waits=waits, timeout_s=timeout_s, when_done=done)
    finally:
        if stays:
            say_how_to_remove()


def _node_ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise ConfigError("--to", text, "must be ids of brokers, joined by commas: 1,2,3")
    ids = [int(part) for part in parts]
    if len(set(ids)) != len(ids):
        raise ConfigError("--to", text, "names a broker twice")
    return ids


def _spread(
    access: ClusterAccess, picture: ClusterPicture, topics: list[str], nodes: list[int]
) -> list[PlannedMove]:
    checked_brokers(picture, "--to", nodes)
    known = {each.place.topic for each in picture.partitions}
    for topic in topics:
        if topic not in known:
            raise UnknownTopicError(topic, known=known)
    partitions = [each for each in picture.partitions if each.place.topic in topics]
    brokers = [broker for broker in picture.brokers if broker.node_id in nodes]
    return moves_of(partitions, plan_spread(partitions, brokers), access.sizes(picture))


def _planned(access: ClusterAccess, picture: ClusterPicture, path: str) -> list[PlannedMove]:
    with open(path, "rb") as file:
        text = file.read(PLAN_BYTES_MAX + 1)
    if len(text) > PLAN_BYTES_MAX:
        raise ConfigError("--plan", path, f"has more than {PLAN_BYTES_MAX} bytes")
    try:
        wanted = parse_plan(text)
    except ConfigError as error:
        raise ConfigError("--plan", path, f"{error.value!r} in it {error.reason}") from error
    _check_exist(wanted, picture.partitions)
    checked_brokers(
        picture, "--plan", sorted({node for replicas in wanted.values() for node in replicas})
    )
    return moves_of(picture.partitions, wanted, access.sizes(picture))


def _check_exist(
    wanted: dict[Place, tuple[int, ...]], partitions: tuple[PartitionPicture, ...]
) -> None:
    counts: dict[str, int] = {}
    for each in partitions:
        counts[each.place.topic] = counts.get(each.place.topic, 0) + 1
    known = {each.place for each in partitions}
    for place in wanted:
        if place.topic not in counts:
            raise UnknownTopicError(place.topic, known=counts)
        if place not in known:
            raise UnknownPartitionError(*place, count=counts[place.topic])


def _save(path: str, moves: list[PlannedMove]) -> None:
    text = render_plan({move.place: move.before for move in moves})
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL  # a plan for the way back is never overwritten
    with open(os.open(path, flags, 0o644), "w", encoding="utf-8") as file:
        file.write(text + "\n")


def _cancel(
    access: ClusterAccess, topics: list[str] | None, *, keeps_limits: bool, dry_run: bool
) -> None:
    """Cancel, then remove the limits. They stay if something could not be cancelled."""
    if topics:
        known = {each.topic for each in access.operations.partitions()}
        for topic in topics:
            if topic not in known:
                raise UnknownTopicError(topic, known=known)
    under_way = list(access.operations.moves())
    moving = [place for place in under_way if topics is None or place[0] in topics]
    if not moving:
        say("nothing is under way")
    elif dry_run:
        say(f"would cancel {counted(len(moving), 'reassignment')}")
    else:
        refused = access.operations.reassign(dict.fromkeys(moving, None))
        report_refusals(refused)
        say(f"cancelled {counted(len(moving) - len(refused), 'reassignment')}")
        if refused:
            raise typer.Exit(1)
    if not keeps_limits:
        others = len(under_way) - len(moving)
        remove_cancelled_limits(access, topics, others_moving=others, dry_run=dry_run)

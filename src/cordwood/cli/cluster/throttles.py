"""Limits the copies of a reassignment, and removes the limit when all has moved or is cancelled."""

from collections.abc import Collection, Sequence

import typer

from cordwood.cli.at.cluster_access import ClusterAccess
from cordwood.cli.readable_values import counted, shown_bytes
from cordwood.cli.terminal import say, warn
from cordwood.cluster.operating.cluster_picture import ClusterPicture
from cordwood.cluster.operating.reassignment import PlannedMove
from cordwood.cluster.operating.throttle_plan import plan_throttle
from cordwood.errors import BrokerUnreachableError, ConfigError, LogError
from cordwood.quantities import parse_size

_REMOVE = "cordwood cluster reassign --remove-throttle"


def parse_rate(text: str) -> int:
    """Bytes per second. Raises `ConfigError`."""
    try:
        rate = parse_size(text)
    except ValueError as error:
        raise ConfigError("--throttle", text, str(error)) from error
    if rate < 1:
        raise ConfigError("--throttle", text, "must be at least 1 byte a second")
    return rate


def limit_copies(
    access: ClusterAccess,
    picture: ClusterPicture,
    moves: Sequence[PlannedMove],
    rate: int,
    *,
    dry_run: bool,
) -> None:
    """Limit what is under way and what `moves` will copy. Call it before they begin.

    Brokers first: a replica that a topic lists is held up only if its broker has a limit.
    """
    plan = plan_throttle(picture.partitions, {move.place: move.after for move in moves})
    if not plan.brokers:
        say("nothing is copied, so there is nothing to limit")
        return
    nodes = ", ".join(map(str, plan.brokers))
    verb = "would limit" if dry_run else "limited"
    if not dry_run:
        for node_id in plan.brokers:
            _limit_broker(access, node_id, rate)
        for topic, senders in plan.senders.items():
            access.throttles.list_replicas(topic, senders, plan.receivers[topic])
    say(f"{verb} copies to {shown_bytes(rate)}/s on each of the brokers {nodes}")


def remove_limits(access: ClusterAccess) -> None:
    """Remove the limits of all brokers and topics. Raises `LogError` while partitions move."""
    moving = access.operations.moves()
    if moving:
        raise LogError(
            f"{counted(len(moving), 'partition')} still move; wait until they have moved, or "
            "change the limit with `cordwood cluster reassign --throttle RATE`"
        )
    picture = access.picture()
    is_done = True
    for broker in picture.brokers:
        is_done = _limit_broker(access, broker.node_id, None) and is_done
    for topic in _listed(access, picture, None):
        access.throttles.list_replicas(topic, None, None)
    if not is_done:
        raise typer.Exit(1)
    say("removed the limits for copies")


def remove_cancelled_limits(
    access: ClusterAccess, topics: Collection[str] | None, *, others_moving: int, dry_run: bool
) -> None:
    """Remove the limits of reassignments that were cancelled: of all topics, or of `topics`.

    So does Kafka's tool. But it removes the rates of brokers even if others move, which then copy
    without a limit. Here the rates stay for them.
    """
    picture = access.picture()
    listed = _listed(access, picture, topics)
    if dry_run:
        if listed:
            say(f"would remove the limits for copies of {', '.join(listed)}")
        return
    for topic in listed:
        access.throttles.list_replicas(topic, None, None)
    is_done = True
    if not others_moving:
        for broker in picture.brokers:
            is_done = _limit_broker(access, broker.node_id, None, warns=bool(listed)) and is_done
    if not listed:
        return  # nothing was limited: a rate has no effect without a list
    if not is_done:
        raise typer.Exit(1)
    say(f"removed the limits for copies of {', '.join(listed)}")
    if others_moving:
        say(
            f"the brokers keep their limit for {counted(others_moving, 'other partition')} under "
            f"way; run `{_REMOVE}` then"
        )


def _listed(
    access: ClusterAccess, picture: ClusterPicture, topics: Collection[str] | None
) -> list[str]:
    """Those topics, of all or of `topics`, that list throttled replicas."""
    known = {each.place.topic for each in picture.partitions}
    return access.throttles.listed_topics(known if topics is None else known.intersection(topics))


def say_how_to_remove() -> None:
    say(f"the limit stays until you run `{_REMOVE}`")


def _limit_broker(
    access: ClusterAccess, node_id: int, rate: int | None, *, warns: bool = True
) -> bool:
    """False, with a warning, for a broker that is away: it copies nothing now."""
    try:
        access.throttles.limit_broker(node_id, rate)
    except BrokerUnreachableError as error:
        what = "keeps its limit" if rate is None else "gets no limit"
        if warns:
            warn(f"broker {node_id} {what}: {error}")
        return False
    return True

"""Limits the copies of a reassignment, and removes the limit when everything has moved."""

from collections.abc import Sequence

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
    topics = {each.place.topic for each in picture.partitions}
    for topic in access.throttles.listed_topics(topics):
        access.throttles.list_replicas(topic, None, None)
    if not is_done:
        raise typer.Exit(1)
    say("removed the limits for copies")


def say_how_to_remove() -> None:
    say(f"the limit stays until you run `{_REMOVE}`")


def _limit_broker(access: ClusterAccess, node_id: int, rate: int | None) -> bool:
    """False, with a warning, for a broker that is away: it copies nothing now."""
    try:
        access.throttles.limit_broker(node_id, rate)
    except BrokerUnreachableError as error:
        what = "keeps its limit" if rate is None else "gets no limit"
        warn(f"broker {node_id} {what}: {error}")
        return False
    return True

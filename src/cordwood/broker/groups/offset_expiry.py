"""Which committed offsets of a group have expired. Pure."""

from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.broker.groups.classic.group_transitions import ClassicState
from cordwood.broker.groups.managed_group import ManagedGroup, is_subscribed
from cordwood.log.topics.committed_offsets import CommittedOffset, GroupOffsets, TopicPartition
from cordwood.quantities import NO_TIMESTAMP


def expired_offsets(
    group: ManagedGroup, offsets: GroupOffsets, *, now_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """The partitions whose topic no member has read for the retention time.

    The time starts when a classic group became empty. For topics that a group with members no
    longer reads, and for consumers that only commit, it starts with the last commit. Old clients
    may have sent an expiry time of their own.
    """
    if not _may_expire(group):
        return []
    return [
        place
        for place, committed in offsets.items()
        if not is_subscribed(group, place[0])
        and _is_due(group, committed, now_ms=now_ms, retention_ms=retention_ms)
    ]


def _may_expire(group: ManagedGroup) -> bool:
    if not isinstance(group, ClassicGroup) or group.protocol_type is None or group.is_empty:
        return True
    return group.state is ClassicState.STABLE and group.subscribed_topics() is not None


def _is_due(
    group: ManagedGroup, committed: CommittedOffset, *, now_ms: int, retention_ms: int
) -> bool:
    if committed.expires_ms != NO_TIMESTAMP:
        return now_ms >= committed.expires_ms
    since_ms = committed.committed_ms
    if isinstance(group, ClassicGroup) and group.is_empty and group.protocol_type is not None:
        since_ms = since_ms if group.state_since_ms == NO_TIMESTAMP else group.state_since_ms
    return now_ms - since_ms >= retention_ms

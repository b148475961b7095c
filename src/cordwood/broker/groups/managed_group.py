"""What the coordinator needs of a group, whatever its kind."""

from typing import Protocol

from cordwood.log.topics.committed_offsets import GroupRecord
from cordwood.protocol.error_code import ErrorCode


class ManagedGroup(Protocol):
    """A group of the classic or the consumer protocol. For the control loop alone."""

    @property
    def group_id(self) -> str: ...
    @property
    def group_type(self) -> str:
        """``classic`` or ``consumer``."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """None if no member ever joined: a group that only has offsets."""
        ...

    @property
    def state_name(self) -> str: ...
    @property
    def member_count(self) -> int: ...
    @property
    def is_empty(self) -> bool: ...

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that its members read; None if the group does not know."""
        ...

    def tombstones(self) -> list[GroupRecord]:
        """The records that delete the group from the log, without its offsets."""
        ...

    def resume(self) -> None:
        """After a restart: start the timers."""
        ...

    def stop(self) -> None:
        """Cancel all timers and answer waiting members. The last call."""
        ...


class EpochGroup(ManagedGroup, Protocol):
    """A group whose members have epochs (KIP-848)."""

    def validate_commit(self, member_id: str, member_epoch: int) -> ErrorCode:
        """Whether the sender may commit offsets."""
        ...

    def validate_partition_commit(
        self, member_id: str, member_epoch: int, topic_name: str, partition: int
    ) -> ErrorCode:
        """Whether the sender may commit for a partition, perhaps with an earlier epoch."""
        ...

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the sender may fetch committed offsets."""
        ...


def is_subscribed(group: ManagedGroup, topic: str) -> bool:
    """Whether members may read `topic`. Consumers whose topics are unknown may."""
    topics = group.subscribed_topics()
    return group.protocol_type == "consumer" if topics is None else topic in topics

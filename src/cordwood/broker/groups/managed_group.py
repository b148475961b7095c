"""What the coordinator knows of a group, of whichever kind."""

from typing import Protocol

from cordwood.log.topics.committed_offsets import GroupRecord
from cordwood.protocol.error_code import ErrorCode


class ManagedGroup(Protocol):
    """A group of the classic protocol or of its successor. For the control loop alone."""

    @property
    def group_id(self) -> str: ...
    @property
    def group_type(self) -> str:
        """``classic`` or ``consumer``."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """None where nobody ever joined: a group that only commits offsets."""
        ...

    @property
    def state_name(self) -> str: ...
    @property
    def member_count(self) -> int: ...
    @property
    def is_empty(self) -> bool: ...

    def subscribed_topics(self) -> frozenset[str] | None:
        """What its members read; None where the group does not know."""
        ...

    def tombstones(self) -> list[GroupRecord]:
        """The records that end what is kept of the group, but for its offsets."""
        ...

    def resume(self) -> None:
        """After a restart: start the clocks."""
        ...

    def stop(self) -> None:
        """Nobody will call again: cancel the timers, answer those who wait."""
        ...


class EpochGroup(ManagedGroup, Protocol):
    """A group whose members carry epochs: that of KIP-848."""

    def validate_commit(self, member_id: str, member_epoch: int) -> ErrorCode:
        """Whether who sends this may commit."""
        ...

    def validate_partition_commit(
        self, member_id: str, member_epoch: int, topic_name: str, partition: int
    ) -> ErrorCode:
        """Whether who sends this may commit for a partition, perhaps at an epoch that is past."""
        ...

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether who sends this may ask what was committed."""
        ...


def is_subscribed(group: ManagedGroup, topic: str) -> bool:
    """Whether members may be reading `topic`; consumers whose topics nobody knows may be."""
    topics = group.subscribed_topics()
    return group.protocol_type == "consumer" if topics is None else topic in topics

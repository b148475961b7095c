"""A consumer group as library users see it: its committed offsets."""

from collections.abc import Mapping
from typing import overload

from cordwood.log.rules.lifetime import Lifetime
from cordwood.log.topics.committed_offsets import (
    CommittedOffset,
    CommittedOffsets,
    TopicPartition,
)
from cordwood.quantities import Offset


class Group:
    """One consumer group's committed offsets."""

    def __init__(
        self, name: str, offsets: CommittedOffsets, lifetime: Lifetime | None = None
    ) -> None:
        """`lifetime` is that of the store; None for the store's own use."""
        self.name = name
        self._offsets = offsets
        self._lifetime = lifetime

    def __repr__(self) -> str:
        return f"Group({self.name!r})"

    def _check_open(self) -> None:
        if self._lifetime is not None:
            self._lifetime.check_open()

    def commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str]]) -> None:
        """Commit the next offset to read of each partition: {("orders", 0): 7}.

        A value may be (offset, metadata). Durable on return.
        """
        self._check_open()
        places: list[object] = list(offsets)
        for place in places:
            if not isinstance(place, tuple) or len(place) != 2:
                raise TypeError(f"commit takes {{(topic, partition): offset}}, not {place!r}")
        self._offsets.commit(
            self.name,
            {
                partition: value if isinstance(value, tuple) else (value, "")
                for partition, value in offsets.items()
            },
        )

    @overload
    def committed(self) -> dict[TopicPartition, Offset]: ...
    @overload
    def committed(self, topic: str) -> dict[TopicPartition, Offset]: ...
    @overload
    def committed(self, topic: str | TopicPartition, partition: int) -> Offset | None: ...
    @overload
    def committed(self, topic: TopicPartition) -> Offset | None: ...
    def committed(
        self, topic: str | TopicPartition | None = None, partition: int | None = None
    ) -> dict[TopicPartition, Offset] | Offset | None:
        """The committed offset of one partition, or a dictionary of several.

        ``committed("orders", 0)`` or ``committed(("orders", 0))`` gives one offset, or None if
        the group never committed it. Without a partition, the result has all partitions of the
        topic; without a topic, those of every topic.
        """
        found = {place: committed.offset for place, committed in self.details().items()}
        if isinstance(topic, tuple):
            return found.get(topic)
        if topic is not None and partition is not None:
            return found.get((topic, partition))
        if topic is not None:
            return {place: offset for place, offset in found.items() if place[0] == topic}
        return found

    def details(self) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets with their metadata and times."""
        self._check_open()
        found = self._offsets.of_group(self.name)
        return {place: committed for place, committed in found.items() if committed.is_position}

    def forget(self, *partitions: TopicPartition) -> None:
        """Remove the committed offsets of these partitions; of all partitions if none is given."""
        self._check_open()
        known = list(self._offsets.of_group(self.name))
        self._offsets.remove(self.name, list(partitions) if partitions else known)

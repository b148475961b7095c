"""Committed offsets of consumer groups, in the compacted topic that Kafka's brokers use for it.

One record per (group, topic, partition): the newest one counts, a tombstone removes it. So the
offsets survive like any record, and a table of them is a fold over the log.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import overload

from varve.clock import Clock
from varve.errors import FormatError, InvalidRecordError, OffsetOutOfRangeError
from varve.format.group_offsets import (
    OffsetKey,
    OffsetValue,
    decode_group_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
    group_partition,
)
from varve.log.partition_log import PartitionLog
from varve.log.read_only_log import ReadOnlyLog
from varve.log.topic import Topic
from varve.quantities import Offset, TimestampMs

TopicPartition = tuple[str, int]
OffsetsTopic = Topic[PartitionLog] | Topic[ReadOnlyLog]

_METADATA_CHARS_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """Where a group goes on reading a partition."""

    offset: Offset
    metadata: str = ""
    committed_ms: TimestampMs


class CommittedOffsets:
    """All groups' offsets, kept in memory as they stand in the topic.

    `open_topic` gives the topic, creating it when asked to; None when there is none yet.
    """

    def __init__(self, open_topic: Callable[[bool], OffsetsTopic | None], clock: Clock) -> None:
        self._open_topic = open_topic
        self._clock = clock
        self._lock = threading.Lock()
        self._offsets: dict[OffsetKey, CommittedOffset] = {}
        self._read_up_to: dict[int, Offset] = {}

    def commit(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        topic = self._open_topic(True)
        assert topic is not None
        now_ms = self._clock.now_ms()
        records: list[tuple[bytes, bytes]] = []
        for (name, partition), (offset, metadata) in offsets.items():
            if offset < 0:
                raise InvalidRecordError(f"cannot commit offset {offset} of {name}-{partition}")
            if len(metadata) > _METADATA_CHARS_MAX:
                raise InvalidRecordError(
                    f"metadata of {len(metadata)} characters, limit is {_METADATA_CHARS_MAX}"
                )
            key = OffsetKey(group=group, topic=name, partition=partition)
            value = OffsetValue(offset=Offset(offset), metadata=metadata, commit_timestamp=now_ms)
            records.append((encode_offset_key(key), encode_offset_value(value)))
        if records:
            topic.append_many(records, partition=group_partition(group, topic.partition_count))

    def remove(self, group: str, partitions: list[TopicPartition]) -> None:
        """Forget where the group was, by tombstones."""
        topic = self._open_topic(False)
        if topic is None or not partitions:
            return
        records = [
            (encode_offset_key(OffsetKey(group=group, topic=name, partition=number)), None)
            for name, number in partitions
        ]
        topic.append_many(records, partition=group_partition(group, topic.partition_count))

    def of_group(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        with self._lock:
            self._catch_up()
            return {
                (key.topic, key.partition): committed
                for key, committed in self._offsets.items()
                if key.group == group
            }

    def groups(self) -> list[str]:
        with self._lock:
            self._catch_up()
            return sorted({key.group for key in self._offsets})

    def _catch_up(self) -> None:
        """Read what was appended since the last look."""
        topic = self._open_topic(False)
        if topic is None:
            return
        for number, log in enumerate(topic.partitions):
            view = log.view()
            offset = max(self._read_up_to.get(number, view.start), view.start)
            try:
                for record in log.read(offset, stop=view.high_watermark):
                    self._apply(record.key, record.value)
            except OffsetOutOfRangeError:
                continue  # emptied under us; the next look starts anew
            self._read_up_to[number] = view.high_watermark

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            return
        try:
            decoded = decode_group_key(key)
            if not isinstance(decoded, OffsetKey):
                return
            if value is None:
                self._offsets.pop(decoded, None)
                return
            found = decode_offset_value(value)
        except FormatError:
            return  # a kind of record this version does not know
        self._offsets[decoded] = CommittedOffset(
            offset=found.offset, metadata=found.metadata, committed_ms=found.commit_timestamp
        )


class Group:
    """One consumer group's committed offsets."""

    def __init__(self, name: str, offsets: CommittedOffsets) -> None:
        self.name = name
        self._offsets = offsets

    def __repr__(self) -> str:
        return f"Group({self.name!r})"

    def commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str]]) -> None:
        """Remember where to go on: {("orders", 0): next offset to read}. Durable on return.

        A value may be (offset, metadata).
        """
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
        """Where the group goes on: of one partition (None when it never committed), or of all.

        ``committed("orders", 0)`` or ``committed(("orders", 0))`` for one; without a partition a
        dictionary of those of the topic, or of every topic.
        """
        found = {place: c.offset for place, c in self._offsets.of_group(self.name).items()}
        if isinstance(topic, tuple):
            return found.get(topic)
        if topic is not None and partition is not None:
            return found.get((topic, partition))
        if topic is not None:
            return {place: offset for place, offset in found.items() if place[0] == topic}
        return found

    def details(self) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets with their metadata and times."""
        return self._offsets.of_group(self.name)

    def forget(self, *partitions: TopicPartition) -> None:
        """Remove committed offsets: those named, or all of the group."""
        known = list(self._offsets.of_group(self.name))
        self._offsets.remove(self.name, list(partitions) if partitions else known)

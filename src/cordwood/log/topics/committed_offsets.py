"""Committed offsets of consumer groups, in the compacted topic that Kafka's brokers use for it.

One record per (group, topic, partition): the newest one counts, a tombstone removes it. So the
offsets survive like any record, and a table of them is a fold over the log. The same table
serves the library and the broker: both see what either commits.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, overload
from uuid import UUID

from cordwood.clock import Clock
from cordwood.errors import FormatError, InvalidRecordError, LogError, StorageError
from cordwood.format.groups.group_offsets import (
    OFFSET_KEY_TYPES,
    OffsetKey,
    OffsetValue,
    decode_group_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
    group_partition,
)
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.latest_by_key import newest_values
from cordwood.log.topics.topic import Topic
from cordwood.quantities import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs

logger = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
GroupRecord = tuple[bytes, bytes | None]  # key and value; None is a tombstone
OffsetsTopic = Topic[PartitionLog] | Topic[ReadOnlyLog]

_METADATA_CHARS_MAX: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """Where a group goes on reading a partition.

    `expires_ms` is set where a client of old said itself how long the offset should be kept.
    `topic_id` tells a topic from an earlier one of the same name; None: nobody noted it.
    """

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    committed_ms: TimestampMs
    expires_ms: TimestampMs = NO_TIMESTAMP
    topic_id: UUID | None = None


GroupOffsets = dict[TopicPartition, CommittedOffset]


def offset_record(group: str, place: TopicPartition, committed: CommittedOffset) -> GroupRecord:
    """The record that says that a group has come that far."""
    value = OffsetValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.committed_ms,
        expire_timestamp=committed.expires_ms,
        topic_id=committed.topic_id,
    )
    return _key(group, place), encode_offset_value(value)


def offset_tombstone(group: str, place: TopicPartition) -> GroupRecord:
    """The record that takes back what a group committed for a partition."""
    return _key(group, place), None


def _key(group: str, place: TopicPartition) -> bytes:
    return encode_offset_key(OffsetKey(group=group, topic=place[0], partition=place[1]))


class CommittedOffsets:
    """All groups' offsets, kept in memory as they stand in the topic. Any thread may use it.

    `open_topic` gives the topic, creating it when asked to; None when there is none yet.
    `topic_id` gives the id of a topic that is there now.

    Invariant: for each partition of the topic, `_groups` is what the records before
    `_read_up_to` say. What is appended through here is taken over as it is appended; records
    that came another way are read when someone asks. `_lock` guards both and is never held
    while a file is touched, so a thread that must not wait may look at what is known.
    """

    def __init__(
        self,
        open_topic: Callable[[bool], OffsetsTopic | None],
        clock: Clock,
        topic_id: Callable[[str], UUID | None] = lambda name: None,
    ) -> None:
        self._open_topic = open_topic
        self._clock = clock
        self._topic_id = topic_id
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._of_topic: UUID | None = None
        self._groups: dict[str, GroupOffsets] = {}
        self._read_up_to: dict[int, Offset] = {}

    # --- writing -----------------------------------------------------------------------------

    def commit(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        now_ms = self._clock.now_ms()
        records: list[GroupRecord] = []
        for (name, partition), (offset, metadata) in offsets.items():
            if offset < 0:
                raise InvalidRecordError(f"cannot commit offset {offset} of {name}-{partition}")
            if len(metadata) > _METADATA_CHARS_MAX:
                raise InvalidRecordError(
                    f"metadata of {len(metadata)} characters, limit is {_METADATA_CHARS_MAX}"
                )
            committed = CommittedOffset(
                offset=Offset(offset),
                metadata=metadata,
                committed_ms=now_ms,
                topic_id=self._topic_id(name),
            )
            records.append(offset_record(group, (name, partition), committed))
        if records:
            self.append(self.partition_of(group), records)

    def remove(self, group: str, partitions: list[TopicPartition]) -> None:
        """Forget where the group was, by tombstones."""
        if partitions and self._open_topic(False) is not None:
            records = [offset_tombstone(group, place) for place in partitions]
            self.append(self.partition_of(group), records)

    def remove_topic(self, name: str) -> None:
        """Forget where any group was in a topic that is gone. A failure is only logged.

        Should the topic come again, what could not be removed is not taken for its own: its
        id is another.
        """
        try:
            tombstones: dict[int, list[GroupRecord]] = {}
            for group in self.groups():
                places = sorted(place for place in self.known_places(group) if place[0] == name)
                if places:
                    records = tombstones.setdefault(self.partition_of(group), [])
                    records += (offset_tombstone(group, place) for place in places)
            for number, records in tombstones.items():
                self.append(number, records)
        except (LogError, StorageError, OSError) as error:
            logger.warning("offsets committed for deleted topic %s stay behind: %s", name, error)

    def partition_of(self, group: str) -> int:
        """The partition that holds what is kept of a group; the topic is created if need be."""
        topic = self._open_topic(True)
        assert topic is not None
        return group_partition(group, topic.partition_count)

    def append(self, partition: int, records: Sequence[GroupRecord]) -> None:
        """Append records, of any kind, to the topic, which is there. Durable on return."""
        if not records:
            return
        topic = self._open_topic(False)
        assert topic is not None
        [appended] = topic.append_many(list(records), partition=partition).ranges
        with self._lock:
            self._expect(topic)
            if self._read_up_to.get(partition, Offset(0)) == appended.first_offset:
                self._apply(dict(records))
                self._read_up_to[partition] = appended.next_offset

    # --- reading -----------------------------------------------------------------------------

    def of_group(self, group: str) -> GroupOffsets:
        topic = self._topic()
        if topic is not None:
            self._catch_up(topic, group_partition(group, topic.partition_count))
        return self.known_of_group(group)

    def groups(self) -> list[str]:
        """The names of all groups that have offsets."""
        self._catch_up_all()
        return self.known_groups()

    def known_of_group(self, group: str) -> GroupOffsets:
        """As far as the topic was read: see `is_current`. Touches no file."""
        with self._lock:
            found: GroupOffsets = dict(self._groups.get(group, {}))
        return {
            place: committed
            for place, committed in found.items()
            if committed.topic_id is None or self._topic_id(place[0]) in (None, committed.topic_id)
        }

    def known_places(self, group: str) -> set[TopicPartition]:
        """As `known_of_group`, also what was committed for earlier topics of the same name."""
        with self._lock:
            return set(self._groups.get(group, ()))

    def known_groups(self) -> list[str]:
        """As far as the topic was read. Touches no file."""
        with self._lock:
            return sorted(self._groups)

    def is_known(self, group: str) -> bool:
        """Whether the group has offsets, as far as the topic was read. Touches no file."""
        with self._lock:
            return group in self._groups

    def is_current(self, group: str | None = None) -> bool:
        """Whether all that a group committed has been read; without a group, all of all."""
        topic = self._topic()
        if topic is None:
            return True
        if group is None:
            return all(self._is_read(topic, log) for log in topic.partitions)
        number = group_partition(group, topic.partition_count)
        return not topic.has_partition(number) or self._is_read(topic, topic.partition(number))

    def load(self) -> list[tuple[bytes, bytes]]:
        """Read the topic from its start: the newest records of other kinds than offsets.

        Those that a tombstone ended are left out.
        """
        topic = self._topic()
        if topic is None:
            return []
        others: list[tuple[bytes, bytes]] = []
        for log in topic.partitions:
            newest = self._catch_up(topic, log.partition, from_start=True)
            others += (
                (key, value)
                for key, value in newest.items()
                if value is not None and key[:2] not in OFFSET_KEY_TYPES
            )
        return others

    # --- catching up -------------------------------------------------------------------------

    def _topic(self) -> OffsetsTopic | None:
        """The topic, if it is there. A topic that was deleted took its offsets along."""
        topic = self._open_topic(False)
        with self._lock:
            if topic is None:
                self._of_topic = None
                self._groups.clear()
                self._read_up_to.clear()
            else:
                self._expect(topic)
        return topic

    def _is_read(self, topic: OffsetsTopic, log: PartitionLog | ReadOnlyLog) -> bool:
        high_watermark = log.view().high_watermark
        with self._lock:
            self._expect(topic)
            return self._read_up_to.get(log.partition, Offset(0)) >= high_watermark

    def _catch_up_all(self) -> None:
        topic = self._topic()
        if topic is not None:
            for log in topic.partitions:
                self._catch_up(topic, log.partition)

    def _catch_up(
        self, topic: OffsetsTopic, number: int, *, from_start: bool = False
    ) -> dict[bytes, bytes | None]:
        """Read what was appended since the last look; one thread at a time does."""
        if not topic.has_partition(number):
            return {}  # offline: what was read before is what there is
        log = topic.partition(number)
        if not from_start and self._is_read(topic, log):
            return {}
        with self._reading:
            while True:
                view = log.view()
                with self._lock:
                    self._expect(topic)
                    known = self._read_up_to.get(number, Offset(0))
                start = view.start if from_start else max(known, view.start)
                newest = newest_values(log.source, start, view.high_watermark)
                with self._lock:
                    self._expect(topic)
                    if self._read_up_to.get(number, Offset(0)) != known:
                        continue  # an append was taken over meanwhile; what was read is older
                    self._apply(newest)
                    self._read_up_to[number] = max(known, view.high_watermark)
                    return newest

    def _expect(self, topic: OffsetsTopic) -> None:
        """Holds the lock. What was read of an earlier topic says nothing about this one."""
        if self._of_topic != topic.topic_id:
            self._of_topic = topic.topic_id
            self._groups.clear()
            self._read_up_to.clear()

    def _apply(self, records: Mapping[bytes, bytes | None]) -> None:
        """Holds the lock."""
        for key, value in records.items():
            if key[:2] not in OFFSET_KEY_TYPES:
                continue
            try:
                place = decode_group_key(key)
                found = None if value is None else decode_offset_value(value)
            except FormatError as error:
                logger.warning("a committed offset cannot be read and is left out: %s", error)
                continue
            assert isinstance(place, OffsetKey), place
            if found is None:
                self._drop(place)
                continue
            self._groups.setdefault(place.group, {})[place.topic, place.partition] = (
                CommittedOffset(
                    offset=found.offset,
                    leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                    committed_ms=found.commit_timestamp,
                    expires_ms=found.expire_timestamp,
                    topic_id=found.topic_id,
                )
            )

    def _drop(self, place: OffsetKey) -> None:
        offsets = self._groups.get(place.group)
        if offsets is not None:
            offsets.pop((place.topic, place.partition), None)
            if not offsets:
                del self._groups[place.group]


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

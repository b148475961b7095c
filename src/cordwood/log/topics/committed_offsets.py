"""Committed offsets of consumer groups, in the compacted topic that Kafka's brokers use for it.

There is one record per (group, topic, partition). The newest one counts; a tombstone removes
it. Offsets that are committed in a transaction count from its end on (`offsets_table`). The
offsets survive like any record, and the table of them is a fold over the log. The library and the
broker share one table: each sees what the other commits.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from cordwood.clock import Clock
from cordwood.errors import InvalidRecordError, LogError, StorageError, UnknownTopicError
from cordwood.format.batch_builder import BatchStyle, ProducerStamp, build_batch
from cordwood.format.batch_header import TRANSACTIONAL
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC
from cordwood.format.groups.group_offsets import (
    OFFSET_KEY_TYPES,
    OffsetKey,
    OffsetValue,
    encode_offset_key,
    encode_offset_value,
    group_partition,
)
from cordwood.format.record import Record
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.latest_by_key import fold_records
from cordwood.log.rules.producer_state import MarkerFacts, VerificationGuard
from cordwood.log.topics.offsets_table import (
    CommittedOffset,
    GroupOffsets,
    OffsetsEvent,
    OffsetsMarker,
    OffsetsTable,
    OffsetsWalk,
    TopicPartition,
)
from cordwood.log.topics.topic import Topic
from cordwood.quantities import NO_SEQUENCE, LeaderEpoch, Offset, ProducerId

__all__ = [
    "CommittedOffset",
    "CommittedOffsets",
    "GroupOffsets",
    "GroupRecord",
    "LedAppend",
    "TopicPartition",
    "offset_record",
    "offset_tombstone",
]

logger = logging.getLogger(__name__)

GroupRecord = tuple[bytes, bytes | None]  # key and value; None is a tombstone
ReadableTopic = Topic[PartitionLog] | Topic[ReadOnlyLog]

_METADATA_CHARS_MAX: Final = 4096
# Commits in transactions are kept in order until they are applied, a few hundred bytes for each.
_RECORDS_PER_WALK: Final = 50_000


def offset_record(group: str, place: TopicPartition, committed: CommittedOffset) -> GroupRecord:
    """The record that commits an offset."""
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
    """The record that removes the committed offset of a partition."""
    return _key(group, place), None


def _key(group: str, place: TopicPartition) -> bytes:
    return encode_offset_key(OffsetKey(group=group, topic=place[0], partition=place[1]))


class LedAppend(NamedTuple):
    """Records that were appended by the leader of a partition, and are not committed yet."""

    topic: ReadableTopic
    log: PartitionLog
    partition: int
    first: Offset
    records: Sequence[GroupRecord]
    producer_id: ProducerId | None = None  # whose transaction they are in

    @property
    def end(self) -> Offset:
        return Offset(self.first + len(self.records))


class OffsetsTopicSource(Protocol):
    """Where the offsets topic comes from: a store, open for writing or for reading only."""

    def find(self) -> ReadableTopic | None:
        """The topic, or None if it does not exist yet."""
        ...

    def ensure(self) -> ReadableTopic:
        """The topic, created if need be. Raises `ReadOnlyError` in a read-only store."""
        ...


class CommittedOffsets:
    """The offsets of all groups, in memory as they are in the topic. Any thread may use it.

    Invariant: for each partition of the topic, its table is the result of the records before
    `_read_up_to`. Records appended through this class are applied at once. Records that were
    appended another way are read on demand. `_lock` guards both and is never held while a file
    is touched, so a thread that must not wait may call the `known_*` methods.
    """

    def __init__(
        self,
        source: OffsetsTopicSource,
        clock: Clock,
        topic_id: Callable[[str], UUID | None] = lambda name: None,
    ) -> None:
        """`topic_id` gives the id of a topic that exists now; None if it does not exist."""
        self._source = source
        self._clock = clock
        self._topic_id = topic_id
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._of_topic: UUID | None = None
        self._tables: dict[int, OffsetsTable] = {}
        self._read_up_to: dict[int, Offset] = {}
        self._coordinated: set[int] | None = None

    # --- in a cluster ------------------------------------------------------------------------

    def coordinate_partly(self, topic_id: Callable[[str], UUID | None]) -> None:
        """Keep only partitions that were loaded: other brokers coordinate the others.

        `topic_id` knows all topics of the cluster. Called once, before anything is read.
        """
        self._coordinated = set()
        self._topic_id = topic_id

    def load_partition(self, number: int) -> list[tuple[bytes, bytes]]:
        """As `load`, of one partition, which is kept from here on."""
        topic = self._topic()
        if topic is None:
            return []
        self.unload_partition(number)
        others = self._load(topic, number)
        if self._coordinated is not None:
            self._coordinated.add(number)
        return others

    def unload_partition(self, number: int) -> None:
        """Forget one partition: another broker coordinates it now."""
        with self._lock:
            if self._coordinated is not None:
                self._coordinated.discard(number)
            self._tables.pop(number, None)
            self._read_up_to.pop(number, None)

    def append_led(
        self, partition: int, records: Sequence[GroupRecord], *, led_in: LeaderEpoch
    ) -> LedAppend:
        """Append records as the leader of `led_in`. They count after `note_committed`.

        Returns at once: nothing is durable, and other replicas have not fetched it. Raises
        `NotLeaderError` if another leadership began.
        """
        topic, log = self._writable(partition, self._source.ensure())
        now_ms = self._clock.now_ms()
        built = build_batch(
            [Record(value, key=key, timestamp_ms=now_ms) for key, value in records],
            now_ms,
            BatchStyle(bytes_max=log.config.max_message_bytes),
        )
        placed = log.batches.append_batch(built.data, wait=False, led_in=led_in)
        return LedAppend(topic, log, partition, placed.base_offset, records)

    def note_committed(self, appended: LedAppend) -> None:
        """What was appended is on all replicas that count: it is the newest of its keys."""
        first = appended.first
        events = [
            OffsetsEvent(Offset(first + index), key, value, appended.producer_id)
            for index, (key, value) in enumerate(appended.records)
        ]
        self._note(appended.topic, appended.partition, first, appended.end, events)

    def append_pending_led(
        self,
        partition: int,
        records: Sequence[GroupRecord],
        *,
        producer_id: ProducerId,
        producer_epoch: int,
        led_in: LeaderEpoch,
        guard: VerificationGuard | None,
    ) -> LedAppend:
        """As `append_led`, for commits that count once the transaction of a producer does.

        Raises `UnverifiedTransactionError` if that transaction may have ended: see `guard`.
        """
        topic, log = self._writable(partition, self._source.ensure())
        data, batch = self._pending_batch(log, records, producer_id, producer_epoch)
        first = log.batches.append_of_coordinator(
            data, batch, wait=False, led_in=led_in, guard=guard
        )
        return LedAppend(topic, log, partition, first, records, producer_id)

    def note_marker(
        self, partition: int, at: Offset, producer_id: ProducerId, *, is_commit: bool
    ) -> None:
        """The marker of a transaction at `at` is committed: its offsets count, or are dropped."""
        topic = self._source.find()
        is_kept = self._coordinated is None or partition in self._coordinated
        if topic is not None and is_kept:
            event = OffsetsMarker(producer_id, is_commit=is_commit)
            self._note(topic, partition, at, Offset(at + 1), [event])

    # --- writing -----------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, tuple[int, str]],
        *,
        topic_id: UUID | None = None,
    ) -> None:
        """Commit offsets. With `topic_id`, they count only for the topic that has this id."""
        records = self.records_of(group, offsets, topic_id=topic_id)
        if records:
            self.append(self.partition_of(group), records)

    def records_of(
        self,
        group: str,
        offsets: Mapping[TopicPartition, tuple[int, str]],
        *,
        topic_id: UUID | None = None,
    ) -> list[GroupRecord]:
        """The records that commit offsets, each with its metadata. Raises for invalid ones."""
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
                topic_id=topic_id or self._topic_id(name),
            )
            records.append(offset_record(group, (name, partition), committed))
        return records

    def remove(self, group: str, partitions: list[TopicPartition]) -> None:
        """Remove committed offsets of a group, by tombstones."""
        if partitions and self._source.find() is not None:
            records = [offset_tombstone(group, place) for place in partitions]
            self.append(self.partition_of(group), records)

    def remove_topics(self, names: Collection[str]) -> None:
        """Remove all groups' offsets of deleted topics. A failure is only logged.

        Offsets that could not be removed do no harm: a new topic of that name has another id.
        """
        try:
            tombstones: dict[int, list[GroupRecord]] = {}
            for group in {*self.groups(), *self._pending_groups()}:
                known = self.known_places(group) | self.pending_places(group)
                places = sorted(p for p in known if p[0] in names)
                if places:
                    records = tombstones.setdefault(self.partition_of(group), [])
                    records += (offset_tombstone(group, place) for place in places)
            for number, records in tombstones.items():
                self.append(number, records)
        except (LogError, StorageError, OSError) as error:
            logger.warning("could not remove offsets of deleted topics %s: %s", names, error)

    def partition_of(self, group: str) -> int:
        """The partition that holds the records of a group. Creates the topic if need be."""
        topic = self._source.ensure()
        return group_partition(group, topic.partition_count)

    def append(self, partition: int, records: Sequence[GroupRecord]) -> None:
        """Append records of any kind to the topic, which exists. Durable on return."""
        if not records:
            return
        topic = self._source.find()
        assert topic is not None
        [appended] = topic.append_many(list(records), partition=partition).ranges
        first = appended.first_offset
        events = [
            OffsetsEvent(Offset(first + index), key, value)
            for index, (key, value) in enumerate(records)
        ]
        self._note(topic, partition, first, appended.next_offset, events)

    def append_pending(
        self,
        partition: int,
        records: Sequence[GroupRecord],
        *,
        producer_id: ProducerId,
        producer_epoch: int,
    ) -> None:
        """Append commits that count once the transaction of a producer does. Durable on return."""
        topic, log = self._writable(partition, self._source.ensure())
        data, batch = self._pending_batch(log, records, producer_id, producer_epoch)
        first = log.batches.append_of_coordinator(data, batch)
        events = [
            OffsetsEvent(Offset(first + index), key, value, producer_id)
            for index, (key, value) in enumerate(records)
        ]
        self._note(topic, partition, first, Offset(first + len(records)), events)

    def _pending_batch(
        self,
        log: PartitionLog,
        records: Sequence[GroupRecord],
        producer_id: ProducerId,
        producer_epoch: int,
    ) -> tuple[memoryview, UnplacedBatch]:
        now_ms = self._clock.now_ms()
        built = build_batch(
            [Record(value, key=key, timestamp_ms=now_ms) for key, value in records],
            now_ms,
            BatchStyle(bytes_max=log.config.max_message_bytes),
            ProducerStamp(
                producer_id=producer_id, producer_epoch=producer_epoch, attributes=TRANSACTIONAL
            ),
        )
        batch = UnplacedBatch(
            built.size,
            built.record_count,
            built.max_timestamp,
            producer_id,
            producer_epoch,
            NO_SEQUENCE,
            True,
        )
        return built.data, batch

    def append_marker(
        self, partition: int, marker: MarkerFacts, *, transaction_version: int
    ) -> Offset:
        """End the transaction of a producer in one partition of the topic; return where.

        Not durable on return. But it counts at once: the coordinator's decision is durable. The
        topic exists, and is not created here: who copies the store waits for markers.
        """
        topic, log = self._writable(partition, self._source.find())
        at = log.batches.end_transaction(
            marker, transaction_version=transaction_version, wait=False
        )
        event = OffsetsMarker(marker.producer_id, is_commit=not marker.is_abort)
        self._note(topic, partition, at, Offset(at + 1), [event])
        return at

    def _writable(
        self, partition: int, topic: ReadableTopic | None
    ) -> tuple[ReadableTopic, PartitionLog]:
        if topic is None:
            raise UnknownTopicError(CONSUMER_OFFSETS_TOPIC)
        log = topic.partition(partition)
        assert isinstance(log, PartitionLog), log
        return topic, log

    def _note(
        self,
        topic: ReadableTopic,
        partition: int,
        first: Offset,
        end: Offset,
        events: Iterable[OffsetsEvent | OffsetsMarker],
    ) -> None:
        """Apply what was appended, unless something before it was not read yet."""
        with self._lock:
            self._expect(topic)
            if self._read_up_to.get(partition, Offset(0)) == first:
                self._apply(partition, events)
                self._read_up_to[partition] = end

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

    def known_at(
        self, group: str, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The offsets of a group in some partitions, likewise; None: there is none."""
        with self._lock:
            known = self._offsets_of(group)
            found = {place: known.get(place) for place in places}
        return {place: None if had is None else had.offset for place, had in found.items()}

    def known_of_group(self, group: str) -> GroupOffsets:
        """The offsets of a group as far as the topic was read (`is_current`). Touches no file."""
        with self._lock:
            found: GroupOffsets = dict(self._offsets_of(group))
        return {
            place: committed
            for place, committed in found.items()
            if committed.topic_id is None or self._topic_id(place[0]) in (None, committed.topic_id)
        }

    def known_places(self, group: str) -> set[TopicPartition]:
        """Like `known_of_group`, but includes offsets of earlier topics of the same name."""
        with self._lock:
            return set(self._offsets_of(group))

    def pending_places(self, group: str) -> set[TopicPartition]:
        """The partitions whose offset an open transaction may still change. Touches no file."""
        with self._lock:
            return {
                place
                for table in self._tables.values()
                if table.has_pending
                for place in table.pending_places(group)
            }

    def _pending_groups(self) -> set[str]:
        with self._lock:
            return {group for table in self._tables.values() for group in table.pending_groups()}

    def known_groups(self) -> list[str]:
        """The groups that have offsets, as far as the topic was read. Touches no file."""
        with self._lock:
            return sorted(group for table in self._tables.values() for group in table.groups)

    def is_known(self, group: str) -> bool:
        """Whether the group has offsets, as far as the topic was read. Touches no file."""
        with self._lock:
            return any(group in table.groups for table in self._tables.values())

    def _offsets_of(self, group: str) -> GroupOffsets:
        """The caller holds the lock."""
        for table in self._tables.values():
            found = table.groups.get(group)
            if found is not None:
                return found
        return {}

    def is_current(self, group: str | None = None) -> bool:
        """Whether all commits of a group have been read; without a group, of all groups."""
        topic = self._topic()
        if topic is None:
            return True
        if group is None:
            return all(self._is_read(topic, log) for log in self._kept(topic))
        number = group_partition(group, topic.partition_count)
        return not topic.has_partition(number) or self._is_read(topic, topic.partition(number))

    def load(self) -> list[tuple[bytes, bytes]]:
        """Read the topic from its start. Return the newest record of each key that is no offset.

        Keys that a tombstone removed are left out.
        """
        topic = self._topic()
        if topic is None:
            return []
        others: list[tuple[bytes, bytes]] = []
        for log in topic.opened_partitions:
            others += self._load(topic, log.partition)
        return others

    def _load(self, topic: ReadableTopic, number: int) -> list[tuple[bytes, bytes]]:
        if not topic.has_partition(number):
            return []  # offline
        with self._reading:
            newest = self._read_again(topic, topic.partition(number))
        return [
            (key, value)
            for key, value in newest.items()
            if value is not None and key[:2] not in OFFSET_KEY_TYPES
        ]

    def _kept(self, topic: ReadableTopic) -> list[PartitionLog | ReadOnlyLog]:
        """The logs of the partitions that are kept: in a cluster, not all that are here."""
        kept = self._coordinated
        return [log for log in topic.opened_partitions if kept is None or log.partition in kept]

    # --- catching up -------------------------------------------------------------------------

    def _topic(self) -> ReadableTopic | None:
        """The topic, if it exists. If it was deleted, the offsets are gone with it."""
        topic = self._source.find()
        with self._lock:
            if topic is None:
                self._of_topic = None
                self._tables.clear()
                self._read_up_to.clear()
            else:
                self._expect(topic)
        return topic

    def _is_read(self, topic: ReadableTopic, log: PartitionLog | ReadOnlyLog) -> bool:
        high_watermark = log.view().high_watermark
        with self._lock:
            self._expect(topic)
            return self._read_up_to.get(log.partition, Offset(0)) >= high_watermark

    def _catch_up_all(self) -> None:
        topic = self._topic()
        if topic is not None:
            for log in self._kept(topic):
                self._catch_up(topic, log.partition)

    def _catch_up(self, topic: ReadableTopic, number: int) -> None:
        """Read the records appended since the last time. One thread at a time reads."""
        if not topic.has_partition(number):
            return  # offline: the offsets read before are all we have
        log = topic.partition(number)
        end = log.view().high_watermark
        if not self._is_read(topic, log):
            with self._reading:
                while self._read_on(topic, log, end):
                    pass

    def _read_on(self, topic: ReadableTopic, log: PartitionLog | ReadOnlyLog, end: Offset) -> bool:
        """Read and apply the next records, `_RECORDS_PER_WALK` at most; False at `end`."""
        number = log.partition
        with self._lock:
            self._expect(topic)
            known = self._read_up_to.get(number, Offset(0))
        if known >= end:
            return False
        start = max(known, log.view().start)
        stop = min(Offset(start + _RECORDS_PER_WALK), end)
        walk = OffsetsWalk()
        fold_records(log.source, start, stop, walk)
        with self._lock:
            self._expect(topic)
            if self._read_up_to.get(number, Offset(0)) == known:
                self._apply(number, walk.of_offsets)
                self._read_up_to[number] = max(known, stop)
            # Otherwise an append was applied meanwhile; what was read is older.
        return True

    def _read_again(
        self, topic: ReadableTopic, log: PartitionLog | ReadOnlyLog
    ) -> dict[bytes, bytes | None]:
        """Read a partition from its start into a new table, which replaces the old one."""
        number = log.partition
        while True:
            view = log.view()
            with self._lock:
                self._expect(topic)
                known = self._read_up_to.get(number, Offset(0))
            table, others = OffsetsTable(), dict[bytes, bytes | None]()
            for start in range(view.start, view.high_watermark, _RECORDS_PER_WALK):
                walk = OffsetsWalk()
                stop = min(start + _RECORDS_PER_WALK, view.high_watermark)
                fold_records(log.source, Offset(start), Offset(stop), walk)
                for event in walk.of_offsets:
                    table.apply(event)
                others |= walk.others
            with self._lock:
                self._expect(topic)
                if self._read_up_to.get(number, Offset(0)) != known:
                    continue  # an append was applied meanwhile; what was read is older
                if known <= view.high_watermark:  # a marker counts before readers see it
                    self._tables[number] = table
                    self._read_up_to[number] = view.high_watermark
                return others

    def _expect(self, topic: ReadableTopic) -> None:
        """Drop offsets that were read from an earlier topic. The caller holds the lock."""
        if self._of_topic != topic.topic_id:
            self._of_topic = topic.topic_id
            self._tables.clear()
            self._read_up_to.clear()

    def _apply(self, partition: int, events: Iterable[OffsetsEvent | OffsetsMarker]) -> None:
        """Apply records to the table of a partition. The caller holds the lock."""
        table = self._tables.get(partition)
        if table is None:
            table = self._tables[partition] = OffsetsTable()
        for event in events:
            table.apply(event)

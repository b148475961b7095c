"""A topic: partitions under one name and one configuration."""

import itertools
import operator
import threading
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal
from uuid import UUID

from cordwood.errors import (
    LogClosedError,
    NotLeaderError,
    ReadOnlyError,
    StorageError,
    UnknownPartitionError,
)
from cordwood.format import record_encoding
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.format.record import Header, Record
from cordwood.log.beside.archived_log import ArchivedLog
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.log_source import open_view
from cordwood.log.reading.merged_logs import (
    ReadOrder,
    TopicRecord,
    follow_merged,
    read_merged,
)
from cordwood.log.rules.appended import Appended, AppendedMany
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation, is_committed_only
from cordwood.log.rules.topic_config import Durability, TopicConfig
from cordwood.quantities import NO_LEADER_EPOCH, Offset, timestamp_of

_POSITIVE = 0x7FFFFFFF

# PartitionLog in a store open for writing, ReadOnlyLog in a read-only store, ArchivedLog in an
# archive that is opened without its store.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    LogT = TypeVar("LogT", PartitionLog, ReadOnlyLog, ArchivedLog, default=PartitionLog)
else:
    from typing import TypeVar

    LogT = TypeVar("LogT", PartitionLog, ReadOnlyLog, ArchivedLog)


def partition_for(key: bytes, count: int) -> int:
    """The partition that Kafka's Java client gives a key by default."""
    return (record_encoding.murmur2(key) & _POSITIVE) % count


def visible_names(names: Iterable[str], *, include_internal: bool) -> list[str]:
    """Topic names in order, without internal topics unless they are asked for."""
    return sorted(n for n in list(names) if include_internal or n not in INTERNAL_TOPICS)


def _first_offset(log: LogReader, start: Literal["start", "end"] | Mapping[int, int]) -> Offset:
    if isinstance(start, Mapping):
        wanted = start.get(log.partition)
    elif start in ("start", "end"):
        wanted = None if start == "end" else log.start_offset
    else:
        raise ValueError(f"start must be 'start', 'end' or offsets by partition, not {start!r}")
    view = open_view(log.source)
    return view.readable(view.high_watermark if wanted is None else wanted, None)[0]


class Topic(Generic[LogT]):
    """The partitions of one topic. Any thread may use it.

    A partition without records is opened when it is asked for: until then it costs nothing.
    """

    def __init__(
        self,
        name: str,
        topic_id: UUID,
        config: TopicConfig,
        logs: Mapping[int, LogT],
        *,
        partition_count: int,
        offline: Callable[[str, int], str | None] | None = None,
        unopened: Collection[int] = (),
        open_log: Callable[[str, int], LogT] | None = None,
        absent: Collection[int] = (),
    ) -> None:
        """`open_log` opens the partitions in `unopened`, by the topic's name and their number.

        `offline` gives the reason why a partition is not open; None if it is not expected to be.
        Other brokers of the cluster have the partitions in `absent`.
        """
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.partition_count = partition_count
        self._logs: dict[int, LogT] = dict(logs)
        self._why_offline = offline
        self._unopened = set(unopened)
        self._open_log: Callable[[str, int], LogT] | None = open_log
        self._absent = frozenset(absent)
        self._opening = threading.Lock()
        self._is_ended = False
        self._turn = itertools.count()

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, partitions={self.partition_count})"

    @property
    def partitions(self) -> list[LogT]:
        """The logs of all partitions, in order. Raises `StorageError` if one is offline.

        Opens those that are not open yet.
        """
        if self._why_offline is not None and len(self._logs) < self.partition_count:
            numbers = range(self.partition_count)
            return [self.partition(number) for number in numbers if self._is_expected(number)]
        return self.opened_partitions

    @property
    def opened_partitions(self) -> list[LogT]:
        """The logs of the partitions that are open, in order.

        The others are offline, or were not used yet and have no records.
        """
        return [self._logs[number] for number in sorted(self._logs)]

    def partition(self, number: int) -> LogT:
        """The log of one partition. Raises `StorageError` if the partition is offline."""
        try:
            return self._logs[operator.index(number)]
        except KeyError:
            pass
        if number in self._absent:
            raise NotLeaderError(f"{self.name}-{number}", epoch=NO_LEADER_EPOCH)
        if 0 <= number < self.partition_count:
            if self._open_log is not None:
                with self._opening:
                    return self._open(number)
            if self._is_expected(number):
                raise self._offline(number)
        raise UnknownPartitionError(self.name, number, count=self.partition_count)

    def _is_expected(self, number: int) -> bool:
        """Whether the partition is open, can be opened, or is offline for a reason."""
        if number in self._absent:
            return False
        if number in self._logs or self._open_log is not None:
            return True
        return self._why_offline is not None and self._why_offline(self.name, number) is not None

    def _open(self, number: int) -> LogT:
        """Open a partition unless another thread just did. Holds the lock."""
        log = self._logs.get(number)
        if log is None:
            if self._is_ended:
                raise LogClosedError(f"{self.name}-{number}")
            if number not in self._unopened or self._open_log is None:
                raise self._offline(number)
            log = self._logs[number] = self._open_log(self.name, number)
            self._unopened.discard(number)
        return log

    def _offline(self, number: int) -> StorageError:
        reason = "" if self._why_offline is None else self._why_offline(self.name, number)
        return StorageError(f"{self.name}-{number} is offline: {reason}")

    def is_here(self, number: int) -> bool:
        """Whether this process has the partition, readable or not; else other brokers have it."""
        return 0 <= number < self.partition_count and number not in self._absent

    def host(self, count: int, here: Collection[int]) -> None:
        """Called by the store of a broker in a cluster: it has these partitions of `count`.

        Those that are new have no records; those that are gone are closed already.
        """
        with self._opening:
            before = {n for n in range(self.partition_count) if n not in self._absent}
            self._unopened.update(n for n in here if n not in before)
            for number in before.difference(here):
                self._logs.pop(number, None)
                self._unopened.discard(number)
            self._absent = frozenset(range(count)).difference(here)
            self.partition_count = count

    def opened(self, number: int) -> LogT | None:
        """The log of a partition if it is open; None also for one without records."""
        return self._logs.get(number)

    def has_partition(self, number: int) -> bool:
        """Whether the partition can be used. False: it is offline, or there is none."""
        return number in self._logs or number in self._unopened

    def replace_log(self, number: int, log: LogT) -> None:
        """Called by the store after another log took the place of one."""
        with self._opening:
            self._logs[number] = log
            self._unopened.discard(number)

    def add_log(self, number: int, log: LogT) -> None:
        """Called by a read-only store when it found a new partition."""
        self._logs[number] = log
        self.partition_count = max(self.partition_count, number + 1)

    def add_partitions(self, numbers: range) -> None:
        """Called by the store after it added partitions, which have no records."""
        with self._opening:
            self._unopened.update(numbers)
            self.partition_count = numbers.stop

    def end(self) -> None:
        """Called by the store before it closes the logs: no more are opened."""
        with self._opening:
            self._is_ended = True
            self._unopened = set()

    def reconfigure(self, config: TopicConfig) -> None:
        """Called by the store to change the configuration of all partitions."""
        self.config = config
        for log in self._logs.values():
            if isinstance(log, PartitionLog):
                log.promises.adopt(config)

    # --- reading -----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[TopicRecord]:
        return self.read()

    def __getitem__(self, number: int) -> LogT:
        """The log of one partition: ``topic[0]``. A negative number counts from the last one."""
        number = operator.index(number)
        return self.partition(number + self.partition_count if number < 0 else number)

    def read(
        self, *, order: ReadOrder = "time", isolation: Isolation = READ_UNCOMMITTED
    ) -> Iterator[TopicRecord]:
        """All records of all partitions, oldest first.

        They are merged by timestamp; those of one partition always keep their order. With `order`
        "partition" one partition comes after another, which is quicker. For `isolation` see
        `LogReader.read`.
        """
        return read_merged(self.partitions, order, isolation)

    def follow(
        self,
        start: Literal["start", "end"] | Mapping[int, int] = "end",
        *,
        idle_timeout_ms: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> Iterator[TopicRecord]:
        """Records of all partitions as they arrive, waiting for new ones as long as it takes.

        `start` is "start", "end", or the first offset by partition; a partition that is not named
        begins at its end, one that is added later at its start. Ends when the store is closed or
        the topic is deleted, or after `idle_timeout_ms` without a new record.
        """
        is_committed_only(isolation)  # raises for an unknown one, before anything is read
        return follow_merged(
            lambda: self.partitions,
            self.first_offsets(start),
            None if idle_timeout_ms is None else idle_timeout_ms / 1000,
            isolation,
        )

    def first_offsets(
        self, start: Literal["start", "end"] | Mapping[int, int], *, only_opened: bool = False
    ) -> dict[int, Offset]:
        """Where `follow` begins in each partition. Raises if a partition has no such offset.

        With `only_opened`, partitions that were never used are left out. They have no records.
        """
        if isinstance(start, Mapping):
            for number in start:
                if not self.is_here(number):
                    raise UnknownPartitionError(self.name, number, count=self.partition_count)
        logs = self.opened_partitions if only_opened else self.partitions
        return {log.partition: _first_offset(log, start) for log in logs}

    def offsets_for_time(self, timestamp_ms: int | datetime) -> dict[int, int]:
        """For each partition, the first offset at or after that time; its end if there is none.

        It is in milliseconds, or a `datetime` with a time zone.
        """
        moment = timestamp_of(timestamp_ms)
        found: dict[int, int] = {}
        for log in self.partitions:
            offset = log.offset_for_time(moment)
            found[log.partition] = log.high_watermark if offset is None else offset
        return found

    # --- appending ---------------------------------------------------------------------------

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] | Mapping[str, bytes | None] = (),
        timestamp_ms: int | datetime | None = None,
        partition: int | None = None,
        expected_offset: int | None = None,
        durability: Durability | None = None,
    ) -> Appended:
        """Append one record. Return its place once its durability is reached.

        Without `partition`, the key chooses it, as in every Kafka client; without a key,
        partitions take turns. `expected_offset` needs a partition or a key. `durability` is
        "disk" or "os" for this call; None: the topic's. See `PartitionLog.append`.
        """
        if partition is None:
            partition = self.choose_partition(key)
        return self._writable(partition).append(
            value,
            key=key,
            headers=headers,
            timestamp_ms=timestamp_ms,
            expected_offset=expected_offset,
            durability=durability,
        )

    def choose_partition(self, key: bytes | None) -> int:
        """The partition of a key, as in every Kafka client; without a key, the next in turn."""
        if isinstance(key, str):
            raise TypeError("key must be bytes or None, not str")
        if key is not None:
            return partition_for(key, self.partition_count)
        return next(self._turn) % self.partition_count

    def append_many(
        self,
        records: Iterable[Record | tuple[bytes | None, bytes | None]],
        *,
        partition: int | None = None,
    ) -> AppendedMany:
        """Append `Record`s or (key, value) pairs; a value of None is a tombstone.

        The records of one partition are appended all or none, and keep their order.
        """
        items: list[Any] = records if isinstance(records, list) else list(records)
        is_log_append_time = self.config.is_log_append_time
        parts, chosen = self.split_by_partition(items, partition)
        ranges = [self._writable(number).append_many(part) for number, part in parts]
        return AppendedMany(items, ranges, chosen, is_log_append_time=is_log_append_time)

    def split_by_partition(
        self, items: list[Any], partition: int | None
    ) -> "tuple[list[tuple[int, list[Any]]], array[int] | None]":
        """The records of each partition that gets some, and the partition of each record.

        The latter is None if all go to one partition.
        """
        if not items:
            return [], None
        if partition is None and self.partition_count == 1:
            partition = 0
        if partition is not None:
            return [(partition, items)], None
        keyless = next(self._turn) % self.partition_count
        lists, chosen = record_encoding.split_by_key(items, Record, self.partition_count, keyless)
        return [(number, part) for number, part in enumerate(lists) if part], chosen

    def _writable(self, number: int) -> PartitionLog:
        log: LogReader = self.partition(number)
        if not isinstance(log, PartitionLog):
            if log.is_closed:
                raise LogClosedError(log.name)
            raise ReadOnlyError(f"append to topic {self.name!r}")
        return log

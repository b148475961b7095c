"""The records of a topic for its readers, from files or from a broker. Bounded reads only."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cordwood.console.facts.broker_access import BrokerAccess
from cordwood.errors import OffsetOutOfRangeError, UnknownPartitionError
from cordwood.format.record import Record
from cordwood.log.reading.arrow_scan import split
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.topics.topic import partition_for
from cordwood.quantities import MIB, Offset
from cordwood.remote.remote_consumer import EARLIEST, LATEST, RemoteConsumer

if TYPE_CHECKING:
    import pyarrow as pa

_PART_BYTES: Final = 16 * MIB
_PART_OFFSETS: Final = 100_000
_ATTEMPTS: Final = 3  # if retention deletes what is being read


class Extent(NamedTuple):
    """The readable offsets of a partition, [start, end)."""

    start: int
    end: int

    def clamp(self, offset: int) -> int:
        return min(max(offset, self.start), self.end)


class TopicRecords(Protocol):
    """Reads one topic. For one thread."""

    topic: str

    def extents(self) -> dict[int, Extent]: ...

    def offsets_at(self, timestamp_ms: int) -> dict[int, int]:
        """For each partition the first offset not older than the time, or its end."""
        ...

    def read(self, partition: int, start: int, stop: int, count_max: int) -> list[Record]:
        """The first records in [start, stop)."""
        ...

    def parts(self, partition: int, start: int, stop: int) -> list[tuple[int, int]]:
        """[start, stop) cut into ranges of some megabytes, in order."""
        ...

    def scan(
        self, partition: int, start: int, stop: int, columns: tuple[str, ...]
    ) -> Iterator[pa.RecordBatch]: ...

    def history(self, key: bytes, seconds_max: float | None = None) -> Iterator[tuple[int, Record]]:
        """The records of a key, oldest first, with their partitions.

        Raises `TimeoutError` if it must read a whole partition and that takes longer.
        """
        ...


class DirectoryRecords:
    """Implements `TopicRecords` by files."""

    def __init__(self, store: ReadOnlyStore, topic: str) -> None:
        self._topic = store.topic(topic)
        self.topic = topic

    def extents(self) -> dict[int, Extent]:
        found: dict[int, Extent] = {}
        for log in self._topic.opened_partitions:
            view = log.view()
            found[log.partition] = Extent(view.start, view.high_watermark)
        return found

    def offsets_at(self, timestamp_ms: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for log in self._topic.opened_partitions:
            offset = log.offset_for_time(max(timestamp_ms, 0))
            found[log.partition] = log.high_watermark if offset is None else offset
        return found

    def read(self, partition: int, start: int, stop: int, count_max: int) -> list[Record]:
        log = self._topic.partition(partition)
        for _ in range(_ATTEMPTS):
            view = log.view()
            first = min(max(start, view.start), view.high_watermark)
            last = max(min(stop, view.high_watermark), first)
            try:
                return list(log.read(first, stop=last, max_records=count_max))
            except (OffsetOutOfRangeError, FileNotFoundError):
                log.source.refresh()
        return []

    def parts(self, partition: int, start: int, stop: int) -> list[tuple[int, int]]:
        segments = self._topic.partition(partition).view().segments
        found = split(segments, Offset(start), Offset(stop), target_bytes=_PART_BYTES)
        return [(int(first), int(last)) for first, last in found]

    def scan(
        self, partition: int, start: int, stop: int, columns: tuple[str, ...]
    ) -> Iterator[pa.RecordBatch]:
        log = self._topic.partition(partition)
        return log.scan(max(start, log.start_offset), stop, columns=columns)

    def history(self, key: bytes, seconds_max: float | None = None) -> Iterator[tuple[int, Record]]:
        """Looks into the partition that the key hashes to first, then into the others."""
        count = self._topic.partition_count
        home = partition_for(key, count)
        has_found = False
        for number in [home, *(n for n in range(count) if n != home)]:
            if number != home and has_found:
                return  # the producer places keys as Kafka does
            with contextlib.suppress(UnknownPartitionError):
                for record in self._topic.partition(number).history(key):
                    has_found = True
                    yield number, record


class BrokerRecords:
    """Implements `TopicRecords` by fetching."""

    def __init__(self, access: BrokerAccess, topic: str) -> None:
        self._access = access
        self.topic = topic

    @contextlib.contextmanager
    def _consumer(self, partition: int | None = None) -> Iterator[RemoteConsumer]:
        with self._access.connected() as cluster:
            numbers = None if partition is None else [partition]
            yield RemoteConsumer(cluster, self.topic, numbers)

    def extents(self) -> dict[int, Extent]:
        with self._consumer() as consumer:
            starts, ends = consumer.offsets_at(EARLIEST), consumer.offsets_at(LATEST)
        return {n: Extent(starts[n], ends[n]) for n in starts}

    def offsets_at(self, timestamp_ms: int) -> dict[int, int]:
        with self._consumer() as consumer:
            found = consumer.offsets_at(max(timestamp_ms, 0))
            ends = consumer.offsets_at(LATEST)
        return {n: ends[n] if offset < 0 else offset for n, offset in found.items()}

    def read(self, partition: int, start: int, stop: int, count_max: int) -> list[Record]:
        found: list[Record] = []
        with self._consumer(partition) as consumer:
            start = max(start, consumer.offsets_at(EARLIEST)[partition])
            for chunk in consumer.chunks(partition, start, stop):
                found += chunk.records
                if len(found) >= count_max:
                    break
        return found[:count_max]

    def parts(self, partition: int, start: int, stop: int) -> list[tuple[int, int]]:
        return [(at, min(at + _PART_OFFSETS, stop)) for at in range(start, stop, _PART_OFFSETS)]

    def scan(
        self, partition: int, start: int, stop: int, columns: tuple[str, ...]
    ) -> Iterator[pa.RecordBatch]:
        from cordwood.format.arrow_columns import ArrowColumns

        collected = ArrowColumns(columns)
        with self._consumer(partition) as consumer:
            for run in consumer.runs(partition, start, stop):
                yield from collected.add(run)
        yield from collected.take()

    def history(self, key: bytes, seconds_max: float | None = None) -> Iterator[tuple[int, Record]]:
        """Reads the partition that the key hashes to: a broker cannot search for a key."""
        extents = self.extents()
        number = partition_for(key, len(extents))
        extent = extents[number]
        started_s = time.monotonic()
        with self._consumer(number) as consumer:
            for chunk in consumer.chunks(number, extent.start, extent.end):
                if seconds_max is not None and time.monotonic() - started_s > seconds_max:
                    raise TimeoutError(
                        f"reading partition {number} for the key takes longer than "
                        f"{seconds_max:g} s: the broker has no index of keys; search for key=… "
                        "instead, or export the records of the key"
                    )
                for record in chunk.records:
                    if record.key == key:
                        yield number, record

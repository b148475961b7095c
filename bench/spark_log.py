"""Logs for Spark to read: rows of one size, with keys and times, written once and kept.

Rows are encoded from columns, so millions of them take only seconds. Both partitions cover the
whole time span, like a topic that receives records all the time.
"""

import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bench.observed_fs import UnsyncedFileSystem
from bench.workload import OS, TOPIC, fresh_path
from cordwood.format.batch_builder import BatchStyle
from cordwood.format.column_batches import ChosenPlaces, ColumnBatches, RecordColumns
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store, StoreSetup
from cordwood.quantities import MIB, TimestampMs

PARTITIONS: Final = 2  # one for each core
DAY_MS: Final = 24 * 60 * 60 * 1000

_SEGMENT_BYTES: Final = 128 * MIB
_POOL_BYTES: Final = 64 * MIB
_CHUNK_BYTES: Final = 2 * MIB
_TIMES: Final = pa.timestamp("ms", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogShape:
    """The shape of a log: rows spread evenly over a day, with random keys."""

    value_size: int
    rows: int
    keys: int
    config: dict[str, str] = field(default_factory=dict)
    name: str = ""

    @property
    def chunk_rows(self) -> int:
        """The number of rows for one partition before the other gets its turn."""
        return max(min(_CHUNK_BYTES // self.value_size, self.rows // (4 * PARTITIONS)), 1)

    def key(self, number: int) -> str:
        return f"key-{number:010d}"

    def chunks(self) -> Iterator[tuple[int, int, int]]:
        """(partition, first row, end), in order of time."""
        for number, first in enumerate(range(0, self.rows, self.chunk_rows)):
            yield number % PARTITIONS, first, min(first + self.chunk_rows, self.rows)

    def time_ms(self, row: int) -> int:
        """The time of a row, relative to the first row."""
        return row * DAY_MS // self.rows

    def window_ms(self, part: float) -> tuple[int, int]:
        """A window in the middle that contains this share of the rows: [start, end)."""
        length = int(DAY_MS * part)
        start = (DAY_MS - length) // 2
        return start, start + length


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkLog:
    """A log on disk, cleanly closed."""

    shape: LogShape
    path: Path
    first_ms: int
    size_bytes: int

    def window_ms(self, part: float) -> tuple[int, int]:
        start, end = self.shape.window_ms(part)
        return self.first_ms + start, self.first_ms + end

    def batches(self, partition: int) -> Iterator[bytearray]:
        """The encoded batches of a partition, as before their offsets were assigned."""
        for path in sorted((self.path / f"{TOPIC}-{partition}").glob("*.log")):
            with open(path, "rb") as file:
                while start := file.read(12):
                    batch = bytearray(start)
                    batch += file.read(int.from_bytes(start[8:12], "big"))
                    batch[:8] = bytes(8)
                    yield batch


def write_log(directory: Path, shape: LogShape, values: "pa.Array[Any] | None" = None) -> SparkLog:
    """Write a log of that shape. Its day ends now, so that no retention deletes it.

    Its values are slices of `values`, which must be more than `chunk_rows`; without, random bytes.
    """
    path = fresh_path(directory, f"log-{shape.name or shape.value_size}")
    first_ms = time.time_ns() // 10**6 - DAY_MS
    config = {**OS, "segment.bytes": str(_SEGMENT_BYTES), "retention.ms": "-1", **shape.config}
    with Store([str(path)], StoreSetup(fs=UnsyncedFileSystem(), has_housekeeping=False)) as store:
        topic = store.create_topic(TOPIC, partitions=PARTITIONS, config=config)
        logs = [_log_of(topic.partition(number)) for number in range(PARTITIONS)]
        _fill(logs, shape, first_ms, _pool(shape.value_size) if values is None else values)
        for log in logs:
            log.roll()  # only sealed segments are compacted or indexed
        size_bytes = sum(log.size_bytes for log in logs)
    if "key.index" in shape.config:
        _index_keys(path)
    return SparkLog(shape=shape, path=path, first_ms=first_ms, size_bytes=size_bytes)


def _index_keys(path: Path) -> None:
    """Build the key indexes, as the housekeeping of a running store does."""
    with Store([str(path)], StoreSetup(fs=UnsyncedFileSystem(), has_housekeeping=False)) as store:
        for partition in store.topic(TOPIC).partitions:
            assert _log_of(partition).upkeep.index_keys() > 0


def _log_of(partition: object) -> PartitionLog:
    assert isinstance(partition, PartitionLog), partition
    return partition


def _fill(
    logs: list[PartitionLog], shape: LogShape, first_ms: int, values: "pa.Array[Any]"
) -> None:
    style = BatchStyle(bytes_max=MIB)
    encoders = [ColumnBatches(partial(_append, log)) for log in logs]
    for partition, first, end in shape.chunks():
        count = end - first
        at = first % (len(values) - count) if len(values) > count else 0
        times = [first_ms + shape.time_ms(row) for row in range(first, end)]
        rows = RecordColumns.of(
            value=values.slice(at, count),
            key=_keys(shape, count, seed=first),
            timestamp=pa.array(times, pa.int64()).cast(_TIMES),
            now_ms=TimestampMs(first_ms),
        )
        encoders[partition].add(
            rows, ChosenPlaces(array("i", bytes(4 * count)), 1), lambda _: style
        )
    for encoder in encoders:
        encoder.finish()


def _append(log: PartitionLog, place: int, batch: memoryview) -> None:
    log.batches.append_batch(batch)


def _pool(value_size: int) -> "pa.Array[Any]":
    """Random values, more than the processor's caches hold; the same in every run."""
    count = _POOL_BYTES // value_size
    noise = Random(value_size).randbytes(count * value_size)
    ends = array("i", range(0, (count + 1) * value_size, value_size))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(noise)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _keys(shape: LogShape, count: int, *, seed: int) -> "pa.Array[Any]":
    drawn: Any = pc.random(count, initializer=seed)
    numbers = pc.floor(pc.multiply(drawn, pa.scalar(float(shape.keys)))).cast(pa.int64())
    digits = pc.utf8_lpad(numbers.cast(pa.string()), 10, "0")
    prefix: Any = pa.scalar("key-")
    joined: Any = pc.binary_join_element_wise(prefix, digits, "")
    return joined  # type: ignore[no-any-return]

"""Stores of a given shape, cleanly closed or crashed, and work on them."""

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Final

from bench.measure import seconds_of
from bench.observed_fs import UnsyncedFileSystem
from bench.workload import OS, TOPIC, fresh_path
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store, StoreSetup
from cordwood.quantities import KIB

PER_BATCH: Final = 64
VALUE_BYTES: Final = KIB

_RECORDS_TIMED: Final = 20_000  # at least: reading fewer takes only a few milliseconds
_OPENS: Final = 3  # the disk sometimes causes a wait, whatever the size

Batch = list[tuple[None, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a store. Every partition has the same number of batches."""

    batches: int  # in each partition
    partitions: int = 1
    segment_batches: int | None = None  # None: the default segment size
    unsynced_batches: int = 0  # the last of `batches`, which were not synced before the crash

    @property
    def records(self) -> int:
        return self.batches * PER_BATCH * self.partitions

    @property
    def config(self) -> dict[str, object]:
        if self.segment_batches is None:
            return dict(OS)
        return {**OS, "segment.records": self.segment_batches * PER_BATCH}


def make_batches(count: int) -> list[Batch]:
    """Random bytes, the same in every run."""
    rng = random.Random(count)
    return [[(None, rng.randbytes(VALUE_BYTES)) for _ in range(PER_BATCH)] for _ in range(count)]


def closed_store(directory: Path, shape: Shape) -> Path:
    """Make a store of that shape and close it cleanly; return its path."""
    path = fresh_path(directory, "grown")
    with Store([str(path)], _setup()) as store:
        _fill(store, shape, shape.batches)
    return path


def crashed_store(directory: Path, shape: Shape) -> Path:
    """The same after a kill, with `unsynced_batches` past the checkpoint of each log."""
    path = fresh_path(directory, "crashed")
    store = Store([str(path)], _setup())
    try:
        _fill(store, shape, shape.batches - shape.unsynced_batches)
        store.maintain()
        _append_to_all(store, shape.unsynced_batches)
    finally:
        store.abandon()
    return path


def _setup() -> StoreSetup:
    return StoreSetup(fs=UnsyncedFileSystem(), has_housekeeping=False)


def _fill(store: Store, shape: Shape, batches: int) -> None:
    store.create_topic(TOPIC, partitions=shape.partitions, config=shape.config)
    _append_to_all(store, batches)


def _append_to_all(store: Store, batches: int) -> None:
    made = make_batches(16)
    for log in logs_of(store):
        for batch in islice(cycle(made), batches):
            log.append_many(batch)


@contextmanager
def opened_store(path: Path) -> Iterator[Store]:
    with Store([str(path)], StoreSetup(has_housekeeping=False)) as store:
        yield store


def logs_of(store: Store) -> Sequence[PartitionLog]:
    return store.topic(TOPIC).partitions


# --- work, and the cost of a unit of it -------------------------------------------------------


def append_us(store: Store, batch: Batch, count: int) -> float:
    """µs per record to append a batch, to the partitions in turn."""
    logs = cycle(logs_of(store))
    taken = [_seconds(lambda log: log.append_many(batch), next(logs)) for _ in range(count)]
    return median(taken) / len(batch) * 1e6


def random_read_us(store: Store, count: int, *, seed: int = 7) -> float:
    """µs to read one record at a random offset."""
    rng, logs = random.Random(seed), logs_of(store)
    places = [(log := rng.choice(logs), rng.randrange(log.end_offset)) for _ in range(count)]
    return median(_seconds(_read_one, log, offset) for log, offset in places) * 1e6


def scan_us(store: Store) -> float:
    """µs per record to read everything as Arrow; a short log is read repeatedly."""
    logs = logs_of(store)
    records = sum(log.end_offset for log in logs)

    def scan() -> None:
        found = sum(batch.num_rows for log in logs for batch in log.scan())
        assert found == records, (found, records)

    times = -(-_RECORDS_TIMED // records)
    return median(seconds_of(scan) for _ in range(times)) / records * 1e6


def open_ms(path: Path) -> float:
    """ms to open a store, which is then closed; the best of several."""
    return min(_opened_ms(path) for _ in range(_OPENS))


def recovery_ms(path: Path) -> float:
    """ms to open a copy of a crashed store; the copy is deleted afterwards."""
    copy = path.with_name(f"{path.name}-copy")
    shutil.copytree(path, copy)
    os.sync()  # otherwise the first synced file would wait until the whole copy is written
    taken_ms = _opened_ms(copy)
    shutil.rmtree(copy)
    return taken_ms


def _opened_ms(path: Path) -> float:
    started = time.perf_counter()
    store = Store([str(path)], StoreSetup(has_housekeeping=False))
    taken_s = time.perf_counter() - started
    store.close()
    return taken_s * 1e3


def _read_one(log: PartitionLog, offset: int) -> None:
    record = next(log.read(offset, max_records=1))
    assert record.offset == offset, (record.offset, offset)


def _seconds(work: Callable[..., object], *arguments: object) -> float:
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started

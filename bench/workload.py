"""Records to append and logs to read."""

import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from bench.observed_fs import UnsyncedFileSystem
from bench.peers import PIECE_BYTES
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store, StoreSetup
from cordwood.quantities import MIB
from cordwood.storage.files import FileSystem, RealFileSystem

TOPIC = "bench"
OS = {"durability": "os"}
DISK = {"durability": "disk"}

# Different values, more than the processor's caches hold.
_POOL_BYTES = 64 * MIB

_numbers = count()


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one size, in lists of about 1 MiB, one list per `append_many`."""

    size: int
    lists: list[list[tuple[None, bytes]]]

    @property
    def per_list(self) -> int:
        return len(self.lists[0])

    def calls(self, records: int) -> Iterator[list[tuple[None, bytes]]]:
        """Lists with at least `records` values in total, cycling through the pool."""
        for number in range(self.call_count(records)):
            yield self.lists[number % len(self.lists)]

    def call_count(self, records: int) -> int:
        return -(-records // self.per_list)

    def pieces(self) -> list[bytes]:
        """The same bytes joined, 1 MiB each."""
        whole = b"".join(value for pairs in self.lists for _, value in pairs)
        return [whole[at : at + PIECE_BYTES] for at in range(0, len(whole), PIECE_BYTES)]


def make_values(size: int, *, pool_bytes: int = _POOL_BYTES) -> Values:
    """Random bytes, the same in every run."""
    noise = random.Random(size).randbytes(pool_bytes)
    values = [noise[at : at + size] for at in range(0, pool_bytes - size + 1, size)]
    per_list = max(MIB // size, 1)
    return Values(
        size,
        [
            [(None, value) for value in values[at : at + per_list]]
            for at in range(0, len(values) - per_list + 1, per_list)
        ],
    )


def fresh_path(directory: Path, name: str) -> Path:
    """A path that was never used before."""
    return directory / f"{name}-{next(_numbers)}"


@contextmanager
def new_log(
    directory: Path, config: Mapping[str, object], *, fs: FileSystem | None = None
) -> Iterator[PartitionLog]:
    """An empty log of one partition, deleted afterwards."""
    path = fresh_path(directory, "store")
    with Store([str(path)], StoreSetup(fs=fs or RealFileSystem())) as store:
        store.create_topic(TOPIC, config=config)
        log = log_of(store)
        try:
            yield log
        finally:
            # Delete the files first: closing would wait until all of them are on the disk.
            log.truncation.truncate_fully_and_start_at(0)
    shutil.rmtree(path)


@contextmanager
def opened(path: Path) -> Iterator[PartitionLog]:
    """The log of a prepared store."""
    with Store([str(path)], StoreSetup()) as store:
        yield log_of(store)


def prepare_log(
    directory: Path,
    values: Values,
    records: int,
    config: Mapping[str, object] | None = None,
    *,
    one_by_one: bool = False,
) -> Path:
    """Make a cleanly closed store whose log holds at least `records`; return its path.

    With `one_by_one` each record is a batch.
    """
    path = fresh_path(directory, "prepared")
    with Store([str(path)], StoreSetup(fs=UnsyncedFileSystem())) as store:
        store.create_topic(TOPIC, config={**OS, **(config or {})})
        log = log_of(store)
        for pairs in values.calls(records):
            if one_by_one:
                for _, value in pairs:
                    log.append(value)
            else:
                log.append_many(pairs)
    return path


def log_of(store: Store) -> PartitionLog:
    log = store.topic(TOPIC).partition(0)
    assert isinstance(log, PartitionLog)
    return log


def log_files(path: Path) -> list[Path]:
    return sorted((path / f"{TOPIC}-0").glob("*.log"))

"""LMDB and persist-queue as peers of the library: what Python programs use in place of a log."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import lmdb
import persistqueue

from bench.measure import Latency, Stopwatch, latency_of
from cordwood.quantities import GIB

LMDB: Final = "LMDB"
PERSIST_QUEUE: Final = "persist-queue"

_MAP_BYTES: Final = 8 * GIB  # of addresses, not of memory or disk
_CHUNK_RECORDS: Final = 10_000  # of a queue's file; the default, 100, makes a file every 10 KiB


class LmdbLog:
    """A tree as a log: the key is the offset, so that a write goes to the end."""

    def __init__(self, path: Path, *, durability: str) -> None:
        self._path = path
        # Without sync, a commit is a write to the file: it survives the process, not a power cut.
        self._environment = lmdb.open(
            str(path), map_size=_MAP_BYTES, sync=durability == "disk", metasync=durability == "disk"
        )
        self._next = 0

    def append(self, value: bytes) -> None:
        self.append_many([value])

    def append_many(self, values: Sequence[bytes]) -> None:
        with self._environment.begin(write=True) as transaction:
            for value in values:
                transaction.put(self._next.to_bytes(8, "big"), value, append=True)
                self._next += 1

    def scan(self) -> int:
        """Read every record in order; return how many."""
        count = 0
        with self._environment.begin() as transaction:
            for _ in transaction.cursor():
                count += 1
        return count

    def read(self, offset: int) -> None:
        with self._environment.begin() as transaction:
            assert transaction.get(offset.to_bytes(8, "big")) is not None, offset

    def close(self) -> None:
        self._environment.close()
        shutil.rmtree(self._path)


class QueueLog:
    """A queue in files. Reading takes records out, and there is no reading at an offset."""

    def __init__(self, path: Path, *, durability: str) -> None:
        assert durability == "os", "it cannot sync each record"
        self._path = path
        self._queue: Any = persistqueue.Queue(
            str(path), chunksize=_CHUNK_RECORDS, tempdir=str(path.parent)
        )

    def append(self, value: bytes) -> None:
        self._queue.put(value)

    def append_many(self, values: Sequence[bytes]) -> None:
        for value in values:
            self._queue.put(value)

    def scan(self) -> int:
        count = 0
        while not self._queue.empty():
            self._queue.get()
            count += 1
        return count

    def close(self) -> None:
        for file in (self._queue.headf, self._queue.tailf):  # it has no method for this
            file.close()
        shutil.rmtree(self._path)


PeerLog = LmdbLog | QueueLog
PEER_LOGS: Final[dict[str, type[PeerLog]]] = {LMDB: LmdbLog, PERSIST_QUEUE: QueueLog}


@contextmanager
def peer_log(kind: type[PeerLog], path: Path, *, durability: str = "os") -> Iterator[PeerLog]:
    """A new one, deleted afterwards."""
    with closing(kind(path, durability=durability)) as log:
        yield log


def append_many_seconds(kind: type[PeerLog], path: Path, lists: Sequence[Sequence[bytes]]) -> float:
    """Seconds to append the lists, one call for each."""
    with peer_log(kind, path) as log, Stopwatch() as watch:
        for values in lists:
            log.append_many(values)
    return watch.seconds


def append_latency(kind: type[PeerLog], path: Path, value: bytes, count: int) -> Latency:
    with peer_log(kind, path) as log:
        return latency_of([lambda: log.append(value)] * count)


def synced_appends_per_second(path: Path, value: bytes, seconds: float) -> float:
    """One thread of LMDB, each record synced before the next."""
    with peer_log(LmdbLog, path, durability="disk") as log:
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            log.append(value)
            count += 1
        return count / (time.perf_counter() - started)


def scan_rate(
    kind: type[PeerLog], path: Path, lists: Sequence[Sequence[bytes]]
) -> Callable[[], float]:
    """Records/s of reading all; the log is filled anew each time, before the clock starts."""

    def rate() -> float:
        with peer_log(kind, path) as log:
            for values in lists:
                log.append_many(values)
            with Stopwatch() as watch:
                count = log.scan()
        assert count == sum(map(len, lists)), count
        return count / watch.seconds

    return rate

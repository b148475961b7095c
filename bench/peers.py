"""What Cordwood is compared with: bare system calls, and SQLite as the embedded peer."""

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import crc32c

from bench.measure import Latency, Stopwatch, latency_of
from cordwood.quantities import MIB

PIECE_BYTES = MIB
SQLITE = "SQLite WAL"


@contextmanager
def new_file(path: Path) -> Iterator[int]:
    """A descriptor of an empty file, which is deleted afterwards without writing it back."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)
        path.unlink()


# --- system calls -----------------------------------------------------------------------------


def write_seconds(path: Path, pieces: Sequence[bytes], total_bytes: int) -> float:
    """Seconds of plain `os.write`, one piece per call, cycling through the pieces."""
    with new_file(path) as fd, Stopwatch() as watch:
        for number in range(-(-total_bytes // PIECE_BYTES)):
            os.write(fd, pieces[number % len(pieces)])
    return watch.seconds


def write_latency(path: Path, data: bytes, count: int) -> Latency:
    with new_file(path) as fd:
        return latency_of([partial(os.write, fd, data)] * count)


def synced_writes_per_second(path: Path, data: bytes, seconds: float) -> float:
    """One thread, each record written and synced before the next."""
    with new_file(path) as fd:
        started = time.perf_counter()
        count = 0
        while time.perf_counter() - started < seconds:
            os.write(fd, data)
            os.fdatasync(fd)
            count += 1
        return count / (time.perf_counter() - started)


def group_commits_per_second(path: Path, data: bytes, *, threads: int, seconds: float) -> float:
    """Many threads, and one that writes and syncs for all of them, without a log.

    This is the limit of the interpreter's threads.
    """
    waiting: deque[threading.Lock] = deque()
    is_over = threading.Event()
    has_work = threading.Event()
    counts = [0] * threads

    def append(number: int) -> None:
        is_written = threading.Lock()
        is_written.acquire()
        while not is_over.is_set():
            waiting.append(is_written)
            has_work.set()
            is_written.acquire()
            counts[number] += 1

    def write(fd: int) -> None:
        while not is_over.is_set():
            has_work.wait()
            has_work.clear()
            served = [waiting.popleft() for _ in range(len(waiting))]
            os.write(fd, data * len(served))
            os.fdatasync(fd)
            for is_written in served:
                is_written.release()

    with new_file(path) as fd:
        appenders = [threading.Thread(target=append, args=(n,)) for n in range(threads)]
        writer = threading.Thread(target=write, args=(fd,))
        for thread in (writer, *appenders):
            thread.start()
        started, before = time.perf_counter(), sum(counts)
        time.sleep(seconds)
        rate = (sum(counts) - before) / (time.perf_counter() - started)
        is_over.set()
        has_work.set()
        writer.join()
        for is_written in waiting:
            is_written.release()
        for thread in appenders:
            thread.join()
    return rate


def warm_memory(path: Path, total_bytes: int) -> None:
    """Touch as much memory as a page cache of that size needs.

    On a virtual machine the first touch of a page waits for the host, ten times as long as the
    write that caused it.
    """
    piece = bytes(PIECE_BYTES)
    write_seconds(path, [piece], total_bytes)


def read_seconds(paths: Sequence[Path], *, start: int = 0, with_checksum: bool = False) -> float:
    """Seconds to read files from byte `start` into one buffer, with or without a checksum."""
    buffer = memoryview(bytearray(PIECE_BYTES))
    with Stopwatch() as watch:
        for path in paths:
            with open(path, "rb", buffering=0) as file:
                file.seek(start)
                while count := file.readinto(buffer):
                    if with_checksum:
                        crc32c.crc32c(buffer[:count])
    return watch.seconds


def pread_latency(path: Path, positions: Sequence[int], size: int) -> Latency:
    with open(path, "rb", buffering=0) as file:
        fd = file.fileno()
        return latency_of([partial(os.pread, fd, size, at) for at in positions])


# --- SQLite -----------------------------------------------------------------------------------


class SqliteLog:
    """A table as a log, in WAL mode, with which SQLite appends fastest."""

    def __init__(self, path: Path, *, durability: str) -> None:
        self._path = path
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        # OFF leaves the writing to the operating system, FULL syncs the WAL at each commit.
        self._connection.execute(f"PRAGMA synchronous={'FULL' if durability == 'disk' else 'OFF'}")
        self._connection.execute(
            "CREATE TABLE log (offset INTEGER PRIMARY KEY, timestamp INTEGER, key BLOB, value BLOB)"
        )

    def append(self, value: bytes) -> None:
        self._connection.execute(
            "INSERT INTO log (timestamp, value) VALUES (?, ?)", (time.time_ns() // 10**6, value)
        )

    def append_many(self, values: Sequence[bytes]) -> None:
        now_ms = time.time_ns() // 10**6
        self._connection.execute("BEGIN")
        self._connection.executemany(
            "INSERT INTO log (timestamp, value) VALUES (?, ?)", ((now_ms, v) for v in values)
        )
        self._connection.execute("COMMIT")

    def scan(self) -> int:
        """Read every record in order; return how many."""
        count = 0
        for _ in self._connection.execute("SELECT * FROM log ORDER BY offset"):
            count += 1
        return count

    def read(self, offset: int) -> None:
        found = self._connection.execute("SELECT * FROM log WHERE offset = ?", (offset + 1,))
        assert found.fetchone() is not None, offset

    def close(self) -> None:
        self._connection.close()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)


@contextmanager
def sqlite_log(path: Path, *, durability: str) -> Iterator[SqliteLog]:
    """A new table, deleted afterwards."""
    with closing(SqliteLog(path, durability=durability)) as log:
        yield log

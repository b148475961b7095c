"""The library in one process: appending, reading, opening, recovering, memory.

Durability "os": an acknowledged record survives the death of the process. "disk": it survives a
power cut too. Rows that read do so from the page cache.
"""

import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.child import import_seconds, kill_a_writer, measure_memory
from bench.measure import (
    Context,
    Latency,
    Row,
    Stopwatch,
    Target,
    latency_of,
    measure_in_turns,
    measure_row,
    samples,
)
from bench.observed_fs import CountingFileSystem
from bench.peers import (
    SqliteLog,
    group_commits_per_second,
    pread_latency,
    read_seconds,
    sqlite_log,
    synced_writes_per_second,
    write_latency,
    write_seconds,
)
from bench.workload import (
    DISK,
    OS,
    Values,
    fresh_path,
    log_files,
    log_of,
    make_values,
    new_log,
    opened,
    prepare_log,
)
from varve.log.partition_log import PartitionLog
from varve.log.store import Store, StoreSetup
from varve.quantities import GIB, KIB, MIB

_SQLITE = "SQLite WAL"
_THREADS = 64
_BATCH_BYTES = 512 * KIB  # recovery may begin with one batch that was synced, and looks at headers


def row_makers() -> dict[str, Callable[[Context], list[Row]]]:
    """Each makes one row, or a few that come from one measurement."""
    return {
        "append_many": append_many_rows,
        "append": append_rows,
        "append to disk": append_to_disk_rows,
        "scan 1 KiB": scan_large_rows,
        "scan 16 B": scan_small_rows,
        "read": read_rows,
        "random read": random_read_rows,
        "open": open_rows,
        "recover": recover_rows,
        "memory": memory_rows,
        "import": import_rows,
    }


# --- appending --------------------------------------------------------------------------------


def append_many_rows(context: Context) -> list[Row]:
    large, small = make_values(KIB), make_values(100)
    total_bytes = context.pick(512, 128) * MIB
    rate = measure_row(
        "append_many, 1 KiB values",
        lambda: total_bytes / _append_seconds(context, large, total_bytes) / 1e9,
        runs=context.runs,
        durability="os",
        unit="GB/s",
        limit=("os.write of 1 MiB", _writing_rate(context, large, total_bytes)),
        peers={_SQLITE: _sqlite_rate(context, large, total_bytes // 4)},
        target=Target(bound=0.5, is_ratio=True),
        note=f"{total_bytes // MIB} MiB of different values, 1 MiB in each call",
    )
    records = context.pick(4_000_000, 1_000_000)
    million = measure_row(
        "append_many, 100 B values",
        lambda: records / _append_seconds(context, small, records * 100) / 1e6,
        runs=context.runs,
        durability="os",
        unit="M records/s",
        peers={
            _SQLITE: lambda: _sqlite_rate(context, small, records * 25)() * 1e9 / 100 / 1e6,
        },
        target=Target(bound=2.0),
        note=f"{records:,} records, {small.per_list:,} in each call",
    )
    return [rate, million]


def _append_seconds(context: Context, values: Values, total_bytes: int) -> float:
    calls = list(values.calls(total_bytes // values.size))
    with new_log(context.directory, OS) as log, Stopwatch() as watch:
        for pairs in calls:
            log.append_many(pairs)
    return watch.seconds


def _writing_rate(context: Context, values: Values, total_bytes: int) -> Callable[[], float]:
    pieces = values.pieces()
    path = context.directory / "plain"
    return lambda: total_bytes / write_seconds(path, pieces, total_bytes) / 1e9


def _sqlite_rate(context: Context, values: Values, total_bytes: int) -> Callable[[], float]:
    """GB/s of values inserted, a transaction for each call."""

    def rate() -> float:
        path = fresh_path(context.directory, "sqlite")
        with sqlite_log(path, durability="os") as log, Stopwatch() as watch:
            for pairs in values.calls(total_bytes // values.size):
                log.append_many([value for _, value in pairs])
        return total_bytes / watch.seconds / 1e9

    return rate


def append_rows(context: Context) -> list[Row]:
    value, count = bytes(100), context.pick(100_000, 30_000)

    def varve() -> Latency:
        with new_log(context.directory, OS) as log:
            return latency_of([partial(log.append, value)] * count)

    def sqlite() -> Latency:
        with sqlite_log(fresh_path(context.directory, "sqlite"), durability="os") as log:
            return latency_of([partial(log.append, value)] * (count // 3))

    figures = measure_in_turns(
        {
            "Varve": varve,
            "os.write": lambda: write_latency(context.directory / "plain", value, count),
            _SQLITE: sqlite,
        },
        runs=context.runs,
    )
    return _latency_rows(
        "append of one 100 B value", "os", figures, limit="os.write", p50_us=25, p99_us=1000
    )


def _latency_rows(
    title: str,
    durability: str,
    figures: dict[str, list[Latency]],
    *,
    limit: str,
    p99_us: float,
    p50_us: float | None = None,
    note: str = "",
) -> list[Row]:
    """Two rows of one measurement: the median call and the slowest of a hundred."""

    def row(
        percentile: str, figure: Callable[[Latency], float], bound: float | None, note: str = ""
    ) -> Row:
        columns = {
            name: samples(name, [figure(latency) for latency in latencies])
            for name, latencies in figures.items()
        }
        return Row(
            title=f"{title}, {percentile}",
            durability=durability,
            unit="µs",
            varve=columns["Varve"],
            limit=columns[limit],
            peers=tuple(s for name, s in columns.items() if name not in ("Varve", limit)),
            target=None if bound is None else Target(bound=bound),
            is_lower_better=True,
            note=note,
        )

    return [
        row("p50", lambda latency: latency.p50_us, p50_us, note),
        row("p99", lambda latency: latency.p99_us, p99_us),
    ]


def append_to_disk_rows(context: Context) -> list[Row]:
    value, seconds = bytes(100), 0.5 if context.is_quick else 3.0

    def varve() -> float:
        with new_log(context.directory, DISK) as log:
            return _threaded_rate(log, value, seconds)

    def sqlite() -> float:
        with sqlite_log(fresh_path(context.directory, "sqlite"), durability="disk") as log:
            started, count = time.perf_counter(), 0
            while time.perf_counter() - started < seconds:
                log.append(value)
                count += 1
            return count / (time.perf_counter() - started)

    return [
        measure_row(
            f"append of one 100 B value, {_THREADS} threads",
            varve,
            runs=context.runs,
            durability="disk",
            unit="records/s",
            limit=(
                "1 thread, write + fdatasync",
                lambda: synced_writes_per_second(context.directory / "plain", value, seconds),
            ),
            peers={
                f"{_THREADS} threads, bare group commit": lambda: group_commits_per_second(
                    context.directory / "plain", value, threads=_THREADS, seconds=seconds
                ),
                f"{_SQLITE}, 1 thread": sqlite,
            },
            target=Target(bound=20.0, is_ratio=True),
            note=f"each thread waits until its record is on the disk; {seconds} s",
        )
    ]


def _threaded_rate(log: PartitionLog, value: bytes, seconds: float) -> float:
    """Acknowledged records/s of many threads that append one at a time."""
    start = threading.Barrier(_THREADS + 1)
    counts = [0] * _THREADS
    is_over = threading.Event()

    def work(number: int) -> None:
        start.wait()
        while not is_over.is_set():
            log.append(value)
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    start.wait()
    started = time.perf_counter()
    time.sleep(seconds)
    total, elapsed = sum(counts), time.perf_counter() - started
    is_over.set()
    for thread in threads:
        thread.join()
    return total / elapsed


# --- reading ----------------------------------------------------------------------------------


def scan_large_rows(context: Context) -> list[Row]:
    values = make_values(KIB)
    records = context.pick(512, 128) * MIB // KIB
    path = prepare_log(context.directory, values, records)
    with opened(path) as log, _sqlite_copy(context, values, records // 4) as peer:
        total_bytes = log.end_offset * values.size
        row = measure_row(
            "scan to Arrow, 1 KiB values",
            lambda: total_bytes / _scan_seconds(log) / 1e9,
            runs=context.runs,
            durability="-",
            unit="GB/s",
            limit=("read of the files", lambda: total_bytes / read_seconds(log_files(path)) / 1e9),
            peers={
                f"{_SQLITE}, Python rows": lambda: (
                    records // 4 * values.size / _seconds(peer.scan) / 1e9
                )
            },
            target=Target(bound=1.0),
            note=f"{total_bytes // MIB} MiB of values, all columns, one thread, checksums verified",
        )
    shutil.rmtree(path)
    return [row]


def scan_small_rows(context: Context) -> list[Row]:
    values = make_values(16, pool_bytes=16 * MIB)
    records = context.pick(20_000_000, 4_000_000)
    path = prepare_log(context.directory, values, records)
    with opened(path) as log:
        row = measure_row(
            "scan to Arrow, 16 B values",
            lambda: log.end_offset / _scan_seconds(log) / 1e6,
            runs=context.runs,
            durability="-",
            unit="M records/s",
            limit=(
                "read of the files",
                lambda: log.end_offset / read_seconds(log_files(path)) / 1e6,
            ),
            target=Target(bound=10.0),
            note=f"{log.end_offset:,} records, all columns, one thread, checksums verified",
        )
    shutil.rmtree(path)
    return [row]


def _scan_seconds(log: PartitionLog) -> float:
    with Stopwatch() as watch:
        rows = sum(batch.num_rows for batch in log.scan())
    assert rows == log.end_offset, (rows, log.end_offset)
    return watch.seconds


def read_rows(context: Context) -> list[Row]:
    values = make_values(100, pool_bytes=16 * MIB)
    records = context.pick(3_000_000, 800_000)
    path = prepare_log(context.directory, values, records)
    with opened(path) as log, _sqlite_copy(context, values, records // 4) as peer:

        def read() -> None:
            count = 0
            for _ in log.read():
                count += 1
            assert count == log.end_offset, (count, log.end_offset)

        row = measure_row(
            "read of Python records, 100 B values",
            lambda: log.end_offset / _seconds(read) / 1e6,
            runs=context.runs,
            durability="-",
            unit="M records/s",
            peers={_SQLITE: lambda: records // 4 / _seconds(peer.scan) / 1e6},
            target=Target(bound=1.0),
            note=f"{log.end_offset:,} records",
        )
    shutil.rmtree(path)
    return [row]


def _sqlite_copy(context: Context, values: Values, records: int) -> "_FilledTable":
    return _FilledTable(fresh_path(context.directory, "sqlite"), values, records)


class _FilledTable:
    """A SQLite table of `records` values for as long as the `with` lasts."""

    def __init__(self, path: Path, values: Values, records: int) -> None:
        self._log = SqliteLog(path, durability="os")
        left = records
        for pairs in values.calls(records):
            self._log.append_many([value for _, value in pairs[:left]])
            left -= len(pairs)

    def __enter__(self) -> SqliteLog:
        return self._log

    def __exit__(self, *_: object) -> None:
        self._log.close()


def _seconds(work: Callable[[], object]) -> float:
    with Stopwatch() as watch:
        work()
    return watch.seconds


def random_read_rows(context: Context) -> list[Row]:
    values = make_values(KIB)
    per_segment = context.pick(4096, 1024)
    records = 100 * per_segment
    path = prepare_log(context.directory, values, records, {"segment.records": per_segment})
    offsets = random.Random(7).choices(range(records), k=context.pick(20_000, 4_000))
    first = log_files(path)[0]
    positions = [o % (first.stat().st_size // KIB - 1) * KIB for o in offsets]
    with opened(path) as log, _sqlite_copy(context, values, records) as peer:
        segment_count = len(log.segments())
        assert segment_count == 100, segment_count

        def varve() -> Latency:
            return latency_of([partial(_read_one, log, offset) for offset in offsets])

        figures = measure_in_turns(
            {
                "Varve": varve,
                "os.pread at a known place": lambda: pread_latency(first, positions, KIB),
                _SQLITE: lambda: latency_of([partial(peer.read, o) for o in offsets]),
            },
            runs=context.runs,
        )
    shutil.rmtree(path)
    return _latency_rows(
        "random read, 100 segments",
        "-",
        figures,
        limit="os.pread at a known place",
        p99_us=1000,
        note=f"one record of {records:,}, 1 KiB values in batches of 256 KiB, warm",
    )


def _read_one(log: PartitionLog, offset: int) -> None:
    record = next(log.read(offset, max_records=1))
    assert record.offset == offset, (record.offset, offset)


# --- opening ----------------------------------------------------------------------------------


def open_rows(context: Context) -> list[Row]:
    values = make_values(100, pool_bytes=MIB)
    few = Values(values.size, [pairs[:100] for pairs in values.lists])
    path = prepare_log(context.directory, few, 1000 * 100, {"segment.records": 100})
    count = len(log_files(path))
    assert count == 1000, count

    def varve() -> float:
        with Stopwatch() as watch:
            store = Store([str(path)], StoreSetup())
        assert log_of(store).end_offset == 1000 * 100
        store.close()
        return watch.seconds

    row = measure_row(
        "open of 1,000 segments, cleanly closed",
        varve,
        runs=context.runs,
        durability="-",
        unit="s",
        limit=("listing the directory", lambda: _listing_seconds(path)),
        target=Target(bound=1.0),
        is_lower_better=True,
    )
    shutil.rmtree(path)
    return [row]


def _listing_seconds(path: Path) -> float:
    return _seconds(lambda: [found.stat() for found in log_files(path)[0].parent.iterdir()])


def recover_rows(context: Context) -> list[Row]:
    unsynced_bytes = context.pick(640, 192) * MIB
    read_below: list[float] = []
    read_twice: list[float] = []

    def recovery(*, is_written_back: bool) -> tuple[float, float]:
        """GB/s of opening after a kill, and of reading and checking the same bytes."""
        killed = kill_a_writer(
            fresh_path(context.directory, "killed"),
            synced_bytes=64 * MIB,
            unsynced_bytes=unsynced_bytes,
        )
        files = log_files(killed.path)
        if is_written_back:
            _write_back(files)
        limit = read_seconds(files, start=killed.synced_bytes, with_checksum=True)
        fs = CountingFileSystem()
        with Stopwatch() as watch:
            store = Store([str(killed.path)], StoreSetup(fs=fs))
        assert log_of(store).size_bytes == killed.total_bytes
        store.close()
        read_below.append(fs.reads.bytes_below(killed.synced_bytes) / KIB)
        read_twice.append((fs.reads.bytes - killed.unsynced_bytes) / MIB)
        shutil.rmtree(killed.path)
        gigabytes = killed.unsynced_bytes / 1e9
        return gigabytes / watch.seconds, gigabytes / limit

    clean = [recovery(is_written_back=True) for _ in range(context.runs)]
    dirty = [recovery(is_written_back=False) for _ in range(1 if context.is_quick else 3)]
    rows = [
        _recovery_row("recovery after a kill", clean, Target(bound=1.0)),
        _recovery_row("recovery at once, bytes not on the disk yet", dirty, None),
    ]
    twice = f"{sum(read_twice) / len(read_twice):.1f} MiB more than the unsynced bytes"
    return [
        *rows,
        Row(
            title="recovery after a kill, synced bytes re-read",
            durability="os",
            unit="KiB",
            varve=samples("Varve", read_below),
            target=Target(bound=_BATCH_BYTES / KIB),
            is_lower_better=True,
            note=f"of 64 MiB below the recovery point; in all, {twice} were read",
        ),
    ]


def _recovery_row(title: str, figures: list[tuple[float, float]], target: Target | None) -> Row:
    note = "opening, in GB/s of unsynced bytes"
    return Row(
        title=title,
        durability="os",
        unit="GB/s",
        varve=samples("Varve", [ours for ours, _ in figures]),
        limit=samples("read + crc32c", [theirs for _, theirs in figures]),
        target=target,
        note=note if target else f"{note}; opening syncs what it found, so the disk decides",
    )


def _write_back(files: list[Path]) -> None:
    """What the operating system does by itself within half a minute."""
    for path in files:
        fd = os.open(path, os.O_RDWR)
        os.fdatasync(fd)
        os.close(fd)


# --- the process ------------------------------------------------------------------------------


def memory_rows(context: Context) -> list[Row]:
    total_bytes = context.pick(8, 1) * GIB
    path = fresh_path(context.directory, "memory")
    used = measure_memory(path, total_bytes)
    shutil.rmtree(path)
    return [
        Row(
            title=f"peak memory, append and scan of {total_bytes // GIB} GiB",
            durability="os",
            unit="MB",
            varve=samples("Varve", [used.peak_mb]),
            target=Target(bound=400.0),
            is_lower_better=True,
            note=(
                f"one run; pyarrow included; appended at {used.append_gb_per_s:.2f} GB/s, "
                f"scanned at {used.scan_gb_per_s:.2f} GB/s"
            ),
        )
    ]


def import_rows(context: Context) -> list[Row]:
    runs = max(context.runs, 5)

    def row(title: str, statement: str, target: Target | None) -> Row:
        return measure_row(
            title,
            lambda: import_seconds(statement),
            runs=runs,
            durability="-",
            unit="s",
            peers={"import sqlite3": lambda: import_seconds("import sqlite3")},
            target=target,
            is_lower_better=True,
        )

    return [
        row("import varve", "import varve", Target(bound=0.2)),
        row("import varve, and all that varve.open needs", "import varve; varve.open", None),
    ]

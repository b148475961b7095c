"""Reading from the page cache: as Arrow, as Python records, one record at a random offset."""

import random
import shutil
from functools import partial
from pathlib import Path

from bench.embedded_peers import LMDB, PEER_LOGS, LmdbLog, peer_log, scan_rate
from bench.measure import (
    Context,
    Latency,
    Row,
    Stopwatch,
    Target,
    latency_of,
    latency_rows,
    measure_in_turns,
    measure_row,
    seconds_of,
)
from bench.peers import SQLITE, SqliteLog, pread_latency, read_seconds
from bench.workload import (
    Values,
    fresh_path,
    log_files,
    make_values,
    opened,
    prepare_log,
)
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import KIB, MIB


def scan_large_rows(context: Context) -> list[Row]:
    values = make_values(KIB)
    records = context.pick(256, 128) * MIB // KIB
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
                f"{SQLITE}, Python rows": lambda: (
                    records // 4 * values.size / seconds_of(peer.scan) / 1e9
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
            lambda: log.end_offset / seconds_of(read) / 1e6,
            runs=context.runs,
            durability="-",
            unit="M records/s",
            peers={SQLITE: lambda: records // 4 / seconds_of(peer.scan) / 1e6}
            | {name: partial(_scan_millions, context, name, values, records) for name in PEER_LOGS},
            target=Target(bound=1.0),
            note=f"{log.end_offset:,} records",
        )
    shutil.rmtree(path)
    return [row]


def _scan_millions(context: Context, name: str, values: Values, records: int) -> float:
    """Million records/s; fewer records of persist-queue, which takes long to fill."""
    wanted = records // (4 if name == LMDB else 40)
    lists = [[value for _, value in pairs] for pairs in values.calls(wanted)]
    return scan_rate(PEER_LOGS[name], fresh_path(context.directory, "peer"), lists)() / 1e6


def _sqlite_copy(context: Context, values: Values, records: int) -> "_FilledTable":
    return _FilledTable(fresh_path(context.directory, "sqlite"), values, records)


class _FilledTable:
    """A SQLite table of `records` values, deleted after the `with`."""

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


def random_read_rows(context: Context) -> list[Row]:
    values = make_values(KIB)
    per_segment = context.pick(2048, 1024)
    records = 100 * per_segment
    path = prepare_log(context.directory, values, records, {"segment.records": per_segment})
    return _random_reads(
        context,
        "random read, 100 segments",
        path,
        values,
        records,
        note=f"one record of {records:,}, 1 KiB values in batches of 256 KiB, warm",
    )


def random_sole_rows(context: Context) -> list[Row]:
    values = make_values(KIB)
    records = context.pick(50_000, 20_000)
    config = {"segment.records": records // 100}
    path = prepare_log(context.directory, values, records, config, one_by_one=True)
    return _random_reads(
        context,
        "random read, one record in a batch",
        path,
        values,
        records,
        note=f"one record of {records:,}, 1 KiB values, each appended by itself, warm",
    )


def _random_reads(
    context: Context, title: str, path: Path, values: Values, records: int, *, note: str
) -> list[Row]:
    offsets = random.Random(7).choices(range(records), k=context.pick(10_000, 4_000))
    first = log_files(path)[0]
    positions = [o % (first.stat().st_size // KIB - 1) * KIB for o in offsets]
    with (
        opened(path) as log,
        _sqlite_copy(context, values, records) as peer,
        peer_log(LmdbLog, fresh_path(context.directory, "peer")) as tree,
    ):
        assert isinstance(tree, LmdbLog)
        for pairs in values.calls(records):
            tree.append_many([value for _, value in pairs])
        segment_count = len(log.segments())
        assert segment_count >= 100, segment_count

        def cordwood() -> Latency:
            return latency_of([partial(_read_one, log, offset) for offset in offsets])

        figures = measure_in_turns(
            {
                "Cordwood": cordwood,
                "os.pread at a known place": lambda: pread_latency(first, positions, KIB),
                SQLITE: lambda: latency_of([partial(peer.read, o) for o in offsets]),
                LMDB: lambda: latency_of([partial(tree.read, o) for o in offsets]),
            },
            runs=context.runs,
        )
    shutil.rmtree(path)
    return latency_rows(
        title, "-", figures, limit="os.pread at a known place", p50_us=40, p99_us=1000, note=note
    )


def _read_one(log: PartitionLog, offset: int) -> None:
    record = log.get(offset)
    assert record is not None, offset
    assert record.offset == offset, (record.offset, offset)

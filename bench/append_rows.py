"""Appending: many records per call, one per call, and one per call that is synced."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from bench.embedded_peers import (
    LMDB,
    PEER_LOGS,
    PERSIST_QUEUE,
    append_latency,
    append_many_seconds,
    synced_appends_per_second,
)
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
)
from bench.peers import (
    SQLITE,
    group_commits_per_second,
    sqlite_log,
    synced_writes_per_second,
    write_latency,
    write_seconds,
)
from bench.workload import DISK, OS, Values, fresh_path, make_values, new_log
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import KIB, MIB

_THREADS = 64


def append_many_rows(context: Context) -> list[Row]:
    large, small = make_values(KIB), make_values(100)
    total_bytes = context.pick(256, 128) * MIB
    rate = measure_row(
        "append_many, 1 KiB values",
        lambda: total_bytes / _append_seconds(context, large, total_bytes) / 1e9,
        runs=context.runs,
        durability="os",
        unit="GB/s",
        limit=("os.write of 1 MiB", _writing_rate(context, large, total_bytes)),
        peers={SQLITE: _sqlite_rate(context, large, total_bytes // 4)}
        | _peer_rates(context, large, total_bytes // 4),
        target=Target(bound=0.5, is_ratio=True),
        note=f"{total_bytes // MIB} MiB of different values, 1 MiB in each call",
    )
    records = context.pick(3_000_000, 1_000_000)
    million = measure_row(
        "append_many, 100 B values",
        lambda: records / _append_seconds(context, small, records * 100) / 1e6,
        runs=context.runs,
        durability="os",
        unit="M records/s",
        peers={
            SQLITE: lambda: _sqlite_rate(context, small, records * 25)() * 1e9 / 100 / 1e6,
        }
        | {
            name: partial(_per_record, rate, 100)
            for name, rate in _peer_rates(context, small, records * 25).items()
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
    """GB/s of values inserted, one transaction per call."""

    def rate() -> float:
        path = fresh_path(context.directory, "sqlite")
        with sqlite_log(path, durability="os") as log, Stopwatch() as watch:
            for pairs in values.calls(total_bytes // values.size):
                log.append_many([value for _, value in pairs])
        return total_bytes / watch.seconds / 1e9

    return rate


# Of what SQLite and LMDB get: persist-queue writes a second file for each record.
_FEWER: Final = {PERSIST_QUEUE: 64}


def _peer_rates(
    context: Context, values: Values, total_bytes: int
) -> dict[str, Callable[[], float]]:
    """GB/s of values appended to the other peers, one call per list."""

    def rate(name: str) -> float:
        records = total_bytes // values.size // _FEWER.get(name, 1)
        lists = [[value for _, value in pairs] for pairs in values.calls(records)]
        path = fresh_path(context.directory, "peer")
        seconds = append_many_seconds(PEER_LOGS[name], path, lists)
        return sum(map(len, lists)) * values.size / seconds / 1e9

    return {name: partial(rate, name) for name in PEER_LOGS}


def _per_record(rate: Callable[[], float], size: int) -> float:
    """Million records/s from GB/s."""
    return rate() * 1e9 / size / 1e6


def append_rows(context: Context) -> list[Row]:
    value, count = bytes(100), context.pick(60_000, 30_000)

    def cordwood() -> Latency:
        with new_log(context.directory, OS) as log:
            return latency_of([partial(log.append, value)] * count)

    def sqlite() -> Latency:
        with sqlite_log(fresh_path(context.directory, "sqlite"), durability="os") as log:
            return latency_of([partial(log.append, value)] * (count // 3))

    def peer(name: str) -> Latency:
        path = fresh_path(context.directory, "peer")
        return append_latency(PEER_LOGS[name], path, value, count // 10)

    figures = measure_in_turns(
        {
            "Cordwood": cordwood,
            "os.write": lambda: write_latency(context.directory / "plain", value, count),
            SQLITE: sqlite,
        }
        | {name: partial(peer, name) for name in PEER_LOGS},
        runs=context.runs,
    )
    return latency_rows(
        "append of one 100 B value", "os", figures, limit="os.write", p50_us=25, p99_us=1000
    )


def append_to_disk_rows(context: Context) -> list[Row]:
    value, seconds = bytes(100), 0.5 if context.is_quick else 2.0

    def cordwood() -> float:
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
            cordwood,
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
                f"{SQLITE}, 1 thread": sqlite,
                f"{LMDB}, 1 thread": lambda: synced_appends_per_second(
                    fresh_path(context.directory, "peer"), value, seconds
                ),
            },
            target=Target(bound=20.0, is_ratio=True),
            note=f"each thread waits until its record is on the disk; {seconds} s",
        )
    ]


def _threaded_rate(log: PartitionLog, value: bytes, seconds: float) -> float:
    """Acknowledged records/s of many threads that append one record at a time."""
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

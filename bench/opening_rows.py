"""Opening a store: after it was closed, and after its writer was killed."""

import os
import shutil
from pathlib import Path

from bench.child import kill_a_writer
from bench.measure import Context, Row, Stopwatch, Target, measure_row, samples, seconds_of
from bench.observed_fs import CountingFileSystem
from bench.peers import read_seconds
from bench.workload import Values, fresh_path, log_files, log_of, make_values, prepare_log
from cordwood.log.store.store import Store, StoreSetup
from cordwood.quantities import KIB, MIB

_BATCH_BYTES = 512 * KIB  # recovery may begin with one synced batch, and reads headers


def open_rows(context: Context) -> list[Row]:
    values = make_values(100, pool_bytes=MIB)
    few = Values(values.size, [pairs[:100] for pairs in values.lists])
    path = prepare_log(context.directory, few, 1000 * 100, {"segment.records": 100})
    count = len(log_files(path))
    assert count == 1000, count

    def cordwood() -> float:
        with Stopwatch() as watch:
            store = Store([str(path)], StoreSetup())
        assert log_of(store).end_offset == 1000 * 100
        store.close()
        return watch.seconds

    row = measure_row(
        "open of 1,000 segments, cleanly closed",
        cordwood,
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
    return seconds_of(lambda: [found.stat() for found in log_files(path)[0].parent.iterdir()])


def recover_rows(context: Context) -> list[Row]:
    unsynced_bytes = context.pick(512, 192) * MIB
    read_below: list[float] = []
    read_twice: list[float] = []

    def recovery(*, is_written_back: bool) -> tuple[float, float]:
        """GB/s of opening after a kill, and of reading and verifying the same bytes."""
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
            cordwood=samples("Cordwood", read_below),
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
        cordwood=samples("Cordwood", [ours for ours, _ in figures]),
        limit=samples("read + crc32c", [theirs for _, theirs in figures]),
        target=target,
        note=note if target else f"{note}; opening syncs what it found, so the disk decides",
    )


def _write_back(files: list[Path]) -> None:
    """Write back dirty pages, as the operating system does within half a minute."""
    for path in files:
        fd = os.open(path, os.O_RDWR)
        os.fdatasync(fd)
        os.close(fd)

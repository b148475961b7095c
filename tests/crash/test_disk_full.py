"""A disk without a byte left: appends are refused, reading and deleting go on, then appends too.

On a real file system where this machine lets us mount one, and on the simulated one.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from cordwood.clock import SystemClock
from cordwood.errors import DiskFullError
from cordwood.format.file_names import CLEAN_SHUTDOWN
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.topics.log_directory import read_checkpoints
from cordwood.log.topics.process_state import is_split_among, split_state, state_path
from cordwood.quantities import KIB, MIB
from cordwood.storage.files import FileSystem, RealFileSystem, write_all
from fakes.simulated_fs import SimulatedFileSystem

pytestmark = pytest.mark.faults

DISK_BYTES: Final = 4 * MIB
CONFIG: Final = {"internal.segment.bytes": 256 * 1024, "file.delete.delay.ms": 0}


@dataclass
class SmallDisk:
    fs: FileSystem
    path: str

    def open(self, *, free_bytes_min: int = 0) -> Store:
        setup = StoreSetup(
            fs=self.fs,
            clock=SystemClock(),
            has_housekeeping=False,
            free_bytes_min=free_bytes_min,
        )
        return Store([self.path], setup)

    def fill(self) -> None:
        """Take what is left, to the last byte."""
        file = self.fs.create(f"{self.path}.filler", exclusive=False)
        size, step = 0, MIB
        while step:
            try:
                size += file.write_at(size, b"x" * step)
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
                step //= 2
        file.close()

    def reserve(self) -> None:
        """Take some room that `make_room` gives back."""
        file = self.fs.create(f"{self.path}.reserve")
        write_all(file, 0, b"x" * 512 * KIB)
        file.close()

    def make_room(self) -> None:
        self.fs.remove(f"{self.path}.reserve")


@pytest.fixture(params=["tmpfs", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    if request.param == "simulated":
        yield SmallDisk(
            SimulatedFileSystem(capacity_bytes=DISK_BYTES, clock=SystemClock()), "/data"
        )
        return
    with mounted(tmp_path / "disk") as root:
        yield SmallDisk(RealFileSystem(), str(root / "data"))


@contextlib.contextmanager
def mounted(root: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    root.mkdir()
    options = f"size={DISK_BYTES}"
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(root)], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if mount.returncode != 0:
        pytest.skip(f"this machine mounts no tmpfs: {mount.stderr.strip()}")
    try:
        yield root
    finally:
        gc.collect()  # an error that a test looked at may hold a frame, and that a file
        if subprocess.run(["umount", str(root)], capture_output=True, check=False).returncode:
            subprocess.run(["umount", "--lazy", str(root)], check=True)


def log_of(store: Store, topic: str) -> PartitionLog:
    log = store.topic(topic).partition(0)
    assert isinstance(log, PartitionLog)
    return log


def append_until_full(log: PartitionLog) -> list[bytes]:
    """What was acknowledged before the disk was full."""
    values: list[bytes] = []
    while len(values) < 10_000:
        value = b"%d " % len(values) + b"v" * 3000
        try:
            log.append(value)
        except DiskFullError:
            return values
        values.append(value)
    raise AssertionError("the disk has no end")


def values_in(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.read()]


def test_appends_are_refused_and_reads_go_on(disk: SmallDisk) -> None:
    with disk.open() as store:
        store.create_topic("orders", config=CONFIG)
        log = log_of(store, "orders")

        values = append_until_full(log)
        disk.fill()

        for _ in range(3):
            with pytest.raises(DiskFullError):
                log.append(b"x" * 5000)
        assert log.state.failure is None
        assert values_in(log) == values


def test_deleting_makes_room_and_appends_resume_without_a_restart(disk: SmallDisk) -> None:
    with disk.open() as store:
        store.create_topic("orders", config=CONFIG)
        log = log_of(store, "orders")
        values = append_until_full(log)
        disk.fill()
        half = len(values) // 2

        start = log.delete_before(half)
        appended = [log.append(b"later %d" % n).offset for n in range(20)]

        assert start == half
        assert appended == list(range(len(values), len(values) + 20))
        assert values_in(log) == values[half:] + [b"later %d" % n for n in range(20)]


def test_deleting_a_topic_makes_room_for_another(disk: SmallDisk) -> None:
    with disk.open() as store:
        store.create_topic("orders", config=CONFIG)
        store.create_topic("payments", config=CONFIG)
        append_until_full(log_of(store, "orders"))
        disk.fill()

        store.delete_topic("orders")
        appended = log_of(store, "payments").append(b"there is room")

        assert appended.offset == 0
        assert store.topics() == ["payments"]


def test_a_topic_makes_room_at_once_though_deleted_files_usually_wait(disk: SmallDisk) -> None:
    config = {key: value for key, value in CONFIG.items() if key != "file.delete.delay.ms"}
    with disk.open() as store:
        store.create_topic("orders", config=config)
        store.create_topic("payments", config=config)
        append_until_full(log_of(store, "orders"))
        disk.fill()

        store.delete_topic("orders")
        store.maintain()

        assert log_of(store, "payments").append(b"there is room").offset == 0


def test_a_store_opens_on_a_full_disk(disk: SmallDisk) -> None:
    with disk.open() as store:
        store.create_topic("orders", config=CONFIG)
        values = append_until_full(log_of(store, "orders"))
        disk.fill()

    with disk.open() as store:
        log = log_of(store, "orders")

        assert values_in(log) == values
        assert store.damages() == []
        log.delete_before(len(values) // 2)
        assert log.append(b"later").offset == len(values)


PROCESSES: Final = ["keeper", "worker-0", "worker-1"]


def share_among_processes(disk: SmallDisk) -> list[bytes]:
    """Leave a directory as several processes do, and what is in it. The first 20 are deleted."""
    values = [b"%d " % number + b"v" * 3000 for number in range(300)]
    with disk.open() as store:
        store.create_topic("orders", config=CONFIG)
        log = log_of(store, "orders")
        for value in values:
            log.append(value)
        log.delete_before(20)
    split_state(disk.fs, disk.path, PROCESSES, lambda name: f"worker-{name[1] % 2}")
    return values[20:]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_store_that_processes_shared_opens_on_a_full_disk(
    disk: SmallDisk, *, is_clean: bool
) -> None:
    values = share_among_processes(disk)
    if not is_clean:
        disk.fs.remove(f"{state_path(disk.path, 'worker-0')}/{CLEAN_SHUTDOWN}")
    disk.fill()

    for life in range(2):  # what the first one leaves is not taken for clean
        with disk.open() as store:
            assert store.directories.status()[0].was_clean == (is_clean and life == 0)
            assert values_in(log_of(store, "orders")) == values
            assert store.damages() == []
            disk.fill()
    assert is_split_among(disk.fs, disk.path, PROCESSES)
    assert not is_split_among(disk.fs, disk.path, PROCESSES[:2])
    disk.fs.remove(f"{disk.path}.filler")

    with disk.open() as store:
        log_of(store, "orders").append(b"later")
    assert not is_split_among(disk.fs, disk.path, PROCESSES)
    with disk.open() as store:
        assert store.directories.status()[0].was_clean
        assert values_in(log_of(store, "orders")) == [*values, b"later"]


def test_what_processes_left_is_merged_before_a_newer_checkpoint_is_written(
    disk: SmallDisk,
) -> None:
    """Otherwise the older one of the processes would count at the next start."""
    values = share_among_processes(disk)
    disk.fill()

    with disk.open() as store:
        log = log_of(store, "orders")
        half = log.delete_before(160)
        assert log.append(b"later").offset == 300
        log.sync()
        store.maintain()

    assert not is_split_among(disk.fs, disk.path, PROCESSES)
    assert read_checkpoints(disk.fs, disk.path).recovery_points[("orders", 0)] == 301
    with disk.open() as store:
        assert values_in(log_of(store, "orders")) == [*values[half - 20 :], b"later"]


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_rolls_syncs_and_checkpoints_without_a_free_byte_fail_no_log(
    disk: SmallDisk, durability: str
) -> None:
    with disk.open() as store:
        config = {**CONFIG, "durability": durability, "index.interval.bytes": 0}
        store.create_topic("orders", config=config)
        log = log_of(store, "orders")
        disk.reserve()
        values = append_until_full(log)
        disk.fill()

        for _ in range(3):
            with contextlib.suppress(DiskFullError):
                log.roll()
            log.sync()
            with contextlib.suppress(DiskFullError):
                store.maintain()
            with pytest.raises(DiskFullError):
                log.append(b"x" * 5000)
        assert log.state.failure is None
        disk.make_room()

        assert log.append(b"later").offset == len(values)
        store.maintain()
        assert log.state.recovery_point == log.state.end
        assert values_in(log) == [*values, b"later"]


def test_a_topic_that_a_full_disk_refused_does_not_exist_after_a_restart(disk: SmallDisk) -> None:
    with disk.open() as store:
        store.create_topic("orders", config=CONFIG)
        disk.reserve()
        values = append_until_full(log_of(store, "orders"))
        disk.fill()

        with pytest.raises(DiskFullError, match="creating topic 'payments'"):
            store.create_topic("payments", partitions=50)
        assert store.topics() == ["orders"]

    with disk.open() as store:
        assert store.topics() == ["orders"]
        assert values_in(log_of(store, "orders")) == values
        disk.make_room()
        store.create_topic("payments").append(b"now there is room")
        log_of(store, "orders").append(b"here too")

    with disk.open() as store:
        assert store.topics() == ["orders", "payments"]
        assert store.damages() == []


def test_a_commit_without_a_free_byte_is_refused_and_succeeds_later(disk: SmallDisk) -> None:
    with disk.open() as store:
        store.create_topic("orders", config=CONFIG)
        disk.reserve()
        append_until_full(log_of(store, "orders"))
        disk.fill()

        for _ in range(2):
            with pytest.raises(DiskFullError):
                store.group("g").commit({("orders", 0): 7})
        disk.make_room()
        store.group("g").commit({("orders", 0): 8})

        assert store.group("g").committed("orders", 0) == 8


def test_a_floor_refuses_appends_before_the_disk_is_full(disk: SmallDisk) -> None:
    with disk.open(free_bytes_min=MIB) as store:
        store.create_topic("orders", config={**CONFIG, "file.delete.delay.ms": 60_000})
        log = log_of(store, "orders")
        while disk.fs.free_bytes(os.path.dirname(disk.path)) >= MIB:
            log.append(b"v" * 3000)
        store.maintain()

        with pytest.raises(DiskFullError, match="free"):
            log.append(b"v")
        log.delete_before(log.high_watermark // 2 + 100)
        store.maintain()

        assert log.append(b"v").offset == log.high_watermark - 1

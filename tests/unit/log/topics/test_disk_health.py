"""A disk that fails: its directory goes offline and says so, and the other directories go on."""

import errno
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.errors import DiskFullError, LogFailedError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state import disk_health
from cordwood.log.partition.state.disk_health import DiskHealth
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.topics.log_directory import HANGS_AFTER_S, DirectoryStatus
from fakes.gated_fs import GatedFileSystem
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

FAILING = [errno.EIO, errno.EROFS, errno.ENODEV, errno.ESTALE]
HARMLESS = [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENOENT, errno.EINTR]


class TwoDisks:
    """A store over two directories, with a partition of one topic in each."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fs = SimulatedFileSystem(clock=self.clock)
        self.store = open_store(self.fs, clock=self.clock, directories=("/bad", "/good"))
        self.topic = self.store.create_topic("events", partitions=4)
        self.bad = self._in("/bad")
        self.good = self._in("/good")

    def _in(self, directory: str) -> list[PartitionLog]:
        return [log for log in self.topic.partitions if log.directory.startswith(directory)]

    def break_disk(self, number: int, operations: set[str]) -> None:
        def watch(operation: str, path: str) -> None:
            if operation in operations and path.startswith("/bad"):
                raise OSError(number, os.strerror(number), path)

        self.fs.watch = watch

    def status(self, path: str) -> DirectoryStatus:
        return next(s for s in self.store.directories.status() if s.path == path)


@pytest.fixture
def disks() -> TwoDisks:
    return TwoDisks()


@pytest.mark.parametrize("operations", [{"write_at"}, {"sync"}], ids=["writes", "syncs"])
@pytest.mark.parametrize("number", FAILING)
def test_a_failing_disk_takes_its_directory_offline(
    disks: TwoDisks, number: int, operations: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    for log in disks.topic.partitions:
        log.append(b"before")
    disks.break_disk(number, operations)

    with pytest.raises((OSError, LogFailedError)):
        disks.bad[0].append(b"lost")
    disks.fs.watch = None

    for log in disks.bad:
        with pytest.raises(LogFailedError, match="/bad"):
            log.append(b"refused")
        assert [record.value for record in log.read()] == [b"before"]
    for log in disks.good:
        assert log.append(b"goes on").offset == 1
    status = disks.status("/bad")
    assert os.strerror(number) in (status.error or "")
    assert set(status.failed) == {("events", log.partition) for log in disks.bad}
    assert disks.status("/good").error is None
    assert disks.status("/good").failed == ()
    [line] = [r for r in caplog.records if "data directory /bad is offline" in r.message]
    assert line.levelno == logging.ERROR


def test_new_topics_are_placed_on_the_disks_that_work(disks: TwoDisks) -> None:
    disks.break_disk(errno.EIO, {"create", "write_at", "sync", "rename"})
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disks.bad[0].append(b"lost")

    topic = disks.store.create_topic("later", partitions=3)

    assert all(log.directory.startswith("/good") for log in topic.partitions)
    topic.append(b"goes on")
    disks.fs.watch = None


@pytest.mark.parametrize("operation", ["sync", "write_at", "create"])
def test_a_disk_that_fails_in_the_background_is_noticed(disks: TwoDisks, operation: str) -> None:
    disks.bad[0].append(b"v")
    disks.break_disk(errno.EIO, {operation})

    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disks.store.maintain()
    disks.fs.watch = None

    assert disks.status("/bad").error is not None
    assert disks.good[0].append(b"goes on").offset == 0
    disks.store.maintain()  # the directory is left alone
    disks.store.close()


@pytest.mark.parametrize("number", HARMLESS)
def test_an_error_that_passes_takes_nothing_offline(number: int) -> None:
    health = DiskHealth("/data")

    health.note_failure(OSError(number, os.strerror(number)))

    assert health.refusal is None


def test_room_does_not_bring_a_failing_disk_back() -> None:
    health = DiskHealth("/data")
    health.note_room(is_short=True, free_bytes_min=7)
    assert health.refusal is not None
    assert isinstance(health.refusal.error_for("t-0"), DiskFullError)

    health.note_failure(OSError(errno.EIO, "broken"))
    health.note_room(is_short=False, free_bytes_min=7)

    assert isinstance(health.refusal.error_for("t-0"), LogFailedError)


def test_a_directory_that_went_offline_is_recovered_by_the_next_start(disks: TwoDisks) -> None:
    disks.bad[0].append(b"kept")
    disks.break_disk(errno.EIO, {"sync"})
    with pytest.raises(LogFailedError):
        disks.bad[0].append(b"unknown")
    disks.store.close()
    disks.fs.watch = None

    with open_store(disks.fs, clock=disks.clock, directories=("/bad", "/good")) as store:
        assert [s.error for s in store.directories.status()] == [None, None]
        log = store.topic("events").partition(disks.bad[0].partition)
        assert next(iter(log.read())).value == b"kept"
        log.append(b"again")


# --- a disk that hangs -----------------------------------------------------------------------


class HangingDisk:
    """A store over two real directories; log files in the first one wait at gates."""

    def __init__(self, root: Path) -> None:
        self.fs = GatedFileSystem("/hangs/")
        self.clock = ManualClock()
        setup = StoreSetup(fs=self.fs, clock=self.clock, free_bytes_min=0, has_housekeeping=False)
        self.store = Store([str(root / "hangs"), str(root / "works")], setup)
        topic = self.store.create_topic("events", partitions=2)
        by_place = {"/hangs/" in log.directory: log for log in topic.partitions}
        self.hangs, self.works = by_place[True], by_place[False]

    def in_background(self, run: str) -> threading.Thread:
        thread = threading.Thread(target=self.hangs.append, args=(run.encode(),), daemon=True)
        thread.start()
        return thread


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[HangingDisk]:
    disk = HangingDisk(tmp_path)
    yield disk
    disk.fs.syncs.open()
    disk.store.close()


def test_a_directory_that_hangs_is_reported_and_delays_no_other(hanging: HangingDisk) -> None:
    with hanging.fs.syncs.closed() as gate:
        waiting = hanging.in_background("slow")
        gate.await_someone()
        hanging.clock.advance(int(HANGS_AFTER_S * 1000) + 1)

        errors = [status.error for status in hanging.store.directories.status()]
        assert "has not responded" in (errors[0] or "")
        assert errors[1] is None
        for number in range(3):
            assert hanging.works.append(b"quick").offset == number
        works = hanging.store.data_dirs[1]
        hanging.clock.advance(120_000)
        hanging.store.housekeeping.run_due(works)  # none of its tasks waits
        hanging.store.housekeeping.stop()
    waiting.join(30)

    assert hanging.store.directories.status()[0].error is None
    assert hanging.works.state.recovery_point == 3
    assert hanging.hangs.high_watermark == 1


def test_the_tasks_of_each_directory_have_a_thread_of_their_own(tmp_path: Path) -> None:
    with Store([str(tmp_path / "a"), str(tmp_path / "b")], StoreSetup()):
        names = {thread.name for thread in threading.enumerate()}

        for path in (tmp_path / "a", tmp_path / "b"):
            assert f"cordwood-housekeeping {path}" in names


def test_a_disk_that_fails_while_its_room_is_noted_stays_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    health = DiskHealth("/data")
    health.note_room(is_short=True, free_bytes_min=7)

    def fail(*args: object) -> None:
        health.note_failure(OSError(errno.EIO, "broken"))

    monkeypatch.setattr(disk_health.logger, "log", fail)
    health.note_room(is_short=False, free_bytes_min=7)

    assert health.failure is not None


def test_whoever_watches_a_disk_hears_once_that_it_failed() -> None:
    health = DiskHealth("/data")
    heard: list[OSError] = []
    health.when_failed = heard.append

    health.note_failure(OSError(errno.ENOSPC, "full"))
    health.note_failure(OSError(errno.EIO, "broken"))
    health.note_failure(OSError(errno.EIO, "broken again"))

    assert [error.errno for error in heard] == [errno.EIO]

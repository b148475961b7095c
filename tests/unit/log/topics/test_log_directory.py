"""One data directory: its lock, its checkpoints, its marks, and what is unlinked later."""

import errno

import pytest

from cordwood.errors import DirectoryLockedError
from cordwood.log.topics.log_directory import LogDirectory, read_checkpoints
from cordwood.quantities import Offset
from cordwood.storage.disk.flusher import InlineFlusher
from cordwood.storage.files import read_whole, replace_file
from cordwood.storage.small_files.checkpoint_file import read_offset_checkpoint
from fakes.client_batches import NOW
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, open_store

PATH = "/data"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def fs(clock: ManualClock) -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=clock)


def directory(fs: SimulatedFileSystem, clock: ManualClock) -> LogDirectory:
    return LogDirectory(fs, PATH, clock, InlineFlusher())


def test_opening_makes_the_directory_and_says_whose_it_is(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    opened = directory(fs, clock)

    opened.open("my-cluster")

    assert opened.meta is not None
    assert opened.meta.cluster_id == "my-cluster"
    assert not opened.was_clean
    text = read_whole(fs, f"{PATH}/meta.properties", limit=1000).decode()
    assert "cluster.id=my-cluster" in text
    assert "version=1" in text


def test_whose_it_is_survives(fs: SimulatedFileSystem, clock: ManualClock) -> None:
    first = directory(fs, clock)
    first.open(None)
    first.close(is_clean=True)

    second = directory(fs, clock)
    second.open("another")

    assert second.meta == first.meta


def test_a_directory_has_one_owner_at_a_time(fs: SimulatedFileSystem, clock: ManualClock) -> None:
    first = directory(fs, clock)
    first.open(None)

    with pytest.raises(DirectoryLockedError):
        directory(fs, clock).open(None)
    first.release()
    directory(fs, clock).open(None)


def test_an_open_that_fails_gives_the_lock_back(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    fs.fail_next("rename", OSError(errno.EIO, "injected"))
    with pytest.raises(OSError, match="injected"):
        directory(fs, clock).open(None)

    directory(fs, clock).open(None)


@pytest.mark.parametrize("is_clean", [True, False])
def test_only_a_clean_close_leaves_the_mark_and_opening_takes_it(
    fs: SimulatedFileSystem, clock: ManualClock, is_clean: bool
) -> None:
    first = directory(fs, clock)
    first.open(None)
    first.close(is_clean=is_clean)

    second = directory(fs, clock)
    second.open(None)
    third_sees = fs.exists(f"{PATH}/.kafka_cleanshutdown")

    assert second.was_clean == is_clean
    assert not third_sees


def test_a_close_whose_checkpoint_fails_leaves_no_mark_and_no_lock(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    first = directory(fs, clock)
    first.open(None)
    fs.fail_next("create", OSError(errno.EIO, "injected"))

    with pytest.raises(OSError, match="injected"):
        first.close(is_clean=True)

    second = directory(fs, clock)
    second.open(None)
    assert not second.was_clean


def test_checkpoints_are_kafka_s_files(fs: SimulatedFileSystem) -> None:
    store = open_store(fs)
    for name in ("events", "other"):
        store.create_topic(name, config={"internal.segment.bytes": 200})
        for number in range(5):
            log_of(store, name).append(b"%d" % number)
    log_of(store).delete_before(1)
    store.maintain()

    recovery = read_offset_checkpoint(fs, PATH, "recovery-point-offset-checkpoint")
    marks = read_offset_checkpoint(fs, PATH, "replication-offset-checkpoint")
    starts = read_offset_checkpoint(fs, PATH, "log-start-offset-checkpoint")

    assert recovery == marks == {("events", 0): 5, ("other", 0): 5}
    assert starts == {("events", 0): 1}


def test_a_deleted_topic_leaves_the_checkpoints_before_a_new_one_of_its_name_begins(
    fs: SimulatedFileSystem,
) -> None:
    store = open_store(fs)
    store.create_topic("events").append_many([(None, b"x")] * 5)
    store.maintain()
    store.delete_topic("events")

    store.create_topic("events").append(b"y")

    points = read_offset_checkpoint(fs, PATH, "recovery-point-offset-checkpoint")
    assert points.get(("events", 0), 0) <= 1


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
@pytest.mark.parametrize("content", [b"", b"junk", b"0\n5\n", b"\xff\xfe", b"1\n0\n"])
def test_an_unreadable_checkpoint_is_no_checkpoint(
    fs: SimulatedFileSystem, name: str, content: bytes
) -> None:
    fs.make_directory(PATH)
    replace_file(fs, f"{PATH}/{name}", content)

    found = read_checkpoints(fs, PATH)

    assert (found.recovery_points, found.log_starts) == ({}, {})


def test_what_is_to_be_deleted_waits_its_time(fs: SimulatedFileSystem, clock: ManualClock) -> None:
    opened = directory(fs, clock)
    opened.open(None)
    fs.create(f"{PATH}/file.deleted")
    fs.make_directory(f"{PATH}/topic-0.0123-delete")
    fs.create(f"{PATH}/topic-0.0123-delete/file")
    opened.delete_later([f"{PATH}/file.deleted", f"{PATH}/topic-0.0123-delete"], 1000)
    opened.delete_later([f"{PATH}/missing"], 500)

    clock.advance(999)
    early = opened.delete_due()
    clock.advance(1)
    late = opened.delete_due()

    assert (early, late) == (1, 2)
    assert not fs.exists(f"{PATH}/file.deleted")
    assert not fs.exists(f"{PATH}/topic-0.0123-delete")


def test_what_cannot_be_unlinked_stops_nothing(fs: SimulatedFileSystem, clock: ManualClock) -> None:
    opened = directory(fs, clock)
    opened.open(None)
    for name in ("a", "b"):
        fs.create(f"{PATH}/{name}")
    fs.fail_next("remove", OSError(errno.EACCES, "injected"))

    opened.delete_later([f"{PATH}/a", f"{PATH}/b"], 0)

    assert fs.exists(f"{PATH}/a")
    assert not fs.exists(f"{PATH}/b")


def test_recovery_points_are_those_of_a_log_that_is_behind(fs: SimulatedFileSystem) -> None:
    store = open_store(fs)
    store.create_topic("events", config={"durability": "os"})
    log_of(store).append(b"x")
    store.create_topic("other").append(b"y")
    log_of(store, "other").truncation.truncate_to(0)

    points = read_offset_checkpoint(fs, PATH, "recovery-point-offset-checkpoint")

    assert points[("events", 0)] == 0, "not synced, so not to be trusted"
    assert points[("other", 0)] == Offset(0)

"""Partitions that were offline at the start come back by themselves."""

import errno
import os

import pytest

from cordwood.errors import StorageError
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import Store
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

BROKEN = "/data/events-1"


@pytest.fixture
def fs() -> SimulatedFileSystem:
    """A store that was closed, with records in three partitions."""
    found = SimulatedFileSystem(clock=ManualClock())
    with open_store(found) as store:
        topic = store.create_topic("events", partitions=3)
        for number in range(3):
            topic.append(b"%d" % number, partition=number)
        store.publish("app", 1, {("events", 1): [(None, b"published")]})
    return found


def open_with(fs: SimulatedFileSystem, clock: ManualClock, number: int) -> Store:
    """Open while the files of one partition cannot be opened."""

    def watch(operation: str, path: str) -> None:
        if path.startswith(BROKEN) and operation in {"map_words", "open_write", "create"}:
            raise OSError(number, os.strerror(number), path)

    fs.watch = watch
    return open_store(fs, clock=clock)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_a_partition_comes_back_when_it_can_be_opened(fs: SimulatedFileSystem, number: int) -> None:
    clock = ManualClock()
    with open_with(fs, clock, number) as store:
        topic = store.topic("events")
        store.maintain()
        assert not topic.has_partition(1)
        fs.watch = None

        clock.advance(10_000)
        store.maintain()

        assert [r.value for r in topic.partition(1).read()] == [b"1", b"published"]
        assert topic.append(b"more", partition=1).offset == 2
        assert store.directories.status()[0].offline == ()
        assert len(topic.partitions) == 3


def test_offline_partitions_are_never_left_out_in_silence(fs: SimulatedFileSystem) -> None:
    with open_with(fs, ManualClock(), errno.EMFILE) as store:
        topic = store.topic("events")

        with pytest.raises(StorageError, match="events-1 is offline"):
            topic.partitions  # noqa: B018

        assert [log.partition for log in topic.opened_partitions] == [0, 2]
        assert topic.append(b"goes on", partition=0).offset == 1
        fs.watch = None


def test_a_topic_that_was_deleted_meanwhile_stays_deleted(fs: SimulatedFileSystem) -> None:
    clock = ManualClock()
    with open_with(fs, clock, errno.EMFILE) as store:
        fs.watch = None
        store.delete_topic("events")
        store.create_topic("events")

        clock.advance(10_000)
        store.maintain()

        assert len(store.topic("events").partitions) == 1
        assert store.directories.status()[0].offline == ()


# --- a partition whose id or directory cannot be read ----------------------------------------


def fail_reads(fs: SimulatedFileSystem, *paths: str) -> None:
    """Let every read of these files, and every listing of these directories, fail."""

    def watch(operation: str, path: str) -> None:
        if path in paths and operation in {"open_read", "read_at", "list"}:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    fs.watch = watch


def test_one_unreadable_id_takes_its_own_partition_offline(fs: SimulatedFileSystem) -> None:
    clock = ManualClock()
    fail_reads(fs, f"{BROKEN}/partition.metadata")

    with open_store(fs, clock=clock) as store:
        topic = store.topic("events")
        assert [log.partition for log in topic.opened_partitions] == [0, 2]
        with pytest.raises(StorageError, match=r"events-1 is offline.*Input/output error"):
            topic.partition(1)
        clock.advance(10_000)
        store.maintain()
        assert not topic.has_partition(1)
        fs.watch = None

        clock.advance(400_000)
        store.maintain()

        assert [r.value for r in topic.partition(1).read()] == [b"1", b"published"]


def test_a_reader_finds_the_other_partitions_too(fs: SimulatedFileSystem) -> None:
    fail_reads(fs, f"{BROKEN}/partition.metadata")
    with ReadOnlyStore(["/data"], fs=fs, clock=ManualClock(), defaults=TopicConfig()) as store:
        topic = store.topic("events")
        assert [log.partition for log in topic.opened_partitions] == [0, 2]
        with pytest.raises(StorageError, match=r"events-1 is offline.*Input/output error"):
            topic.partition(1)
        fs.watch = None

        assert [r.value for r in store.topic("events").partition(1).read()] == [b"1", b"published"]


@pytest.mark.parametrize("unreadable", ["/data/new-0", "/data/new-0/partition.metadata"])
def test_a_new_partition_that_cannot_be_read_is_not_made_again(
    fs: SimulatedFileSystem, unreadable: str
) -> None:
    clock = ManualClock()
    store = open_store(fs)
    store.create_topic("new", partitions=2)
    store.topic("new").append(b"kept", partition=0)
    fs = fs.kill()  # the directory was not marked clean
    fail_reads(fs, unreadable)

    with open_store(fs, clock=clock) as store:
        topic = store.topic("new")
        assert topic.append(b"goes on", partition=1).offset == 0
        fs.watch = None
        clock.advance(400_000)
        store.maintain()

        assert [r.value for r in topic.partition(0).read()] == [b"kept"]


def test_a_deleted_topic_whose_files_cannot_be_read_does_not_come_back(
    fs: SimulatedFileSystem,
) -> None:
    store = open_store(fs)
    names = [name for name in fs.names("/data") if name.startswith("events-")]
    fail_renames(fs)
    store.delete_topic("events")
    fs = fs.kill()
    assert any(name in fs.names("/data") for name in names)
    fail_reads(fs, f"{BROKEN}/partition.metadata")

    with open_store(fs) as store:
        assert store.topics() == []
        fs.watch = None
    with open_store(fs) as store:
        assert store.topics() == []

    assert not any(name.startswith("events-") for name in fs.names("/data"))


def fail_renames(fs: SimulatedFileSystem) -> None:
    """The directories of deleted topics stay where they are."""

    def watch(operation: str, path: str) -> None:
        if path.startswith("/data/events-") and operation in {"rename", "remove_tree"}:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    fs.watch = watch


def test_a_directory_that_cannot_be_removed_does_not_stop_the_opening(
    fs: SimulatedFileSystem,
) -> None:
    store = open_store(fs)
    fail_renames(fs)
    store.delete_topic("events")
    fs = fs.kill()
    fail_renames(fs)

    with open_store(fs) as store:
        assert store.topics() == []
        fs.watch = None
    with open_store(fs) as store:
        assert store.topics() == []

    assert not any(name.startswith("events-") for name in fs.names("/data"))

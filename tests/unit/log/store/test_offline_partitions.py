"""Partitions that were offline at the start come back by themselves."""

import errno
import os

import pytest

from cordwood.errors import StorageError
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

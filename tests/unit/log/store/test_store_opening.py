"""Opening a store: leftovers of a crash, partitions it does not know, partitions it cannot read."""

import errno

import pytest

from cordwood.errors import (
    StorageError,
    UnknownPartitionError,
)
from cordwood.log.store.store import Store
from cordwood.storage.files import replace_file
from fakes.client_batches import NOW
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, open_store


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=ManualClock(NOW))


@pytest.fixture
def store(fs: SimulatedFileSystem) -> Store:
    return open_store(fs, clock=ManualClock(NOW))


def values(store: Store, topic: str = "events", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in store.topic(topic).partition(partition).read()]


def directories(fs: SimulatedFileSystem, path: str = DATA) -> set[str]:
    return {entry.name for entry in fs.list(path) if entry.is_directory}


def test_leftovers_of_deleted_topics_are_removed_at_the_start(
    fs: SimulatedFileSystem, store: Store
) -> None:
    store.create_topic("events").append(b"x")
    store.delete_topic("events")

    open_store(fs.kill())
    after = fs.kill()
    again = open_store(after)

    assert directories(after) == set()
    assert again.topics() == []


def test_a_store_that_could_not_be_opened_leaves_no_lock(
    fs: SimulatedFileSystem, store: Store
) -> None:
    store.create_topic("events")
    store.close()
    for name in ("cordwood-topics", "cordwood-topics.copy"):
        replace_file(fs, f"{DATA}/{name}", b"junk")

    for _ in range(2):
        with pytest.raises(StorageError, match="catalog"):
            open_store(fs)


def test_foreign_directories_do_not_disturb(fs: SimulatedFileSystem, store: Store) -> None:
    store.create_topic("events").append(b"x")
    store.close()
    for name in (
        "lost+found",
        "no separator",
        "remote-log-index-cache",
        "a-b",
        "events-0.x-future",
    ):
        fs.make_directory(f"{DATA}/{name}")
    fs.make_directory(f"{DATA}/other-3.0123456789abcdef0123456789abcdef-stray")
    fs.create(f"{DATA}/events-7")

    again = open_store(fs)

    assert again.topics() == ["events"]
    assert values(again) == [b"x"]
    assert fs.exists(f"{DATA}/lost+found")
    assert fs.exists(f"{DATA}/other-3.0123456789abcdef0123456789abcdef-stray")


def test_partitions_the_catalog_does_not_know_are_adopted(
    fs: SimulatedFileSystem, store: Store
) -> None:
    topic = store.create_topic("events", partitions=2)
    topic.append(b"x", partition=1)
    store.close()
    for name in ("cordwood-topics", "cordwood-topics.copy"):
        fs.remove(f"{DATA}/{name}")

    again = open_store(fs)

    assert again.topics() == ["events"]
    assert again.topic("events").topic_id == topic.topic_id
    assert values(again, partition=1) == [b"x"]
    assert again.topic("events").config.retention_ms is None, "nothing is deleted unasked"


def test_a_partition_that_cannot_be_read_does_not_stop_the_others(
    fs: SimulatedFileSystem, store: Store
) -> None:
    for name in ("events", "other"):
        store.create_topic(name).append(b"x")
    store.close()
    fs.fail_next("list", OSError(errno.EIO, "injected"), path_ends="events-0")

    again = open_store(fs)

    assert values(again, "other") == [b"x"]
    with pytest.raises((StorageError, UnknownPartitionError)):
        again.topic("events").append(b"y", partition=0)

"""The data directories of a store: locked, used side by side, closed or abandoned."""

import errno
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import (
    DirectoryLockedError,
    FormatError,
    LogClosedError,
    StorageError,
    UnknownPartitionError,
)
from cordwood.log.store.store import Store
from fakes.client_batches import NOW
from fakes.manual_clock import ManualClock
from fakes.own_threads import OwnThreads
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, IdleFlusher, open_store


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


# --- directories --------------------------------------------------------------------------------


def test_partitions_are_spread_over_directories() -> None:
    fs = SimulatedFileSystem()
    store = open_store(fs, directories=("/a", "/b", "/c"))

    store.create_topic("events", partitions=6)
    store.create_topic("other")

    counts = sorted(len(directories(fs, path)) for path in ("/a", "/b", "/c"))
    assert counts == [2, 2, 3]
    assert store.data_dirs == ["/a", "/b", "/c"]


def test_a_store_over_directories_comes_back_whole() -> None:
    fs = SimulatedFileSystem()
    store = open_store(fs, directories=("/a", "/b"))
    topic = store.create_topic("events", partitions=4)
    for partition in range(4):
        topic.append(b"%d" % partition, partition=partition)
    store.close()

    again = open_store(fs, directories=("/b", "/a"))

    assert [values(again, partition=n) for n in range(4)] == [[b"0"], [b"1"], [b"2"], [b"3"]]
    assert again.cluster_id == store.cluster_id


def test_a_directory_that_cannot_be_used_takes_only_its_partitions_offline() -> None:
    fs = SimulatedFileSystem()
    store = open_store(fs, directories=("/a", "/b"))
    topic = store.create_topic("events", partitions=2)
    for partition in range(2):
        topic.append(b"%d" % partition, partition=partition)
    store.close()
    fs.fail_next("lock", OSError(errno.EIO, "the disk is gone"), path_ends="/b")

    again = open_store(fs, directories=("/a", "/b"))

    lost = next(n for n in range(2) if fs.exists(f"/b/events-{n}"))
    assert values(again, partition=1 - lost) == [b"%d" % (1 - lost)]
    assert again.topic("events").partition_count == 2
    with pytest.raises((StorageError, UnknownPartitionError)):
        again.topic("events").append(b"x", partition=lost)
    again.topic("events").append(b"x", partition=1 - lost)


def test_no_directory_that_can_be_used_is_an_error() -> None:
    fs = SimulatedFileSystem()
    for path in ("/a", "/b"):
        fs.fail_next("lock", OSError(errno.EIO, "gone"), path_ends=path)

    with pytest.raises(StorageError):
        open_store(fs, directories=("/a", "/b"))


def test_a_second_store_on_the_directory_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        store.create_topic("events").append(b"x")
        with pytest.raises(DirectoryLockedError) as caught:
            cordwood.open(tmp_path)
        assert str(tmp_path) in str(caught.value)
        assert store.topic("events").append(b"y").offset == 1
    with cordwood.open(tmp_path) as again:
        assert values(again) == [b"x", b"y"]


def test_damages_are_those_of_all_logs(fs: SimulatedFileSystem, store: Store) -> None:
    for name in ("events", "other"):
        topic = store.create_topic(name)
        for number in range(3):
            topic.append(b"%d" % number)
    after = fs.kill()
    for name in ("events", "other"):
        file = after.open_write(f"{DATA}/{name}-0/{0:020}.log")
        file.write_at(40, b"\xff")

    again = open_store(after)

    assert {damage.path.split("/")[2] for damage in again.damages()} == {"events-0", "other-0"}


# --- abandoned, as by a crash --------------------------------------------------------------------


def test_what_was_appended_is_there_after_recovery(tmp_path: Path) -> None:
    store = cordwood.open(tmp_path, config={"durability": "os"})
    topic = store.create_topic("orders", partitions=2)
    for number in range(10):
        topic.append(b"%d" % number, partition=number % 2)

    store.abandon()

    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with cordwood.open(tmp_path) as again:
        assert [status.was_clean for status in again.directories.status()] == [False]
        assert [log.end_offset for log in again.topic("orders").partitions] == [5, 5]


def test_the_directory_is_free_for_another_writer_at_once(tmp_path: Path) -> None:
    first = cordwood.open(tmp_path)
    first.abandon()

    with cordwood.open(tmp_path) as second:
        second.create_topic("orders").append(b"x")


def test_an_abandoned_store_can_be_abandoned_and_closed_again(tmp_path: Path) -> None:
    store = cordwood.open(tmp_path)
    store.create_topic("orders").append(b"x")
    store.abandon()

    store.abandon()
    store.close()

    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_its_logs_take_nothing_more(tmp_path: Path) -> None:
    store = cordwood.open(tmp_path)
    topic = store.create_topic("orders")
    store.abandon()

    with pytest.raises(LogClosedError):
        topic.append(b"too late")
    with pytest.raises(LogClosedError):
        store.topics()


def test_none_of_its_threads_are_left(tmp_path: Path) -> None:
    with OwnThreads() as threads:
        store = cordwood.open(tmp_path)
        store.create_topic("orders").append(b"x")

        store.abandon()

        assert threads.names == []


def test_a_directory_that_was_closed_in_order_is_clean(tmp_path: Path) -> None:
    cordwood.open(tmp_path).close()

    with cordwood.open(tmp_path) as store:
        status = store.directories.status()

    assert [(s.was_clean, s.error, s.is_short_of_room) for s in status] == [(True, None, False)]
    assert status[0].free_bytes > 0


# --- the end ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [FormatError("injected"), ValueError("injected"), AssertionError("injected")], ids=repr
)
def test_a_log_that_cannot_be_closed_does_not_stop_the_others(error: Exception) -> None:
    fs = SimulatedFileSystem()
    flusher = IdleFlusher()
    store = open_store(fs, directories=("/a", "/b"), flusher=flusher)
    topic = store.create_topic("events", partitions=4, config={"durability": "os"})
    for partition in range(4):
        topic.append(b"x", partition=partition)
    first = topic.partition(0)
    fs.fail_next("sync", error, path_ends=f"{first.directory}/{0:020}.log")

    with pytest.raises(type(error), match="injected"):
        store.close()

    assert all(log.is_closed for log in topic.partitions)
    assert [path for path in ("/a", "/b") if fs.exists(f"{path}/.kafka_cleanshutdown")] == ["/b"]
    again = open_store(fs, directories=("/a", "/b"))
    assert [values(again, "events", n) for n in range(4)] == [[b"x"]] * 4
    assert again.damages() == []


def test_a_part_of_the_store_that_cannot_be_ended_leaves_no_lock(
    fs: SimulatedFileSystem, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_topic("events").append(b"x")

    def fail() -> None:
        raise ValueError("injected")

    monkeypatch.setattr(store.cleaner, "stop", fail)
    with pytest.raises(ValueError, match="injected"):
        store.close()

    again = open_store(fs)
    assert values(again) == [b"x"]
    assert again.directories.status()[0].was_clean

"""A store: topics over data directories, held by one writer."""

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import (
    LogClosedError,
    StorageError,
)
from cordwood.log.store.store import Store
from fakes.client_batches import NOW
from fakes.manual_clock import ManualClock
from fakes.own_threads import OwnThreads
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, open_store


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=ManualClock(NOW))


@pytest.fixture
def store(fs: SimulatedFileSystem) -> Store:
    return open_store(fs, clock=ManualClock(NOW))


def values(store: Store, topic: str = "events", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in store.topic(topic).partition(partition).read()]


# --- upkeep and the end -------------------------------------------------------------------------


def test_a_closed_store_refuses_everything_and_closing_again_is_nothing(store: Store) -> None:
    topic = store.create_topic("events")
    store.close()
    store.close()

    calls: list[Callable[[], object]] = [
        store.topics,
        lambda: store.topic("events"),
        lambda: store.create_topic("other"),
        lambda: store.delete_topic("events"),
        lambda: store.group("g"),
        store.maintain,
        lambda: topic.append(b"x"),
    ]
    for call in calls:
        with pytest.raises(LogClosedError):
            call()


def test_maintenance_moves_the_recovery_point(fs: SimulatedFileSystem, store: Store) -> None:
    topic = store.create_topic("events", config={"durability": "os"})
    topic.append(b"x")
    assert log_of(store).state.recovery_point == 0

    store.maintain()

    assert log_of(store).state.recovery_point == 1
    for seed in range(5):
        assert values(open_store(fs.crash(random.Random(seed)))) == [b"x"]


def test_one_failed_log_does_not_stop_the_others(fs: SimulatedFileSystem, store: Store) -> None:
    store.create_topic("events")
    store.create_topic("other")
    fs.fail_next("sync", OSError(errno.ENOSPC, "injected"), path_ends=f"events-0/{0:020}.log")
    with pytest.raises(StorageError):
        store.topic("events").append(b"x")

    assert store.topic("other").append(b"y").offset == 0
    store.maintain()
    store.close()
    again = open_store(fs)
    assert values(again, "other") == [b"y"]
    assert again.topic("events").append(b"z").offset in (0, 1)


def test_a_real_store_has_its_threads_and_ends_them(tmp_path: Path) -> None:
    with OwnThreads() as threads:
        with cordwood.open(tmp_path) as store:
            store.create_topic("events").append(b"x")
            running = threads.names
        left = threads.names

    assert any(name.startswith("cordwood-housekeeping") for name in running)
    assert left == []


def test_leaving_the_block_closes_the_store_cleanly(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        store.create_topic("events", partitions=2).append(b"x", partition=0)

    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with pytest.raises(LogClosedError):
        store.topics()

"""Creating, altering and deleting topics: all or nothing, also over a crash."""

import contextlib
import errno
import random
from collections.abc import Callable

import pytest

from cordwood.errors import (
    ConfigError,
    InvalidTopicNameError,
    LogClosedError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
)
from cordwood.format.small_files.partition_metadata import parse_partition_metadata
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store
from cordwood.storage.files import read_whole
from fakes.client_batches import NOW
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, log_of, open_store


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


# --- topics -------------------------------------------------------------------------------------


def test_a_new_store_has_no_topics(store: Store) -> None:
    assert store.topics() == []
    with pytest.raises(UnknownTopicError) as caught:
        store.topic("events")
    assert caught.value.topic == "events"


def test_a_topic_has_its_partitions_its_id_and_its_configuration(
    fs: SimulatedFileSystem, store: Store
) -> None:
    topic = store.create_topic(
        "events", partitions=3, config={"segment.bytes": "64MiB", "retention.ms": "7d"}
    )

    assert store.topics() == ["events"]
    assert store.topic("events") is topic
    assert (topic.partition_count, len(topic.partitions)) == (3, 3)
    assert (topic.config.segment_bytes, topic.config.retention_ms) == (64 << 20, 604_800_000)
    for number in range(3):
        text = read_whole(fs, f"{DATA}/events-{number}/partition.metadata", limit=200).decode()
        assert parse_partition_metadata(text) == topic.topic_id


@pytest.mark.parametrize("how", ["close", "kill", "crash"])
def test_topics_survive(fs: SimulatedFileSystem, store: Store, how: str) -> None:
    topic = store.create_topic("events", partitions=2, config={"cleanup.policy": "compact"})
    topic.append(b"x", key=b"k", partition=1)
    if how == "close":
        store.close()
    for seed in range(10 if how == "crash" else 1):
        after = fs.crash(random.Random(seed)) if how == "crash" else fs.kill()

        again = open_store(after)

        assert again.topics() == ["events"]
        assert again.topic("events").topic_id == topic.topic_id
        assert again.topic("events").config == topic.config
        assert again.topic("events").partition_count == 2
        assert values(again, partition=1) == [b"x"]


def test_a_topic_cannot_be_created_twice(store: Store) -> None:
    store.create_topic("events")

    with pytest.raises(TopicExistsError):
        store.create_topic("events")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "a b", "ü", "x" * 250, "a\x00", "a\n", "-\\"]
)
def test_a_name_that_could_leave_the_directory_or_confuse_kafka_is_refused(
    fs: SimulatedFileSystem, store: Store, name: str
) -> None:
    before = directories(fs)

    with pytest.raises(InvalidTopicNameError):
        store.create_topic(name)

    assert directories(fs) == before
    assert store.topics() == []


def test_names_that_kafka_s_metrics_take_for_one_are_refused(store: Store) -> None:
    store.create_topic("a.b")

    with pytest.raises(InvalidTopicNameError, match="collides"):
        store.create_topic("a_b")


@pytest.mark.parametrize("name", ["x" * 249, "a.b-c_D9", "-", "_", "a-0", "events-delete"])
def test_every_name_kafka_takes_is_taken(fs: SimulatedFileSystem, store: Store, name: str) -> None:
    store.create_topic(name).append(b"x")
    store.close()

    again = open_store(fs)

    assert again.topics() == [name]
    assert values(again, name) == [b"x"]


@pytest.mark.parametrize("partitions", [0, -1, 10_001])
def test_a_count_of_partitions_that_cannot_be_is_refused(store: Store, partitions: int) -> None:
    with pytest.raises(ConfigError):
        store.create_topic("events", partitions=partitions)

    assert store.topics() == []


def test_a_configuration_that_cannot_be_is_refused_before_anything_is_made(
    fs: SimulatedFileSystem, store: Store
) -> None:
    with pytest.raises(ConfigError):
        store.create_topic("events", config={"segment.bytes": 5})
    with pytest.raises(ConfigError, match="retention"):
        store.create_topic("events", config={"retention.sm": 5})

    assert store.topics() == []
    assert not fs.exists(f"{DATA}/events-0")


def test_store_defaults_apply_where_a_topic_says_nothing(fs: SimulatedFileSystem) -> None:
    store = open_store(fs, defaults={"retention.ms": "1d", "durability": "os"})
    topic = store.create_topic("events", config={"durability": "disk"})

    assert (topic.config.retention_ms, topic.config.durability) == (86_400_000, "disk")
    store.close()
    again = open_store(fs, defaults={"retention.ms": "2d"})
    assert again.topic("events").config.retention_ms == 2 * 86_400_000


def test_what_was_set_stays_set_though_it_is_the_default(fs: SimulatedFileSystem) -> None:
    store = open_store(fs)
    store.create_topic("events", config={"retention.ms": "7d", "segment.ms": "1h"})

    store.alter_topic("events", config={"flush.messages": 5, "segment.ms": None})

    assert store.registry.overrides("events") == {
        "retention.ms": "604800000",
        "flush.messages": "5",
    }
    store.close()
    again = open_store(fs, defaults={"retention.ms": "1d"})
    assert again.topic("events").config.retention_ms == 604_800_000


def test_a_topic_can_be_checked_without_being_made(store: Store) -> None:
    store.create_topic("events")

    config = store.registry.check_new("orders", partitions=3, config={"retention.ms": "1d"})

    assert config.retention_ms == 86_400_000
    assert store.topics() == ["events"]
    with pytest.raises(TopicExistsError):
        store.registry.check_new("events")
    with pytest.raises(ConfigError):
        store.registry.check_new("orders", config={"no.such": "1"})


def test_a_change_can_be_checked_without_being_made(store: Store) -> None:
    topic = store.create_topic("events", config={"flush.messages": 5})
    before = topic.config

    config = store.registry.check_config("events", {"retention.ms": "1d", "flush.messages": None})

    assert config.retention_ms == 86_400_000
    assert config.flush_messages == TopicConfig().flush_messages
    assert topic.config == before
    with pytest.raises(ConfigError):
        store.registry.check_config("events", {"segment.bytes": "1"})


def test_internal_topics_are_listed_only_when_asked_for(store: Store) -> None:
    store.create_topic("events")
    store.group("g").commit({("events", 0): 1})

    assert store.topics() == ["events"]
    assert store.topics(include_internal=True) == ["__consumer_offsets", "events"]


# --- altering -----------------------------------------------------------------------------------


def test_keys_are_changed_and_put_back_and_survive(fs: SimulatedFileSystem, store: Store) -> None:
    store.create_topic("events", config={"retention.ms": "1d", "segment.records": 5})

    store.alter_topic("events", config={"retention.ms": None, "flush.messages": 7})

    config = store.topic("events").config
    assert (config.retention_ms, config.flush_messages, config.segment_records) == (
        604_800_000,
        7,
        5,
    )
    assert log_of(store).config == config
    store.close()
    assert open_store(fs).topic("events").config == config


@pytest.mark.parametrize("config", [{"no.such": 1}, {"no.such": None}, {"segment.bytes": 1}])
def test_an_impossible_change_changes_nothing(store: Store, config: dict[str, object]) -> None:
    topic = store.create_topic("events")
    before = topic.config

    with pytest.raises(ConfigError):
        store.alter_topic("events", config=config)

    assert topic.config == before


def test_partitions_are_added_and_never_taken_away(fs: SimulatedFileSystem, store: Store) -> None:
    topic = store.create_topic("events", partitions=2)
    topic.append(b"x", partition=1)

    store.alter_topic("events", partitions=4)
    topic.append(b"y", partition=3)
    with pytest.raises(ConfigError):
        store.alter_topic("events", partitions=3)

    assert topic.partition_count == 4
    again = open_store(fs.kill())
    assert again.topic("events").partition_count == 4
    assert (values(again, partition=1), values(again, partition=3)) == ([b"x"], [b"y"])


def test_an_unknown_topic_cannot_be_changed(store: Store) -> None:
    for change in (store.alter_topic, store.delete_topic):
        with pytest.raises(UnknownTopicError):
            change("events")


# --- deleting -----------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_at_once_and_its_files_later(
    fs: SimulatedFileSystem,
) -> None:
    clock = ManualClock(NOW)
    store = open_store(fs, clock=clock)
    topic = store.create_topic("events", partitions=2, config={"file.delete.delay.ms": 1000})
    topic.append(b"x", partition=0)
    log = topic.partition(0)

    store.delete_topic("events")

    assert store.topics() == []
    with pytest.raises(LogClosedError):
        log.append(b"y")
    left = directories(fs)
    assert len(left) == 2
    assert all(name.endswith("-delete") and len(name) <= 255 for name in left)
    clock.advance(1000)
    store.maintain()
    assert directories(fs) == set()


def test_the_name_of_a_deleted_topic_is_free_at_once(fs: SimulatedFileSystem, store: Store) -> None:
    old = store.create_topic("events")
    old.append(b"old")
    store.maintain()
    store.delete_topic("events")

    new = store.create_topic("events")

    assert new.topic_id != old.topic_id
    assert values(store) == []
    assert new.append(b"new").offset == 0
    assert values(open_store(fs.kill())) == [b"new"]


def test_a_very_long_name_can_be_deleted(fs: SimulatedFileSystem, store: Store) -> None:
    store.create_topic("x" * 249)

    store.delete_topic("x" * 249)

    assert all(len(name) <= 255 for name in directories(fs))


@pytest.mark.parametrize("operation", ["create", "delete", "grow"])
def test_a_power_cut_during_a_change_of_topics_leaves_it_done_or_not(operation: str) -> None:
    fs = SimulatedFileSystem(clock=ManualClock(NOW))
    store = open_store(fs, clock=ManualClock(NOW))
    store.create_topic("events", partitions=2).append(b"x", partition=1)
    store.close()
    for call in range(1, 120, 4):
        trial = fs.kill()
        store = open_store(trial, clock=ManualClock(NOW))
        trial.fail_at(call, OSError(errno.EIO, "the power goes here"))
        change: Callable[[], object] = {
            "create": lambda: store.create_topic("other", partitions=2),  # noqa: B023
            "delete": lambda: store.delete_topic("events"),  # noqa: B023
            "grow": lambda: store.alter_topic("events", partitions=4),  # noqa: B023
        }[operation]
        with contextlib.suppress(OSError, StorageError):
            change()
        for seed in range(2):
            again = open_store(trial.crash(random.Random(seed)), clock=ManualClock(NOW))
            for name in again.topics():
                topic = again.topic(name)
                assert len(topic.partitions) == topic.partition_count
                topic.append(b"works", partition=topic.partition_count - 1)
            if "events" in again.topics():
                assert values(again, partition=1)[0] == b"x"
            assert "events" in again.topics() or operation == "delete"

"""A store that only reads: it changes nothing, and sees what its writer does."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import (
    LogClosedError,
    ReadOnlyError,
    StorageError,
    TopicDeletedError,
    UnknownTopicError,
)
from cordwood.log.beside import followed_files
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import Store
from cordwood.storage.files import RealFileSystem, replace_file
from fakes.client_batches import NOW
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, open_store


def beside(fs: SimulatedFileSystem, *directories: str) -> ReadOnlyStore:
    return ReadOnlyStore(
        list(directories or (DATA,)), fs=fs, clock=ManualClock(NOW), defaults=TopicConfig()
    )


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=ManualClock(NOW))


@pytest.fixture
def store(fs: SimulatedFileSystem) -> Store:
    return open_store(fs, clock=ManualClock(NOW))


def read(store: ReadOnlyStore, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in store.topic(topic).partition(partition).read()]


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no data directory"):
        ReadOnlyStore(
            [str(tmp_path / "missing")],
            fs=RealFileSystem(),
            clock=ManualClock(),
            defaults=TopicConfig(),
        )


def test_topics_are_read_beside_their_writer(fs: SimulatedFileSystem, store: Store) -> None:
    topic = store.create_topic("events", partitions=2, config={"retention.ms": "5d"})
    topic.append(b"a", partition=1)

    found = beside(fs)

    assert found.topics() == ["events"]
    assert found.topic("events").topic_id == topic.topic_id
    assert found.topic("events").config == topic.config
    assert found.topic("events").partition_count == 2
    assert (read(found, "events", 0), read(found, "events", 1)) == ([], [b"a"])
    topic.append(b"b", partition=1)
    assert read(found, "events", 1) == [b"a", b"b"]


def test_topics_that_come_and_go_are_noticed(fs: SimulatedFileSystem, store: Store) -> None:
    found = beside(fs)
    assert found.topics() == []

    store.create_topic("events").append(b"a")
    assert read(found, "events") == [b"a"]
    store.delete_topic("events")

    assert found.topics() == []
    with pytest.raises(UnknownTopicError):
        found.topic("events")


def test_a_topic_made_anew_is_not_the_old_one(fs: SimulatedFileSystem, store: Store) -> None:
    store.create_topic("events").append(b"old")
    found = beside(fs)
    assert read(found, "events") == [b"old"]
    store.delete_topic("events")
    store.create_topic("events").append(b"new")

    assert found.topics() == ["events"]
    assert read(found, "events") == [b"new"]


def test_partitions_that_are_added_are_noticed(fs: SimulatedFileSystem, store: Store) -> None:
    topic = store.create_topic("events")
    found = beside(fs)
    assert found.topic("events").partition_count == 1

    store.alter_topic("events", partitions=3)
    topic.append(b"x", partition=2)

    assert found.topics() == ["events"]
    assert read(found, "events", 2) == [b"x"]


def test_nothing_can_be_changed(fs: SimulatedFileSystem, store: Store) -> None:
    store.create_topic("events").append(b"a")
    found = beside(fs)
    calls: list[Callable[[], object]] = [
        lambda: found.create_topic("x"),
        lambda: found.alter_topic("events", partitions=2),
        lambda: found.delete_topic("events"),
        found.maintain,
        lambda: found.group("g").commit({("events", 0): 1}),
        lambda: found.topic("events").append(b"b"),
        lambda: found.topic("events").append_many([(None, b"b")]),
    ]

    for call in calls:
        with pytest.raises(ReadOnlyError):
            call()
    assert read(found, "events") == [b"a"]


def test_committed_offsets_are_read(fs: SimulatedFileSystem, store: Store) -> None:
    found = beside(fs)
    assert (found.groups(), found.group("g").committed()) == ([], {})

    store.group("g").commit({("events", 0): 5})

    assert found.groups() == ["g"]
    assert found.group("g").committed(("events", 0)) == 5
    store.group("g").commit({("events", 0): 6})
    assert found.group("g").committed(("events", 0)) == 6
    assert found.topics() == []
    assert found.topics(include_internal=True) == ["__consumer_offsets"]


def test_a_store_whose_catalog_is_lost_can_still_be_read(
    fs: SimulatedFileSystem, store: Store
) -> None:
    store.create_topic("events").append(b"a")
    after = fs.kill()
    for name in ("cordwood-topics", "cordwood-topics.copy"):
        replace_file(after, f"{DATA}/{name}", b"junk")

    assert read(beside(after), "events") == [b"a"]


def test_a_directory_without_a_catalog_is_read_by_its_names(
    fs: SimulatedFileSystem, store: Store
) -> None:
    store.create_topic("events", partitions=2).append(b"a", partition=1)
    after = fs.kill()
    for name in ("cordwood-topics", "cordwood-topics.copy"):
        after.remove(f"{DATA}/{name}")
    for extra in ("remote-log-index-cache", "__cluster_metadata-0", "lost+found", "no separator"):
        after.make_directory(f"{DATA}/{extra}")

    found = beside(after)

    assert found.topics() == ["events"]
    assert found.topic("events").partition_count == 2
    assert read(found, "events", 1) == [b"a"]


def test_several_directories_are_read_as_one_store() -> None:
    fs = SimulatedFileSystem(clock=ManualClock(NOW))
    store = open_store(fs, directories=("/a", "/b"), clock=ManualClock(NOW))
    topic = store.create_topic("events", partitions=4)
    for partition in range(4):
        topic.append(b"%d" % partition, partition=partition)

    found = beside(fs, "/a", "/b")

    assert [read(found, "events", n) for n in range(4)] == [[b"0"], [b"1"], [b"2"], [b"3"]]


def test_a_closed_store_answers_nothing(fs: SimulatedFileSystem, store: Store) -> None:
    store.create_topic("events")
    with beside(fs) as found:
        pass
    found.close()

    for call in (found.topics, lambda: found.topic("events"), lambda: found.group("g")):
        with pytest.raises(LogClosedError):
            call()


class TestATopicThatIsDeletedAndCreatedAgain:
    """The reader stays open meanwhile."""

    @pytest.fixture
    def writer(self, tmp_path: Path) -> Iterator[Store]:
        with cordwood.open(tmp_path) as store:
            store.create_topic("orders").append(b"old")
            yield store

    def recreate(self, writer: Store) -> None:
        writer.delete_topic("orders")
        writer.create_topic("orders").append_many([(None, b"new"), (None, b"newer")])

    def test_the_store_serves_the_new_topic(self, writer: Store) -> None:
        with cordwood.open(writer.path, read_only=True) as reader:
            assert [r.value for r in reader.topic("orders").partition(0).read()] == [b"old"]
            self.recreate(writer)

            topic = reader.topic("orders")

            assert topic.topic_id == writer.topic("orders").topic_id
            assert [r.value for r in topic.partition(0).read()] == [b"new", b"newer"]

    def test_a_deleted_topic_is_unknown(self, writer: Store) -> None:
        with cordwood.open(writer.path, read_only=True) as reader:
            reader.topic("orders")
            writer.delete_topic("orders")

            with pytest.raises(UnknownTopicError):
                reader.topic("orders")

    @pytest.mark.parametrize("is_recreated", [True, False])
    def test_an_old_handle_says_that_its_topic_is_gone(
        self, writer: Store, is_recreated: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(followed_files, "_CURRENT_S", 0)
        with cordwood.open(writer.path, read_only=True) as reader:
            log = reader.topic("orders").partition(0)
            if is_recreated:
                self.recreate(writer)
            else:
                writer.delete_topic("orders")

            uses: list[Callable[[], object]] = [
                lambda: list(log.read()),
                lambda: list(log.scan()),
                log.segments,
                lambda: log.offset_for_time(0),
            ]
            for use in uses:
                with pytest.raises(TopicDeletedError, match="'orders' was deleted"):
                    use()

    @pytest.mark.parametrize("is_recreated", [True, False])
    def test_following_raises_instead_of_ending_in_silence(
        self, writer: Store, is_recreated: bool
    ) -> None:
        with cordwood.open(writer.path, read_only=True) as reader:
            following = reader.topic("orders").partition(0).follow(0, idle_timeout_ms=50)
            assert next(following).value == b"old"
            if is_recreated:
                self.recreate(writer)
            else:
                writer.delete_topic("orders")

            with pytest.raises(TopicDeletedError):
                next(following)


def test_a_partition_that_cannot_be_opened_hides_no_other(
    fs: SimulatedFileSystem, store: Store
) -> None:
    events = store.create_topic("events", partitions=2)
    for number in range(2):
        events.append(b"%d" % number, partition=number)
    for name in ("broken", "other"):
        store.create_topic(name).append(b"x")

    def fail(_operation: str, path: str) -> None:
        if "events-1/0" in path or "broken-0/0" in path or path.endswith(("events-1", "broken-0")):
            raise OSError(errno.EIO, "injected", path)

    fs.watch = fail
    found = beside(fs)

    assert found.topics() == ["broken", "events", "other"]
    assert (read(found, "events", 0), read(found, "other")) == ([b"0"], [b"x"])
    assert [log.partition for log in found.topic("events").opened_partitions] == [0]
    with pytest.raises(StorageError, match=r"events-1 is offline: .*injected"):
        found.topic("events").partition(1)
    with pytest.raises(StorageError, match=r"events-1 is offline: .*injected"):
        _ = found.topic("events").partitions
    with pytest.raises(StorageError, match=r"broken-0 is offline: .*injected"):
        found.topic("broken").partition(0)

    fs.watch = None
    assert read(found, "events", 1) == [b"1"]
    assert len(found.topic("events").partitions) == 2

"""Opening a store: leftovers of a crash, partitions it does not know, partitions it cannot read."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

import cordwood
from cordwood.archive.objects.object_store import ObjectStore
from cordwood.archive.store_archives import StoreArchives
from cordwood.errors import FormatError, StorageError
from cordwood.log.partition.appends.publication_hold import PublicationHold
from cordwood.log.publishing.publication_ledger import Place, read_publications, write_publications
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.topics.topic_catalog import CatalogChange
from cordwood.quantities import Offset
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


ANYTHING = [
    OSError(errno.EIO, "injected"),
    FormatError("injected"),
    StorageError("injected"),
    ValueError("injected"),
    AssertionError("injected"),
    IndexError("injected"),
]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("error", ANYTHING, ids=repr)
def test_a_partition_that_cannot_be_opened_does_not_stop_the_others(
    fs: SimulatedFileSystem, store: Store, error: Exception, threads: int
) -> None:
    for name in ("events", "other"):
        store.create_topic(name).append(b"x")
    store.close()
    fs.fail_next("list", error, path_ends="events-0")

    again = Store([DATA], StoreSetup(fs=fs, clock=ManualClock(NOW), opening_threads=threads))

    assert values(again, "other") == [b"x"]
    with pytest.raises(StorageError, match=r"events-0 is offline: .*injected"):
        again.topic("events").partition(0)
    assert again.directories.status()[0].offline == (("events", 0),)
    again.close()
    assert values(open_store(fs)) == [b"x"], "the next start tries again"


def test_a_topic_with_an_invalid_configuration_does_not_stop_the_others(
    fs: SimulatedFileSystem, store: Store
) -> None:
    for name in ("events", "other"):
        store.create_topic(name).append(b"x")
    entry = store._catalog.topics["events"]
    broken = replace(entry, config={"segment.index.bytes": "8"})
    store._catalog.apply(CatalogChange(put=(broken,)))
    store.close()

    again = open_store(fs)

    assert values(again, "other") == [b"x"]
    with pytest.raises(StorageError, match=r"events-0 is offline: .*segment\.index\.bytes"):
        again.topic("events").partition(0)
    reader = ReadOnlyStore([DATA], fs=fs, clock=ManualClock(NOW), defaults=TopicConfig())
    assert [record.value for record in reader.topic("events").partition(0).read()] == [b"x"]
    again.alter_topic("events", config={"segment.index.bytes": 24})
    again.close()
    assert values(open_store(fs)) == [b"x"]


def test_a_partition_whose_archive_cannot_be_used_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("other").append(b"x")
        archive = (tmp_path / "archive").as_uri()
        store.create_topic("events", config={"archive.url": archive}).append(b"x")

    def fail(self: StoreArchives, url: str) -> ObjectStore:
        raise ModuleNotFoundError("injected")

    monkeypatch.setattr(StoreArchives, "objects", fail)
    with cordwood.open(tmp_path / "data") as store:
        assert [record.value for record in store.topic("other").partition(0).read()] == [b"x"]
        with pytest.raises(StorageError, match="injected"):
            store.topic("events").partition(0)


@pytest.mark.parametrize("error", ANYTHING, ids=repr)
def test_a_partition_whose_publication_cannot_be_undone_does_not_stop_the_others(
    fs: SimulatedFileSystem, store: Store, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("events", "other"):
        store.create_topic(name).append(b"x")
    entry = store._catalog.topics["events"]
    known = read_publications(fs, [DATA])
    write_publications(fs, [DATA], known.with_cuts({Place.of(entry, 0): Offset(1)}))

    def fail(self: PublicationHold) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(PublicationHold, "drop", fail)
        again = open_store(fs.kill())

    assert values(again, "other") == [b"x"]
    with pytest.raises(StorageError, match="injected"):
        again.topic("events").partition(0)

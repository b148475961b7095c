"""The one thing no file but itself can tell: which topics there are, and how they are kept."""

import errno
import random
from uuid import UUID

import pytest

from cordwood.errors import FormatError, StorageError
from cordwood.log.topics.catalog_files import (
    CatalogKeeper,
    parse_catalog,
    read_catalog,
    render_catalog,
    write_catalog,
)
from cordwood.log.topics.topic_catalog import Catalog, CatalogChange, TopicEntry
from cordwood.storage.files import read_whole, replace_file
from fakes.simulated_fs import SimulatedFileSystem

ID = UUID("01234567-89ab-cdef-0123-456789abcdef")


def entry(topic: str = "events", config: dict[str, str] | None = None) -> TopicEntry:
    return TopicEntry(name=topic, topic_id=ID, partitions=3, config=config or {})


def put(*names: str) -> CatalogChange:
    return CatalogChange(put=tuple(entry(name) for name in names))


SAMPLE = Catalog(generation=7, topics={"events": entry(), "other": entry("other")})


@pytest.fixture
def fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    for directory in DIRECTORIES:
        fs.make_directory(directory)
    fs.sync_directory("/")
    return fs


DIRECTORIES = ["/a", "/b"]
COPIES = [
    "/a/cordwood-topics",
    "/a/cordwood-topics.copy",
    "/b/cordwood-topics",
    "/b/cordwood-topics.copy",
]


def contents(fs: SimulatedFileSystem) -> list[bytes]:
    return [read_whole(fs, path, limit=10**6) for path in COPIES]


# --- one file -----------------------------------------------------------------------------------


def test_a_catalog_reads_back_as_it_was_written() -> None:
    assert parse_catalog(render_catalog(SAMPLE)) == SAMPLE


@pytest.mark.parametrize("seed", range(40))
def test_a_changed_byte_is_noticed_or_harmless(seed: int) -> None:
    rng = random.Random(seed)
    content = bytearray(render_catalog(SAMPLE))
    content[rng.randrange(400 if seed % 2 else len(content))] ^= 1 << rng.randrange(8)

    try:
        found = parse_catalog(bytes(content))
    except FormatError:
        return
    assert found == SAMPLE  # it was in the blanks


@pytest.mark.parametrize("size", [0, 1, 12, 20, 30, 100])
def test_a_part_of_a_catalog_is_not_one(size: int) -> None:
    with pytest.raises(FormatError):
        parse_catalog(render_catalog(SAMPLE)[:size])


def test_an_unknown_version_is_refused() -> None:
    content = render_catalog(SAMPLE).replace(b"cordwood-topics 2\n", b"cordwood-topics 3\n", 1)

    with pytest.raises(FormatError, match="version"):
        parse_catalog(content)


@pytest.mark.parametrize("damaged", [1, 2])
def test_damage_before_a_later_change_is_damage(fs: SimulatedFileSystem, damaged: int) -> None:
    keeper = CatalogKeeper(fs, DIRECTORIES)
    for name in ("one", "two", "three"):
        keeper.apply(put(name))
    lines = contents(fs)[0].split(b"\n")
    lines[damaged] = lines[damaged].replace(b'"', b"'", 1)

    with pytest.raises(FormatError):
        parse_catalog(b"\n".join(lines))


def test_a_torn_last_change_does_not_count(fs: SimulatedFileSystem) -> None:
    keeper = CatalogKeeper(fs, DIRECTORIES)
    keeper.apply(put("one"))
    keeper.apply(put("two"))
    content = contents(fs)[0]
    end = len(content.rstrip(b" "))

    for size in range(content.rindex(b"\n", 0, end - 1) + 1, end):
        assert list(parse_catalog(content[:size]).topics) == ["one"]
        assert list(parse_catalog(content[:size] + bytes(50)).topics) == ["one"]


# --- copies -------------------------------------------------------------------------------------


def test_a_catalog_is_kept_twice_in_every_directory(fs: SimulatedFileSystem) -> None:
    write_catalog(fs, DIRECTORIES, SAMPLE)

    assert set(contents(fs)) == {render_catalog(SAMPLE)}


def test_no_catalog_is_none(fs: SimulatedFileSystem) -> None:
    assert read_catalog(fs, DIRECTORIES) is None


@pytest.mark.parametrize("survivor", COPIES)
def test_one_sound_copy_is_enough(fs: SimulatedFileSystem, survivor: str) -> None:
    keeper = CatalogKeeper(fs, DIRECTORIES)
    keeper.apply(put("one"))
    keeper.apply(put("two"))
    for path in COPIES:
        if path != survivor:
            replace_file(fs, path, b"junk")

    assert read_catalog(fs, DIRECTORIES) == keeper.catalog
    again = CatalogKeeper(fs, DIRECTORIES)
    again.apply(put("three"))
    assert len({*contents(fs)}) == 1


def test_the_newest_sound_copy_counts(fs: SimulatedFileSystem) -> None:
    newer = SAMPLE.after(put("newer"))
    write_catalog(fs, ["/a"], newer)
    write_catalog(fs, ["/b"], SAMPLE)

    assert read_catalog(fs, ["/b", "/a"]) == newer


def test_copies_of_which_none_is_sound_are_an_error_that_says_what_to_do(
    fs: SimulatedFileSystem,
) -> None:
    replace_file(fs, COPIES[0], b"junk")

    with pytest.raises(StorageError, match="Restore one of these files"):
        read_catalog(fs, DIRECTORIES)


# --- changes ------------------------------------------------------------------------------------


def test_a_change_of_many_topics_is_one_sync_in_every_directory(fs: SimulatedFileSystem) -> None:
    keeper = CatalogKeeper(fs, DIRECTORIES)
    keeper.apply(put("first"))
    calls: list[str] = []
    fs.watch = lambda operation, path: calls.append(operation)

    keeper.apply(put(*(f"topic-{number}" for number in range(100))))

    assert [call for call in calls if call.startswith("sync")] == ["sync"] * len(DIRECTORIES)
    assert read_catalog(fs, DIRECTORIES) == keeper.catalog
    assert len(keeper.topics) == 101


def test_the_files_are_written_anew_when_they_hold_many_changes(fs: SimulatedFileSystem) -> None:
    keeper = CatalogKeeper(fs, DIRECTORIES)
    for number in range(3000):
        keeper.apply(put(f"topic-{number % 5}"))

    again = CatalogKeeper(fs, DIRECTORIES)

    assert again.catalog == keeper.catalog
    assert all(len(content) < 100_000 for content in contents(fs))


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_leaves_the_old_or_the_new(fs: SimulatedFileSystem, seed: int) -> None:
    keeper = CatalogKeeper(fs, DIRECTORIES)
    keeper.apply(put("one"))
    left: list[SimulatedFileSystem] = []
    fs.watch = lambda operation, path: left.append(fs.crash(random.Random(seed)))
    for change in (put("two"), put("three", "four"), CatalogChange(delete=("one",))):
        old = keeper.topics
        left.clear()

        keeper.apply(change)

        for after in left:
            found = read_catalog(after, DIRECTORIES)
            assert found is not None
            assert found.topics in (old, keeper.topics)
        found = read_catalog(fs.crash(random.Random(seed)), DIRECTORIES)
        assert found is not None
        assert found.topics == keeper.topics


@pytest.mark.parametrize("seed", range(8))
def test_what_an_opening_finds_survives_the_next_power_cut(
    fs: SimulatedFileSystem, seed: int
) -> None:
    keeper = CatalogKeeper(fs, DIRECTORIES)
    keeper.apply(put("one"))
    left: list[SimulatedFileSystem] = []
    fs.watch = lambda operation, path: left.append(fs.kill()) if operation == "sync" else None
    keeper.apply(put("two"))
    killed = left[0]  # the line is written and not yet synced

    again = CatalogKeeper(killed, DIRECTORIES)

    found = read_catalog(killed.crash(random.Random(seed)), DIRECTORIES)
    assert found is not None
    assert found.topics == again.topics
    assert list(again.topics) == ["one", "two"]


@pytest.mark.parametrize("call", range(1, 9))
def test_a_change_that_failed_is_not_there_after_a_restart(
    fs: SimulatedFileSystem, call: int
) -> None:
    keeper = CatalogKeeper(fs, DIRECTORIES)
    keeper.apply(put("one"))
    before = keeper.topics
    fs.fail_at(call, OSError(errno.EIO, "a moment's fault"))

    try:
        keeper.apply(put("two"))
    except OSError:
        assert keeper.topics == before
    else:
        before = keeper.topics

    for after in (fs.kill(), fs.crash(random.Random(call))):
        found = read_catalog(after, DIRECTORIES)
        assert found is not None
        assert found.topics == before
    keeper.apply(put("three"))
    found = read_catalog(fs.crash(random.Random(call)), DIRECTORIES)
    assert found is not None
    assert found.topics == keeper.topics


def test_topics_can_be_deleted_on_a_disk_without_a_byte_left(fs: SimulatedFileSystem) -> None:
    keeper = CatalogKeeper(fs, DIRECTORIES)
    keeper.apply(put(*(f"topic-{number}" for number in range(50))))
    fs.capacity_bytes = 0

    for number in range(50):
        keeper.apply(CatalogChange(delete=(f"topic-{number}",)))

    found = read_catalog(fs, DIRECTORIES)
    assert found is not None
    assert found.topics == {}

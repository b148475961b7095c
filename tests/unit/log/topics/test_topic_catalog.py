"""The one thing no file but itself can tell: which topics there are, and how they are kept."""

import errno
import random
from uuid import UUID

import pytest

from cordwood.errors import FormatError, StorageError
from cordwood.format.small_files.partition_metadata import new_topic_id
from cordwood.log.topics.topic_catalog import (
    CREATING,
    DELETING,
    LIVE,
    Catalog,
    TopicEntry,
    parse_catalog,
    read_catalog,
    render_catalog,
    write_catalog,
)
from cordwood.storage.files import read_whole, replace_file
from fakes.simulated_fs import SimulatedFileSystem

ID = UUID("01234567-89ab-cdef-0123-456789abcdef")


def entry(topic: str = "events", **changes: object) -> TopicEntry:
    fields: dict[str, object] = {
        "name": topic,
        "topic_id": ID,
        "partitions": 3,
        "config": {"retention.ms": "1000"},
    }
    return TopicEntry(**(fields | changes))  # type: ignore[arg-type]


def catalog(generation: int = 1, *entries: TopicEntry) -> Catalog:
    return Catalog(generation=generation, topics={e.name: e for e in entries})


SAMPLE = catalog(
    7, entry(), entry("other", state=CREATING, config={}), entry("gone", state=DELETING)
)


def test_a_catalog_reads_back_as_it_was_written() -> None:
    assert parse_catalog(render_catalog(SAMPLE)) == SAMPLE
    assert parse_catalog(render_catalog(catalog(0))) == catalog(0)


def test_every_change_is_a_new_generation_and_leaves_the_old_one_alone() -> None:
    first = catalog(1)

    second = first.put(entry())
    third = second.put(entry().with_state(DELETING))
    fourth = third.without("events")

    assert [c.generation for c in (first, second, third, fourth)] == [1, 2, 3, 4]
    assert first.topics == fourth.topics == {}
    assert second.topics["events"].state == LIVE
    assert third.topics["events"].state == DELETING


@pytest.mark.parametrize("seed", range(40))
def test_any_changed_byte_is_noticed(seed: int) -> None:
    rng = random.Random(seed)
    content = bytearray(render_catalog(SAMPLE))
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)

    with pytest.raises(FormatError):
        parse_catalog(bytes(content))


@pytest.mark.parametrize("size", [0, 1, 12, 20, 30, -1])
def test_a_part_of_a_catalog_is_not_one(size: int) -> None:
    with pytest.raises(FormatError):
        parse_catalog(render_catalog(SAMPLE)[:size])


@pytest.mark.parametrize(
    "changes",
    [
        {"partitions": 0},
        {"partitions": -1},
        {"state": "sleeping"},
        {"name": ".."},
        {"name": "a/b"},
    ],
)
def test_a_topic_that_cannot_be_is_refused_under_a_right_checksum(
    changes: dict[str, object],
) -> None:
    content = render_catalog(catalog(1, entry("events", **changes)))

    with pytest.raises(FormatError):
        parse_catalog(content)


def test_an_unknown_version_is_refused() -> None:
    content = render_catalog(SAMPLE).replace(b"cordwood-topics 1 ", b"cordwood-topics 2 ", 1)

    with pytest.raises(FormatError, match="version"):
        parse_catalog(content)


# --- files --------------------------------------------------------------------------------------


@pytest.fixture
def fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    for directory in ("/a", "/b"):
        fs.make_directory(directory)
    fs.sync_directory("/")
    return fs


COPIES = [
    "/a/cordwood-topics",
    "/a/cordwood-topics.copy",
    "/b/cordwood-topics",
    "/b/cordwood-topics.copy",
]


def test_a_catalog_is_kept_twice_in_every_directory(fs: SimulatedFileSystem) -> None:
    write_catalog(fs, ["/a", "/b"], SAMPLE)

    assert {read_whole(fs, path, limit=10_000) for path in COPIES} == {render_catalog(SAMPLE)}


def test_no_catalog_is_none(fs: SimulatedFileSystem) -> None:
    assert read_catalog(fs, ["/a", "/b"]) is None


@pytest.mark.parametrize("survivor", COPIES)
def test_one_sound_copy_is_enough(fs: SimulatedFileSystem, survivor: str) -> None:
    write_catalog(fs, ["/a", "/b"], SAMPLE)
    for path in COPIES:
        if path != survivor:
            replace_file(fs, path, b"junk")

    assert read_catalog(fs, ["/a", "/b"]) == SAMPLE


def test_the_newest_sound_copy_counts(fs: SimulatedFileSystem) -> None:
    newer = SAMPLE.put(entry("newer"))
    write_catalog(fs, ["/a"], newer)
    write_catalog(fs, ["/b"], SAMPLE)

    assert read_catalog(fs, ["/b", "/a"]) == newer


def test_copies_of_which_none_is_sound_are_an_error_that_says_what_to_do(
    fs: SimulatedFileSystem,
) -> None:
    replace_file(fs, COPIES[0], b"junk")

    with pytest.raises(StorageError, match="Restore one of these files"):
        read_catalog(fs, ["/a", "/b"])


def test_a_power_cut_while_writing_leaves_the_old_or_the_new(fs: SimulatedFileSystem) -> None:
    write_catalog(fs, ["/a", "/b"], SAMPLE)
    newer = SAMPLE.put(entry("newer", topic_id=new_topic_id()))
    for call in range(1, 25):
        trial = fs.kill()
        trial.fail_at(call, OSError(errno.EIO, "the power goes here"))
        try:
            write_catalog(trial, ["/a", "/b"], newer)
            finished = True
        except OSError:
            finished = False
        for seed in range(5):
            found = read_catalog(trial.crash(random.Random(seed)), ["/a", "/b"])
            assert found in ((newer,) if finished else (SAMPLE, newer))

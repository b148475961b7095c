"""The same rules for the real file system and for the simulated one that stands in for it."""

import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.errors import DirectoryLockedError, LimitExceededError, TruncatedInputError
from cordwood.storage.files import (
    DirectoryEntry,
    File,
    FileSystem,
    RealFileSystem,
    read_whole,
    replace_file,
    write_all,
)
from fakes.simulated_fs import SimulatedFileSystem


class Place:
    """A file system and an empty directory in it."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self.fs = fs
        self.root = root

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, name: str, content: bytes = b"") -> str:
        path = self.path(name)
        file = self.fs.create(path)
        write_all(file, 0, content)
        file.close()
        return path

    def content(self, name: str) -> bytes:
        return read_whole(self.fs, self.path(name), limit=1 << 20)

    def names(self, directory: str = "") -> list[str]:
        path = self.path(directory) if directory else self.root
        return [entry.name for entry in self.fs.list(path)]


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "real":
        return Place(RealFileSystem(), str(tmp_path))
    fs = SimulatedFileSystem()
    fs.make_directory("/data")
    return Place(fs, "/data")


@pytest.fixture
def file(place: Place) -> Iterator[File]:
    file = place.fs.create(place.path("file"))
    write_all(file, 0, b"0123456789")
    yield file
    file.close()


# --- one file -------------------------------------------------------------------------------


def test_a_file_reads_back_what_was_written_at_each_position(file: File) -> None:
    written = file.write_at(4, b"abc")

    assert written == 3
    assert file.read_at(0, 10) == b"0123abc789"
    assert file.size() == 10


@pytest.mark.parametrize(
    ("position", "size", "expected"),
    [(0, 10, b"0123456789"), (8, 5, b"89"), (10, 5, b""), (99, 5, b""), (3, 0, b"")],
)
def test_a_read_is_short_only_at_the_end_of_the_file(
    file: File, position: int, size: int, expected: bytes
) -> None:
    assert file.read_at(position, size) == expected


@pytest.mark.parametrize(("position", "count"), [(0, 4), (8, 2), (10, 0), (99, 0)])
def test_read_into_fills_the_buffer_as_far_as_the_file_goes(
    file: File, position: int, count: int
) -> None:
    buffer = bytearray(4)

    filled = file.read_into(position, memoryview(buffer))

    assert filled == count
    assert buffer == b"0123456789"[position : position + 4].ljust(4, b"\0")


def test_a_write_past_the_end_leaves_zeros_between(file: File) -> None:
    file.write_at(12, b"x")

    assert file.read_at(0, 20) == b"0123456789\0\0x"


@pytest.mark.parametrize("data", [b"ab", bytearray(b"ab"), memoryview(b"ab")])
def test_any_kind_of_bytes_can_be_written(file: File, data: bytes | bytearray | memoryview) -> None:
    file.write_at(0, data)

    assert file.read_at(0, 3) == b"ab2"


@pytest.mark.parametrize(
    ("size", "expected"), [(0, b""), (3, b"012"), (10, b"0123456789"), (12, b"0123456789\0\0")]
)
def test_truncating_cuts_or_extends_with_zeros(file: File, size: int, expected: bytes) -> None:
    file.truncate_to(size)

    assert file.read_at(0, 20) == expected
    assert file.size() == size


def test_a_map_shows_the_whole_file_and_outlives_the_handle(file: File) -> None:
    view = file.map()
    file.close()

    assert bytes(view) == b"0123456789"
    assert view.readonly


def test_a_map_of_an_empty_file_is_an_empty_view(place: Place) -> None:
    file = place.fs.create(place.path("empty"))

    assert bytes(file.map()) == b""


def test_closing_twice_is_closing_once_and_a_closed_file_refuses(file: File) -> None:
    file.close()
    file.close()

    with pytest.raises(OSError, match="descriptor"):
        file.read_at(0, 1)


def test_a_file_opened_for_reading_cannot_be_written(place: Place) -> None:
    file = place.fs.open_read(place.put("file", b"abc"))

    with pytest.raises(OSError, match="descriptor"):
        file.write_at(0, b"x")
    with pytest.raises(OSError, match="argument"):
        file.truncate_to(0)


def test_a_file_knows_the_path_it_was_opened_by(file: File, place: Place) -> None:
    assert file.name == place.path("file")


def test_syncing_changes_nothing_that_can_be_read(file: File) -> None:
    file.sync()

    assert file.read_at(0, 10) == b"0123456789"


# --- opening --------------------------------------------------------------------------------


def test_opening_a_missing_file_says_so(place: Place) -> None:
    for opener in (place.fs.open_read, place.fs.open_write, place.fs.size, place.fs.remove):
        with pytest.raises(FileNotFoundError):
            opener(place.path("missing"))
    with pytest.raises(FileNotFoundError):
        place.fs.create(place.path("missing/file"))


def test_exclusive_creation_refuses_an_existing_file_and_leaves_it(place: Place) -> None:
    path = place.put("file", b"abc")

    with pytest.raises(FileExistsError):
        place.fs.create(path)

    assert place.content("file") == b"abc"


def test_creation_that_is_not_exclusive_empties_an_existing_file(place: Place) -> None:
    path = place.put("file", b"abc")

    place.fs.create(path, exclusive=False).close()

    assert place.content("file") == b""


# --- names ----------------------------------------------------------------------------------


def test_a_listing_gives_names_kinds_and_sizes_in_order(place: Place) -> None:
    place.put("b", b"12345")
    place.fs.make_directory(place.path("c"))
    place.put("a")

    assert place.fs.list(place.root) == [
        DirectoryEntry(name="a", is_directory=False, size=0),
        DirectoryEntry(name="b", is_directory=False, size=5),
        DirectoryEntry(name="c", is_directory=True, size=0),
    ]


def test_listing_a_missing_directory_or_a_file_is_an_error(place: Place) -> None:
    path = place.put("file")

    with pytest.raises(FileNotFoundError):
        place.fs.list(place.path("missing"))
    with pytest.raises(NotADirectoryError):
        place.fs.list(path)


def test_exists_tells_files_and_directories_from_nothing(place: Place) -> None:
    path = place.put("file")

    assert place.fs.exists(path)
    assert place.fs.exists(place.root)
    assert not place.fs.exists(place.path("missing"))
    assert not place.fs.exists(path + "/below-a-file")


def test_directories_are_made_with_those_above_and_may_be_there(place: Place) -> None:
    place.fs.make_directory(place.path("a/b/c"))
    place.fs.make_directory(place.path("a/b"))

    assert place.names("a") == ["b"]
    assert place.names("a/b") == ["c"]


def test_a_file_in_the_way_of_a_directory_is_an_error(place: Place) -> None:
    path = place.put("file")

    with pytest.raises(FileExistsError):
        place.fs.make_directory(path)


def test_a_rename_replaces_the_file_that_has_the_name(place: Place) -> None:
    old, new = place.put("old", b"new content"), place.put("new", b"old content")

    place.fs.rename(old, new)

    assert place.names() == ["new"]
    assert place.content("new") == b"new content"


def test_a_directory_moves_with_all_in_it(place: Place) -> None:
    place.fs.make_directory(place.path("a"))
    place.put("a/file", b"abc")

    place.fs.rename(place.path("a"), place.path("b"))

    assert place.names() == ["b"]
    assert place.content("b/file") == b"abc"


def test_a_rename_refuses_a_missing_file_and_a_directory_that_is_not_empty(place: Place) -> None:
    place.fs.make_directory(place.path("a"))
    place.fs.make_directory(place.path("b/c"))

    with pytest.raises(FileNotFoundError):
        place.fs.rename(place.path("missing"), place.path("new"))
    with pytest.raises(OSError, match="not empty"):
        place.fs.rename(place.path("a"), place.path("b"))


def test_an_open_file_survives_the_loss_of_its_name(place: Place) -> None:
    path = place.put("file", b"abc")
    file = place.fs.open_read(path)

    place.fs.remove(path)

    assert file.read_at(0, 3) == b"abc"
    assert place.names() == []


def test_a_link_is_a_second_name_for_the_same_file(place: Place) -> None:
    path = place.put("file", b"abc")

    place.fs.link(path, place.path("second"))
    place.fs.remove(path)

    assert place.content("second") == b"abc"


def test_a_file_with_two_names_is_shared(place: Place) -> None:
    path = place.path("first")
    place.fs.create(path).close()
    assert not place.fs.is_shared(path)

    place.fs.link(path, place.path("second"))

    assert place.fs.is_shared(path)
    place.fs.remove(place.path("second"))
    assert not place.fs.is_shared(path)


def test_a_link_refuses_a_name_that_is_taken(place: Place) -> None:
    path, taken = place.put("file"), place.put("taken")

    with pytest.raises(FileExistsError):
        place.fs.link(path, taken)


def test_removing_a_tree_takes_all_of_it(place: Place) -> None:
    place.fs.make_directory(place.path("a/b"))
    place.put("a/file")
    place.put("a/b/file")
    place.put("kept")

    place.fs.remove_tree(place.path("a"))

    assert place.names() == ["kept"]


def test_a_directory_is_not_removed_as_a_file(place: Place) -> None:
    place.fs.make_directory(place.path("a"))

    with pytest.raises(IsADirectoryError):
        place.fs.remove(place.path("a"))


def test_a_file_can_be_dated(place: Place) -> None:
    path = place.put("file")

    place.fs.set_modified_ms(path, 1_600_000_000_123)

    assert place.fs.modified_ms(path) == 1_600_000_000_123


def test_a_directory_can_be_synced_and_a_missing_one_cannot(place: Place) -> None:
    place.fs.sync_directory(place.root)

    with pytest.raises(FileNotFoundError):
        place.fs.sync_directory(place.path("missing"))


def test_free_space_is_a_number_of_bytes_and_no_more_than_there_are(place: Place) -> None:
    assert 0 < place.fs.free_bytes(place.root) <= place.fs.total_bytes(place.root)


# --- words ----------------------------------------------------------------------------------


def test_words_start_as_zeros_and_are_shared_between_maps(place: Place) -> None:
    writer = place.fs.map_words(place.path("words"), 3, writable=True)
    reader = place.fs.map_words(place.path("words"), 3, writable=False)

    writer[0], writer[2] = 2**63 - 1, -(2**63)

    assert [reader[0], reader[1], reader[2]] == [2**63 - 1, 0, -(2**63)]
    assert place.fs.size(place.path("words")) == 24


def test_words_are_there_when_the_file_is_mapped_again(place: Place) -> None:
    writer = place.fs.map_words(place.path("words"), 2, writable=True)
    writer[1] = 42
    writer.sync()
    writer.close()
    writer.close()

    again = place.fs.map_words(place.path("words"), 2, writable=True)

    assert again[1] == 42


def test_words_opened_for_reading_must_be_there_and_cannot_be_stored(place: Place) -> None:
    path = place.path("words")
    with pytest.raises(FileNotFoundError):
        place.fs.map_words(path, 1, writable=False)
    place.fs.map_words(path, 1, writable=True).close()
    reader = place.fs.map_words(path, 1, writable=False)

    with pytest.raises(TruncatedInputError):
        place.fs.map_words(path, 2, writable=False)
    with pytest.raises(TypeError):
        reader[0] = 1
    with pytest.raises(IndexError):
        _ = reader[1]


def test_a_short_file_of_words_is_filled_up_by_its_writer(place: Place) -> None:
    path = place.put("words", b"\1\0\0\0\0\0\0\0\7")

    words = place.fs.map_words(path, 3, writable=True)

    assert [words[0], words[1], words[2]] == [1, 7, 0]


# --- the lock -------------------------------------------------------------------------------


def test_one_writer_holds_a_directory_until_it_lets_go(place: Place) -> None:
    lock = place.fs.lock(place.root)

    with pytest.raises(DirectoryLockedError) as refused:
        place.fs.lock(place.root + "/.")
    lock.release()
    lock.release()
    again = place.fs.lock(place.root)

    assert refused.value.path == place.root + "/."
    assert place.names() == [".lock"]
    again.release()
    assert place.names() == []


def test_releasing_an_old_lock_again_does_not_release_the_new_one(place: Place) -> None:
    old = place.fs.lock(place.root)
    old.release()
    new = place.fs.lock(place.root)

    old.release()

    with pytest.raises(DirectoryLockedError):
        place.fs.lock(place.root)
    new.release()


# --- the functions over the port --------------------------------------------------------------


def test_replacing_a_file_leaves_the_new_content_and_nothing_else(place: Place) -> None:
    path = place.put("file", b"a longer content")

    replace_file(place.fs, path, b"short")
    replace_file(place.fs, place.path("other"), b"new")

    assert place.content("file") == b"short"
    assert place.names() == ["file", "other"]


def test_a_leftover_temporary_file_is_no_obstacle(place: Place) -> None:
    place.put("file.tmp", b"left by a crash, and longer")

    replace_file(place.fs, place.path("file"), b"new")

    assert place.content("file") == b"new"
    assert place.names() == ["file"]


def test_a_whole_file_is_read_up_to_the_limit_and_not_beyond(place: Place) -> None:
    path = place.put("file", b"12345")

    assert read_whole(place.fs, path, limit=5) == b"12345"
    with pytest.raises(LimitExceededError):
        read_whole(place.fs, path, limit=4)


def test_random_work_leaves_both_file_systems_with_the_same_bytes(tmp_path: Path) -> None:
    simulated = SimulatedFileSystem()
    simulated.make_directory("/data")
    places = [Place(RealFileSystem(), str(tmp_path)), Place(simulated, "/data")]

    for place in places:
        rng = random.Random(11)
        file = place.fs.create(place.path("file"))
        for _ in range(300):
            match rng.randrange(4):
                case 0:
                    file.truncate_to(rng.randrange(3000))
                case 1:
                    file.sync()
                case _:
                    write_all(file, rng.randrange(2000), rng.randbytes(rng.randrange(600)))

    assert places[0].content("file") == places[1].content("file")


def test_only_a_real_file_has_a_descriptor(tmp_path: Path) -> None:
    assert RealFileSystem().create(str(tmp_path / "file")).fileno() >= 0
    with pytest.raises(io.UnsupportedOperation):
        SimulatedFileSystem().create("/file").fileno()

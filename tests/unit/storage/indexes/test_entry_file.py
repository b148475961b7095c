"""Entries in memory and in the file, and that neither ever makes the other wrong."""

import errno
import os
import random
from pathlib import Path

import pytest

from cordwood.errors import FormatError, LimitExceededError
from cordwood.storage.files import RealFileSystem, read_whole, replace_file
from cordwood.storage.indexes.entry_file import EntryFile
from fakes.simulated_fs import ShortWrite, SimulatedFileSystem

PATH = "/00000000000000000000.index"


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def active(fs: SimulatedFileSystem, *entries: bytes) -> EntryFile:
    file = EntryFile(fs, PATH, 4)
    file.create()
    for entry in entries:
        file.append(entry)
    return file


def sealed(fs: SimulatedFileSystem, content: bytes, *, mapped: bool = True) -> EntryFile:
    replace_file(fs, PATH, content)
    return EntryFile(fs, PATH, 4, mapped=mapped)


def on_disk(fs: SimulatedFileSystem) -> bytes:
    return read_whole(fs, PATH, limit=1 << 20)


def test_entries_are_seen_at_once_and_written_when_flushed(fs: SimulatedFileSystem) -> None:
    file = active(fs, b"aaaa", b"bbbb")

    assert bytes(file.entries) == b"aaaabbbb"
    assert on_disk(fs) == b""
    file.flush()
    assert on_disk(fs) == b"aaaabbbb"


def test_a_flush_writes_only_what_is_new(fs: SimulatedFileSystem) -> None:
    file = active(fs, b"aaaa")
    file.flush()
    calls = fs.calls

    file.flush()

    assert fs.calls == calls
    file.append(b"bbbb")
    file.flush()
    assert on_disk(fs) == b"aaaabbbb"


def test_an_active_file_holds_no_descriptor(fs: SimulatedFileSystem, tmp_path: Path) -> None:
    file = EntryFile(RealFileSystem(), str(tmp_path / "index"), 4)
    file.create()
    file.append(b"aaaa")

    file.flush()

    opened = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    assert not [path for path in opened if path.startswith(str(tmp_path))]


@pytest.mark.parametrize("failing", ["open_write", "write_at"])
def test_a_flush_that_failed_can_be_repeated(fs: SimulatedFileSystem, failing: str) -> None:
    file = active(fs, b"aaaa", b"bbbb")
    fs.fail_next(failing, OSError(errno.EIO, "injected"))

    with pytest.raises(OSError, match="injected"):
        file.flush()
    file.flush()

    assert on_disk(fs) == b"aaaabbbb"


def test_a_flush_cut_short_by_a_full_disk_is_finished_by_the_next(fs: SimulatedFileSystem) -> None:
    file = active(fs, b"aaaa", b"bbbb")
    fs.capacity_bytes = 6

    with pytest.raises(OSError, match="No space"):
        file.flush()
    reader = bytes(EntryFile(fs, PATH, 4).entries)
    fs.capacity_bytes = None
    file.flush()

    assert reader == b"aaaa", "a reader skips the entry that is half there"
    assert on_disk(fs) == b"aaaabbbb"


def test_a_file_that_vanished_is_written_anew(fs: SimulatedFileSystem) -> None:
    file = active(fs, b"aaaa")
    file.flush()
    fs.remove(PATH)
    file.append(b"bbbb")

    file.flush()

    assert on_disk(fs) == b"aaaabbbb"


def test_a_sealed_file_touches_the_disk_on_the_first_search_only(fs: SimulatedFileSystem) -> None:
    replace_file(fs, PATH, b"aaaabbbb")
    calls = fs.calls

    file = EntryFile(fs, PATH, 4)
    opening_calls = fs.calls - calls
    counts = [file.count, file.count]

    assert opening_calls == 0
    assert counts == [2, 2]
    assert fs.call_log[calls:] == [("open_read", PATH), ("map", PATH)]


def test_sealing_makes_all_entries_durable(fs: SimulatedFileSystem) -> None:
    file = active(fs, b"aaaa", b"bbbb")
    fs.sync_directory("/")

    file.seal()

    assert not file.is_active
    assert bytes(file.entries) == b"aaaabbbb"
    for seed in range(50):
        assert on_disk(fs.crash(random.Random(seed))) == b"aaaabbbb"


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize(
    ("content", "entries"),
    [
        (b"", b""),
        (b"aaa", b""),
        (b"aaaabb", b"aaaa"),
        (b"\0\0\0\0", b"\0\0\0\0"),  # one entry of zeros is what a writer may have meant
        (b"\0\0\0\0" * 9, b""),
        (b"aaaa" + b"\0\0\0\0" * 9, b"aaaa"),
        (b"aaaabbbbcccc" + b"\0\0\0\0" + b"\0\0", b"aaaabbbbcccc"),
        (b"\0\0\0\0bbbb" + b"\0\0\0\0" * 4, b"\0\0\0\0bbbb"),
        (b"aaaa\0\0\0\0bbbb", b"aaaa\0\0\0\0bbbb"),
    ],
)
def test_a_torn_last_entry_and_unused_slots_are_skipped(
    fs: SimulatedFileSystem, content: bytes, entries: bytes, mapped: bool
) -> None:
    assert bytes(sealed(fs, content, mapped=mapped).entries) == entries


def test_a_missing_file_has_no_entries_until_it_appears(fs: SimulatedFileSystem) -> None:
    file = EntryFile(fs, PATH, 4)

    before = file.count
    replace_file(fs, PATH, b"aaaa")

    assert before == 0
    assert file.count == 1


def test_a_reader_sees_growth_after_it_released_its_map(fs: SimulatedFileSystem) -> None:
    writer = active(fs, b"aaaa")
    writer.flush()
    reader = EntryFile(fs, PATH, 4)
    counts = [reader.count]
    writer.append(b"bbbb")
    writer.flush()

    counts.append(reader.count)
    reader.release()
    counts.append(reader.count)

    assert counts == [1, 1, 2]


@pytest.mark.parametrize("torn", [b"", b"zz", b"\0\0\0\0\0\0\0\0"])
def test_an_active_file_goes_on_where_its_sound_entries_end(
    fs: SimulatedFileSystem, torn: bytes
) -> None:
    replace_file(fs, PATH, b"aaaabbbb" + torn)
    file = EntryFile(fs, PATH, 4)

    file.activate(max_bytes=100)
    file.append(b"cccc")
    file.flush()

    assert on_disk(fs) == b"aaaabbbbcccc"


def test_a_file_beyond_all_measure_is_not_taken_into_memory(
    fs: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.storage.indexes.entry_file._READ_BYTES_MAX", 8)
    replace_file(fs, PATH, b"aaaabbbbcccc")

    with pytest.raises(LimitExceededError):
        EntryFile(fs, PATH, 4).activate(max_bytes=4)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("flushed_after", [0, 1, 2, 3])
def test_truncating_an_active_file_cuts_memory_and_file_alike(
    fs: SimulatedFileSystem, count: int, flushed_after: int
) -> None:
    file = active(fs)
    for number, entry in enumerate((b"aaaa", b"bbbb", b"cccc"), start=1):
        file.append(entry)
        if number == flushed_after:
            file.flush()

    file.truncate_to(count)
    file.append(b"dddd")
    file.flush()

    assert bytes(file.entries) == b"aaaabbbbcccc"[: count * 4] + b"dddd"
    assert on_disk(fs) == bytes(file.entries)


def test_truncating_leaves_maps_and_searches_under_way_as_they_were(tmp_path: Path) -> None:
    # Pages cut off a mapped file kill the process that touches them.
    fs, path = RealFileSystem(), str(tmp_path / "index")
    replace_file(fs, path, b"aaaa" * 4096)
    file = EntryFile(fs, path, 4)
    under_way = file.entries

    file.truncate_to(1)

    assert bytes(under_way[-4:]) == b"aaaa"
    assert bytes(file.entries) == b"aaaa"
    assert fs.size(path) == 4


def test_a_search_under_way_keeps_the_array_it_took(fs: SimulatedFileSystem) -> None:
    file = active(fs, b"aaaa", b"bbbb")
    under_way = file.entries

    file.truncate_to(0)

    assert bytes(under_way) == b"aaaabbbb"
    assert file.count == 0


@pytest.mark.parametrize("size", [1, 3, 5])
def test_the_size_check_refuses_a_torn_last_entry(fs: SimulatedFileSystem, size: int) -> None:
    file = sealed(fs, b"x" * size)

    with pytest.raises(FormatError, match="last index entry"):
        file.check_size()
    file.activate(max_bytes=100)
    with pytest.raises(FormatError, match="last index entry"):
        file.check_size()


def test_a_renamed_file_is_flushed_under_its_new_name(fs: SimulatedFileSystem) -> None:
    file = active(fs, b"aaaa")

    file.rename("/new")
    file.flush()

    assert [entry.name for entry in fs.list("/")] == ["new"]
    assert read_whole(fs, "/new", limit=10) == b"aaaa"


def test_a_missing_file_can_be_renamed_and_removed(fs: SimulatedFileSystem) -> None:
    file = EntryFile(fs, PATH, 4)

    file.rename("/new")
    file.remove()

    assert file.path == "/new"
    assert fs.list("/") == []


def test_short_writes_do_not_matter(fs: SimulatedFileSystem) -> None:
    file = active(fs, b"aaaa", b"bbbb")
    fs.fail_next("write_at", ShortWrite(3))

    file.flush()

    assert on_disk(fs) == b"aaaabbbb"

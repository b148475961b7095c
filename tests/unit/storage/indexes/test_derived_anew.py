"""Entries that are derived again from an unchanged log cost no write and no sync."""

import pytest

from cordwood.storage.files import read_whole
from cordwood.storage.indexes.entry_file import EntryFile
from fakes.simulated_fs import SimulatedFileSystem


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def filled(fs: SimulatedFileSystem, entries: bytes = b"aaaabbbb") -> EntryFile:
    made = EntryFile(fs, "/index", 4)
    made.create()
    made.extend(entries)
    made.sync()
    opened = EntryFile(fs, "/index", 4)
    opened.activate(max_bytes=100, is_synced=True)
    return opened


def changes(fs: SimulatedFileSystem) -> list[str]:
    made: list[str] = []
    changing = {"create", "write_at", "rename", "sync", "sync_directory", "remove"}
    fs.watch = lambda operation, path: made.append(operation) if operation in changing else None
    return made


def test_entries_that_come_out_the_same_are_not_written(fs: SimulatedFileSystem) -> None:
    file = filled(fs)
    made = changes(fs)

    file.derive_anew()
    file.extend(b"aaaabbbb")
    file.sync()

    assert made == []
    assert bytes(file.entries) == b"aaaabbbb"


def test_entries_behind_the_same_ones_are_appended(fs: SimulatedFileSystem) -> None:
    file = filled(fs)

    file.derive_anew()
    file.extend(b"aaaabbbbcccc")
    file.sync()

    assert read_whole(fs, "/index", limit=100) == b"aaaabbbbcccc"


@pytest.mark.parametrize("derived", [b"", b"aaaa", b"aaaaxxxx", b"xxxxbbbbcccc"])
def test_other_entries_replace_those_of_the_file(fs: SimulatedFileSystem, derived: bytes) -> None:
    file = filled(fs)

    file.derive_anew()
    file.extend(derived)
    file.flush()

    assert read_whole(fs, "/index", limit=100) == derived


def test_a_file_that_was_not_synced_is_synced_though_nothing_changed(
    fs: SimulatedFileSystem,
) -> None:
    filled(fs)
    file = EntryFile(fs, "/index", 4)
    file.activate(max_bytes=100)
    made = changes(fs)

    file.sync()

    assert made == ["sync"]

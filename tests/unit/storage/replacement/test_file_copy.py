"""Copies of whole files, shared or not."""

from __future__ import annotations

import errno
import random

import pytest

from cordwood.storage.files import read_whole, write_all
from cordwood.storage.replacement.file_copy import copy_file, link_or_copy, unshare
from fakes.simulated_fs import SimulatedFileSystem

SIZE = (1 << 20) + 17


@pytest.fixture
def fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_directory("/d")
    file = fs.create("/d/source")
    write_all(file, 0, bytes(range(256)) * (SIZE // 256) + bytes(SIZE % 256))
    file.sync()
    fs.sync_directory("/d")
    return fs


def content(fs: SimulatedFileSystem, path: str) -> bytes:
    return read_whole(fs, path, limit=2 * SIZE)


@pytest.mark.parametrize("size", [None, 0, 1, 1 << 20, SIZE])
def test_a_copy_is_durable_once_its_name_is(fs: SimulatedFileSystem, size: int | None) -> None:
    copied = copy_file(fs, "/d/source", "/d/copy", size=size)
    fs.sync_directory("/d")

    expected = content(fs, "/d/source")[:size]
    assert copied == len(expected)
    assert content(fs.crash(random.Random(1)), "/d/copy") == expected


def test_a_link_is_taken_where_there_can_be_one(fs: SimulatedFileSystem) -> None:
    assert link_or_copy(fs, "/d/source", "/d/copy")
    assert fs.is_shared("/d/source")


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_without_links_the_bytes_are_copied(fs: SimulatedFileSystem, number: int) -> None:
    fs.fail_next("link", OSError(number, "no link"))

    is_linked = link_or_copy(fs, "/d/source", "/d/copy")

    assert not is_linked
    assert not fs.is_shared("/d/source")
    assert content(fs, "/d/copy") == content(fs, "/d/source")


def test_another_error_is_not_taken_for_one(fs: SimulatedFileSystem) -> None:
    fs.fail_next("link", OSError(errno.EIO, "broken"))

    with pytest.raises(OSError, match="broken"):
        link_or_copy(fs, "/d/source", "/d/copy")


def test_a_shared_file_is_made_ones_own_before_it_is_changed(fs: SimulatedFileSystem) -> None:
    fs.link("/d/source", "/d/other")
    before = content(fs, "/d/other")

    unshare(fs, "/d/source")
    write_all(fs.open_write("/d/source"), 0, b"changed")

    assert content(fs, "/d/other") == before
    assert content(fs, "/d/source").startswith(b"changed")
    assert not fs.is_shared("/d/source")


def test_a_file_of_ones_own_is_left_as_it_is(fs: SimulatedFileSystem) -> None:
    calls = fs.calls

    unshare(fs, "/d/source")

    assert fs.calls == calls


def test_an_unsharing_that_was_interrupted_is_done_again(fs: SimulatedFileSystem) -> None:
    fs.link("/d/source", "/d/other")
    fs.create("/d/source.tmp").close()

    unshare(fs, "/d/source")

    assert not fs.is_shared("/d/source")

"""The cache holds what fits, and nothing that is not what the manifest says."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import pytest

from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.manifests.segment_copy import ArchivedFile
from cordwood.archive.objects.object_store import LocalObjects
from cordwood.errors import LogClosedError, StorageError
from cordwood.format.file_names import FileKind
from fakes.failing_objects import FailingObjects
from fakes.interrupter import interrupt
from fakes.simulated_fs import SimulatedFileSystem


class Reader:
    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


class Shelf:
    """A cache of 100 bytes over objects of given sizes."""

    def __init__(self) -> None:
        self.fs = SimulatedFileSystem()
        self.objects = FailingObjects(LocalObjects(self.fs, "/archive"))
        self.cache = SegmentCache(self.fs, "/cache", bytes_max=100)
        self.reader = Reader()

    def put(self, name: str, size: int) -> ArchivedFile:
        content = name.encode() * size
        self.objects.inner.put(name, [content[:size]])
        digest = hashlib.sha256(content[:size]).hexdigest()
        return ArchivedFile(kind=FileKind.LOG, size=size, sha256=digest)

    def ensure(self, name: str, file: ArchivedFile) -> None:
        self.cache.ensure(f"/cache/{name}", self.objects, name, file, self.reader)

    def held(self) -> list[str]:
        return [entry.name for entry in self.fs.list("/cache")]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def test_a_file_is_fetched_once(shelf: Shelf) -> None:
    file = shelf.put("a", 10)

    shelf.ensure("a", file)
    shelf.ensure("a", file)

    assert shelf.objects.call_log == [("read", "a")]


def test_the_file_not_used_for_longest_makes_room(shelf: Shelf) -> None:
    files = {name: shelf.put(name, 40) for name in "abc"}
    shelf.ensure("a", files["a"])
    shelf.ensure("b", files["b"])
    shelf.cache.touch("/cache/a")

    shelf.ensure("c", files["c"])

    assert shelf.held() == ["a", "c"]
    assert shelf.cache.size_bytes == 80
    assert shelf.reader.released == 1


def test_one_larger_than_the_cache_is_held_alone(shelf: Shelf) -> None:
    shelf.ensure("a", shelf.put("a", 40))

    shelf.ensure("b", shelf.put("b", 500))

    assert shelf.held() == ["b"]


@pytest.mark.parametrize("change", ["shorter", "longer", "other"])
def test_what_is_not_what_the_manifest_says_is_not_kept(shelf: Shelf, change: str) -> None:
    file = shelf.put("a", 10)
    content = {"shorter": b"a" * 9, "longer": b"a" * 11, "other": b"b" * 10}[change]
    shelf.objects.inner.put("a", [content])

    with pytest.raises(StorageError, match="damaged"):
        shelf.ensure("a", file)

    assert shelf.held() == []
    assert shelf.cache.size_bytes == 0


def test_a_failed_fetch_can_be_tried_again(shelf: Shelf) -> None:
    file = shelf.put("a", 10)
    shelf.objects.fail_at(1)
    with pytest.raises(OSError, match="network"):
        shelf.ensure("a", file)

    shelf.ensure("a", file)

    assert shelf.held() == ["a"]


def test_two_threads_fetch_a_file_once(shelf: Shelf) -> None:
    file = shelf.put("a", 50)
    threads = [threading.Thread(target=shelf.ensure, args=("a", file)) for _ in range(8)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert shelf.objects.call_log == [("read", "a")]


def test_a_closed_cache_takes_no_more_files(shelf: Shelf) -> None:
    file = shelf.put("a", 10)
    shelf.ensure("a", file)
    shelf.cache.close()

    with pytest.raises(LogClosedError):
        shelf.ensure("a", file)
    with pytest.raises(LogClosedError):
        shelf.cache.admit("/cache/b", shelf.reader, "first")

    assert not shelf.fs.exists("/cache")


def test_a_file_that_grows_makes_room_and_counts_as_it_grows(shelf: Shelf) -> None:
    shelf.ensure("a", shelf.put("a", 60))
    shelf.cache.admit("/cache/b", shelf.reader, "first")

    grown = [shelf.cache.grow("/cache/b", "first", 30) for _ in range(2)]

    assert grown == [True, True]
    assert shelf.held() == ["b"]
    assert shelf.cache.size_bytes == 60


def test_a_file_that_was_removed_does_not_grow(shelf: Shelf) -> None:
    shelf.cache.admit("/cache/b", shelf.reader, "first")
    shelf.cache.grow("/cache/b", "first", 50)

    shelf.ensure("a", shelf.put("a", 90))

    assert not shelf.cache.grow("/cache/b", "first", 50)
    assert not shelf.cache.grow("/cache/a", "first", 50)
    assert shelf.held() == ["a"]
    assert shelf.cache.size_bytes == 90


def test_bytes_of_a_file_that_was_removed_do_not_count_for_its_successor(shelf: Shelf) -> None:
    shelf.cache.admit("/cache/b", shelf.reader, "first")
    shelf.cache.admit("/cache/b", shelf.reader, "second")

    assert not shelf.cache.grow("/cache/b", "first", 30)
    assert shelf.cache.size_bytes == 0


def test_what_an_earlier_process_left_is_removed(shelf: Shelf) -> None:
    shelf.ensure("a", shelf.put("a", 10))
    again = SegmentCache(shelf.fs, "/cache", bytes_max=100)

    again.ensure("/cache/b", shelf.objects, "b", shelf.put("b", 10), shelf.reader)

    assert shelf.held() == ["b"]


def test_a_file_whose_reader_was_interrupted_is_fetched_by_the_next() -> None:
    where: str | None = ""
    place = 0
    while where is not None:
        place += 1
        shelf = Shelf()
        file = shelf.put("a", 10)

        where = interrupt(lambda: shelf.ensure("a", file), place)  # noqa: B023

        thread = threading.Thread(target=shelf.ensure, args=("a", file), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), where
        assert shelf.held() == ["a"], where
    assert place > 20


def test_nobody_waits_for_an_interrupted_reader_whose_traceback_is_kept(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shelf.put("a", 10)
    claim = shelf.cache._claim

    def claim_and_stop(*arguments: Any) -> bool:
        claim(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(shelf.cache, "_claim", claim_and_stop)
        with pytest.raises(KeyboardInterrupt) as kept:
            shelf.ensure("a", file)

    thread = threading.Thread(target=shelf.ensure, args=("a", file), daemon=True)
    thread.start()
    thread.join(30)

    assert kept.tb is not None
    assert not thread.is_alive()
    assert shelf.held() == ["a"]

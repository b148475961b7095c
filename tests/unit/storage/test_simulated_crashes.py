"""The model of a power cut itself: what must survive, and that all that may happen does."""

import errno
import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from cordwood.errors import DirectoryLockedError
from cordwood.storage.files import read_whole, replace_file, write_all
from fakes.simulated_fs import ShortWrite, SimulatedFileSystem

_Seen = TypeVar("_Seen")


@pytest.fixture
def fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_directory("/data")
    fs.sync_directory("/")
    return fs


def content(fs: SimulatedFileSystem, path: str) -> bytes | None:
    return read_whole(fs, path, limit=1 << 20) if fs.exists(path) else None


def outcomes(
    fs: SimulatedFileSystem,
    observe: Callable[[SimulatedFileSystem], _Seen],
    *,
    seeds: int = 300,
) -> set[_Seen]:
    return {observe(fs.crash(random.Random(seed))) for seed in range(seeds)}


def durable_file(fs: SimulatedFileSystem, data: bytes) -> str:
    file = fs.create("/data/file")
    write_all(file, 0, data)
    file.sync()
    fs.sync_directory("/data")
    return "/data/file"


# --- bytes ----------------------------------------------------------------------------------


def test_synced_bytes_under_a_synced_name_always_survive(fs: SimulatedFileSystem) -> None:
    path = durable_file(fs, b"promised")
    write_all(fs.open_write(path), 8, b"not promised")

    survivors = outcomes(fs, lambda after: content(after, path))

    assert all(survivor is not None and survivor[:8] == b"promised" for survivor in survivors)
    assert {b"promised", b"promisednot promised"} <= survivors


def test_an_unsynced_write_may_be_torn_at_any_byte(fs: SimulatedFileSystem) -> None:
    path = durable_file(fs, b"")
    write_all(fs.open_write(path), 0, b"abcdef")

    survivors = outcomes(fs, lambda after: content(after, path), seeds=3000)

    assert {b"abcdef"[:size] for size in range(7)} <= survivors


def test_a_lost_write_may_leave_its_size_as_zeros(fs: SimulatedFileSystem) -> None:
    path = durable_file(fs, b"")
    write_all(fs.open_write(path), 0, b"abcdef")

    assert bytes(6) in outcomes(fs, lambda after: content(after, path))


def test_a_later_write_may_survive_an_earlier_one(fs: SimulatedFileSystem) -> None:
    path = durable_file(fs, b"........")
    file = fs.open_write(path)
    file.write_at(0, b"first")
    file.write_at(8, b"second")

    survivors = outcomes(fs, lambda after: content(after, path))

    assert b"........second" in survivors
    assert b"first..." in survivors


def test_a_write_may_survive_in_some_sectors_only(fs: SimulatedFileSystem) -> None:
    path = durable_file(fs, b"")
    write_all(fs.open_write(path), 0, b"x" * 1536)

    survivors = outcomes(fs, lambda after: content(after, path))

    assert b"x" * 512 + bytes(512) + b"x" * 512 in survivors
    assert bytes(512) + b"x" * 512 + bytes(512) in survivors


def test_an_unsynced_truncation_may_go_either_way(fs: SimulatedFileSystem) -> None:
    path = durable_file(fs, b"0123456789")
    fs.open_write(path).truncate_to(4)

    assert outcomes(fs, lambda after: content(after, path)) == {b"0123", b"0123456789"}


def test_a_failed_sync_is_not_made_good_by_a_later_one(fs: SimulatedFileSystem) -> None:
    path = durable_file(fs, b"")
    file = fs.open_write(path)
    file.write_at(0, b"lost?")
    fs.fail_next("sync", OSError(errno.EIO, "injected"))

    with pytest.raises(OSError, match="injected"):
        file.sync()
    file.write_at(5, b"+kept")
    file.sync()

    survivors = outcomes(fs, lambda after: content(after, path))
    assert all(survivor is not None and survivor.endswith(b"+kept") for survivor in survivors)
    assert {b"lost?+kept", bytes(5) + b"+kept"} <= survivors


def test_what_survived_one_power_cut_survives_the_next(fs: SimulatedFileSystem) -> None:
    path = durable_file(fs, b"")
    write_all(fs.open_write(path), 0, b"abcdef")
    after = fs.crash(random.Random(5))

    assert outcomes(after, lambda again: content(again, path)) == {content(after, path)}


def test_a_power_cut_is_decided_by_its_seed_and_leaves_the_original_alone(
    fs: SimulatedFileSystem,
) -> None:
    path = durable_file(fs, b"")
    write_all(fs.open_write(path), 0, bytes(range(200)))

    for seed in range(50):
        first, second = (content(fs.crash(random.Random(seed)), path) for _ in range(2))
        assert first == second
    assert content(fs, path) == bytes(range(200))


# --- names ----------------------------------------------------------------------------------


def test_a_file_whose_name_was_not_synced_may_be_missing_empty_or_whole(
    fs: SimulatedFileSystem,
) -> None:
    write_all(fs.create("/data/file"), 0, b"abc")

    survivors = outcomes(fs, lambda after: content(after, "/data/file"))

    assert {None, b"", b"abc"} <= survivors


def test_a_synced_file_whose_name_was_not_synced_is_missing_or_whole(
    fs: SimulatedFileSystem,
) -> None:
    file = fs.create("/data/file")
    write_all(file, 0, b"abc")
    file.sync()

    assert outcomes(fs, lambda after: content(after, "/data/file")) == {None, b"abc"}


def test_an_unsynced_rename_is_old_or_new_and_never_neither_or_both(
    fs: SimulatedFileSystem,
) -> None:
    path = durable_file(fs, b"abc")
    fs.rename(path, "/data/renamed")

    names = outcomes(fs, lambda after: tuple(entry.name for entry in after.list("/data")))

    assert names == {("file",), ("renamed",)}


def test_an_unsynced_removal_may_go_either_way(fs: SimulatedFileSystem) -> None:
    path = durable_file(fs, b"abc")
    fs.remove(path)

    assert outcomes(fs, lambda after: content(after, path)) == {None, b"abc"}


@pytest.mark.parametrize("change", ["create", "rename", "remove"])
def test_a_synced_directory_keeps_every_change(fs: SimulatedFileSystem, change: str) -> None:
    path = durable_file(fs, b"abc")
    match change:
        case "create":
            fs.create("/data/new")
        case "rename":
            fs.rename(path, "/data/new")
        case "remove":
            fs.remove(path)
    expected = tuple(entry.name for entry in fs.list("/data"))

    fs.sync_directory("/data")

    names = outcomes(fs, lambda after: tuple(entry.name for entry in after.list("/data")))
    assert names == {expected}


def test_unsynced_names_are_lost_or_kept_one_by_one(fs: SimulatedFileSystem) -> None:
    fs.create("/data/a")
    fs.create("/data/b")

    names = outcomes(fs, lambda after: tuple(entry.name for entry in after.list("/data")))

    assert names == {(), ("a",), ("b",), ("a", "b")}


def test_a_lost_directory_takes_its_files_along(fs: SimulatedFileSystem) -> None:
    fs.make_directory("/data/topic-0")
    file = fs.create("/data/topic-0/file")
    write_all(file, 0, b"abc")
    file.sync()
    fs.sync_directory("/data/topic-0")

    survivors = outcomes(fs, lambda after: content(after, "/data/topic-0/file"))

    assert survivors == {None, b"abc"}


def test_a_rename_between_directories_is_durable_when_both_are_synced(
    fs: SimulatedFileSystem,
) -> None:
    path = durable_file(fs, b"abc")
    fs.make_directory("/other")
    fs.sync_directory("/")
    fs.rename(path, "/other/file")

    fs.sync_directory("/other")
    half = outcomes(fs, lambda after: (content(after, path), content(after, "/other/file")))
    fs.sync_directory("/data")
    whole = outcomes(fs, lambda after: (content(after, path), content(after, "/other/file")))

    assert half == {(b"abc", None), (None, b"abc")}
    assert whole == {(None, b"abc")}


def test_a_failed_directory_sync_is_made_good_by_a_later_one(fs: SimulatedFileSystem) -> None:
    path = durable_file(fs, b"abc")
    fs.rename(path, "/data/renamed")
    fs.fail_next("sync_directory", OSError(errno.EIO, "injected"))

    with pytest.raises(OSError, match="injected"):
        fs.sync_directory("/data")
    after_failure = outcomes(fs, lambda after: content(after, path))
    fs.sync_directory("/data")

    assert after_failure == {None, b"abc"}
    assert outcomes(fs, lambda after: content(after, path)) == {None}


def test_half_a_tree_may_be_left_of_its_removal(fs: SimulatedFileSystem) -> None:
    fs.make_directory("/data/tree")
    for name in ("a", "b"):
        fs.create(f"/data/tree/{name}")
    for directory in ("/data/tree", "/data"):
        fs.sync_directory(directory)
    fs.fail_at(2, OSError(errno.EIO, "injected"))

    with pytest.raises(OSError, match="injected"):
        fs.remove_tree("/data/tree")

    assert [entry.name for entry in fs.list("/data/tree")] == ["b"]


# --- words ----------------------------------------------------------------------------------


def two_words(after: SimulatedFileSystem) -> tuple[int, int]:
    survivor = after.map_words("/data/words", 2, writable=False)
    return survivor[0], survivor[1]


def test_words_survive_as_they_were_at_one_moment_since_the_last_sync(
    fs: SimulatedFileSystem,
) -> None:
    words = fs.map_words("/data/words", 2, writable=True)
    fs.sync_directory("/data")
    words[0] = 1
    words[1] = 10
    words.sync()
    words[0] = 2
    words[1] = 20
    words[0] = 3

    assert outcomes(fs, two_words) == {(1, 10), (2, 10), (2, 20), (3, 20)}


def test_synced_words_always_survive(fs: SimulatedFileSystem) -> None:
    words = fs.map_words("/data/words", 2, writable=True)
    fs.sync_directory("/data")
    words[0] = 1
    words[1] = 10
    words.sync()

    assert outcomes(fs, two_words) == {(1, 10)}


def test_a_sync_after_another_store_makes_good_a_failed_sync_of_words(
    fs: SimulatedFileSystem,
) -> None:
    words = fs.map_words("/data/words", 2, writable=True)
    words.sync()
    fs.sync_directory("/data")
    words[0] = 1
    fs.fail_next("sync", OSError(errno.EIO, "injected"))
    with pytest.raises(OSError, match="injected"):
        words.sync()

    words[1] = 10
    words.sync()

    assert outcomes(fs, two_words) == {(1, 10)}


def test_a_failed_sync_of_words_settles_nothing(fs: SimulatedFileSystem) -> None:
    words = fs.map_words("/data/words", 1, writable=True)
    words.sync()
    fs.sync_directory("/data")
    words[0] = 1
    fs.fail_next("sync", OSError(errno.EIO, "injected"))

    with pytest.raises(OSError, match="injected"):
        words.sync()
    words.sync()

    read = outcomes(fs, lambda after: after.map_words("/data/words", 1, writable=False)[0])
    assert read == {0, 1}


# --- SIGKILL --------------------------------------------------------------------------------


def test_a_killed_process_leaves_all_it_wrote_and_no_lock(fs: SimulatedFileSystem) -> None:
    held = fs.lock("/data")
    write_all(fs.create("/data/file"), 0, b"abc")
    words = fs.map_words("/data/words", 1, writable=True)
    words[0] = 7

    after = fs.kill()

    assert content(after, "/data/file") == b"abc"
    assert after.map_words("/data/words", 1, writable=False)[0] == 7
    after.lock("/data")
    with pytest.raises(DirectoryLockedError):
        fs.lock("/data")
    held.release()


def test_what_a_killed_process_did_not_sync_can_still_be_lost(fs: SimulatedFileSystem) -> None:
    path = durable_file(fs, b"")
    write_all(fs.open_write(path), 0, b"abc")

    after = fs.kill()

    assert {b"", b"abc"} <= outcomes(after, lambda again: content(again, path))


# --- faults ---------------------------------------------------------------------------------


def test_the_nth_call_fails_once_and_before_it_has_any_effect(fs: SimulatedFileSystem) -> None:
    file = fs.create("/data/file")
    fs.fail_at(2, OSError(errno.EIO, "injected"))

    file.write_at(0, b"a")
    with pytest.raises(OSError, match="injected"):
        file.write_at(1, b"b")
    file.write_at(1, b"c")

    assert content(fs, "/data/file") == b"ac"


def test_a_short_write_writes_part_and_says_so(fs: SimulatedFileSystem) -> None:
    file = fs.create("/data/file")
    fs.fail_at(1, ShortWrite(2))

    written = file.write_at(0, b"abcdef")

    assert written == 2
    assert content(fs, "/data/file") == b"ab"


def test_calls_are_counted_and_logged(fs: SimulatedFileSystem) -> None:
    before = fs.calls
    file = fs.create("/data/file")
    file.write_at(0, b"a")
    file.sync()
    fs.sync_directory("/data")

    assert fs.calls - before == 4
    assert fs.call_log[before:] == [
        ("create", "/data/file"),
        ("write_at", "/data/file"),
        ("sync", "/data/file"),
        ("sync_directory", "/data"),
    ]


def test_a_full_disk_takes_what_fits_and_then_nothing(fs: SimulatedFileSystem) -> None:
    fs.capacity_bytes = 4
    file = fs.create("/data/file")

    written = file.write_at(0, b"abcdef")

    assert written == 4
    with pytest.raises(OSError, match="No space"):
        file.write_at(4, b"x")
    with pytest.raises(OSError, match="No space"):
        fs.create("/data/another")
    assert file.write_at(0, b"wxyz") == 4, "bytes that are there can be written over"


def test_removing_a_file_makes_room(fs: SimulatedFileSystem) -> None:
    fs.capacity_bytes = 4
    fs.create("/data/file").write_at(0, b"abcd")

    fs.remove("/data/file")

    assert fs.free_bytes("/data") == 4


# --- the protocol everyone relies on ----------------------------------------------------------


def test_replacing_a_file_leaves_old_or_new_wherever_the_power_goes(
    fs: SimulatedFileSystem,
) -> None:
    path = durable_file(fs, b"old content")
    start = fs.calls
    replace_file(fs.kill(), path, b"probe")
    for call in range(1, 10):
        trial = fs.kill()
        trial.fail_at(call, OSError(errno.EIO, "power goes here"))
        try:
            replace_file(trial, path, b"new")
            finished = True
        except OSError:
            finished = False

        survivors = outcomes(trial, lambda after: content(after, path))

        assert survivors <= ({b"new"} if finished else {b"old content", b"new"})
    assert fs.calls == start

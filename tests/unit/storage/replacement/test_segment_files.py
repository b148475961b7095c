"""The segment files of a directory: what counts, what is completed and what is undone."""

import contextlib
import errno
import random
from collections.abc import Iterator, Sequence

import pytest

from cordwood.errors import StorageError
from cordwood.format.batch import BatchDecoder
from cordwood.format.file_names import FileKind
from cordwood.quantities import Offset
from cordwood.storage.files import DirectoryEntry, read_whole, write_all
from cordwood.storage.replacement import segment_files
from cordwood.storage.replacement.segment_files import (
    find_segments,
    is_settled,
    standing_segments,
    tidy_directory,
)
from fakes.client_batches import client_batch
from fakes.simulated_fs import SimulatedFileSystem


@pytest.fixture
def fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_directory("/log")
    return fs


def put(fs: SimulatedFileSystem, name: str, content: bytes = b"") -> None:
    file = fs.create(f"/log/{name}")
    write_all(file, 0, content)
    file.sync()


def put_segment(
    fs: SimulatedFileSystem, base: int, end: int, suffix: str = "", *, mark: bytes = b"v"
) -> None:
    data = b"".join(bytes(client_batch(mark, base_offset=n)) for n in range(base, end))
    for kind, content in (("log", data), ("index", b""), ("timeindex", b"")):
        put(fs, f"{base:020}.{kind}{suffix}", content)


def names(fs: SimulatedFileSystem) -> set[str]:
    return {entry.name for entry in fs.list("/log")}


def stems(fs: SimulatedFileSystem) -> list[int]:
    return [segment.base_offset for segment in find_segments(fs, "/log")]


def files_of(*bases: int) -> set[str]:
    return {f"{base:020}.{kind}" for base in bases for kind in ("log", "index", "timeindex")}


# --- which segments count ----------------------------------------------------------------------

KINDS = ("log", "index", "timeindex")
OLD = (10, 20, 30)  # they end where the segment at 40 begins
NEW = {10: 23, 25: 38}  # base offset: end of its batches


def entries_of(names: Sequence[str]) -> list[DirectoryEntry]:
    return [DirectoryEntry(name=name, is_directory=False, size=0) for name in sorted(names)]


def standing(names: Sequence[str]) -> list[str]:
    """The log files that count."""
    found = standing_segments(entries_of(names), lambda base: Offset(NEW[base]))
    return [
        f"{segment.base_offset}{'.swap' * (FileKind.LOG in segment.swapped)}" for segment in found
    ]


def name_of(base: int, kind: str, suffix: str = "") -> str:
    return f"{base:020}.{kind}{suffix}"


def swap_steps() -> Iterator[tuple[str, list[str]]]:
    """The directory after each rename of a swap: the owner's, or that of the next owner."""
    names = {name_of(base, kind) for base in (0, *OLD, 40) for kind in KINDS}
    names |= {name_of(base, kind, ".cleaned") for base in NEW for kind in KINDS}
    yield "old", sorted(names)
    for base in sorted(NEW, reverse=True):
        for kind in KINDS:
            names = names - {name_of(base, kind, ".cleaned")} | {name_of(base, kind, ".swap")}
            is_last = base == min(NEW) and kind == KINDS[-1]
            yield "new" if is_last else "old", sorted(names)
    announced = names
    for base in OLD:
        for kind in KINDS:
            names = names - {name_of(base, kind)} | {name_of(base, kind, ".deleted")}
            yield "new", sorted(names)
    for kinds in (KINDS[:1], KINDS[1:]):
        for base in NEW:
            for kind in kinds:
                names = names - {name_of(base, kind, ".swap")} | {name_of(base, kind)}
                yield "new", sorted(names)
    names = announced  # the owner died: the next one unlinks, in any order
    for base in reversed(OLD):
        for kind in KINDS:
            names = names - {name_of(base, kind)}
            yield "new", sorted(names)


def test_at_each_step_of_a_swap_either_the_old_group_counts_or_the_new_one() -> None:
    steps = list(swap_steps())
    assert len(steps) == 1 + 6 + 9 + 6 + 9

    for number, (group, names) in enumerate(steps):
        found = [int(name.removesuffix(".swap")) for name in standing(names)]

        assert found == [0, *(OLD if group == "old" else NEW), 40], (number, names)


def test_a_segment_is_taken_under_the_name_that_it_has_now() -> None:
    names = [
        name_of(10, "log"),
        name_of(10, "index", ".swap"),
        name_of(10, "txnindex", ".swap"),
        name_of(25, "log", ".swap"),
        name_of(25, "index", ".swap"),
    ]

    first, second = standing_segments(entries_of(names), lambda base: Offset(NEW[base]))

    assert first.swapped == {FileKind.INDEX, FileKind.TXNINDEX}
    assert first.has_transactions
    assert second.swapped == {FileKind.LOG, FileKind.INDEX}
    assert not second.has_transactions


def test_an_old_index_of_aborted_transactions_does_not_count_beside_a_replacement() -> None:
    names = [name_of(10, "log"), name_of(10, "txnindex"), name_of(10, "log", ".swap")]

    (found,) = standing_segments(entries_of(names), lambda base: Offset(NEW[base]))

    assert not found.has_transactions


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_look_that_differs_from_the_others_decides_nothing(missing: int) -> None:
    whole = [name_of(base, kind) for base in OLD for kind in KINDS]
    looks = [whole, whole, whole]
    looks[missing] = [name for name in whole if name != name_of(20, "log")]
    before, listed, after = looks

    assert not is_settled(before, entries_of(listed), after)
    assert is_settled(whole, entries_of(whole), whole)


def test_files_that_do_not_decide_may_come_and_go_during_a_look() -> None:
    whole = [name_of(base, "log") for base in OLD]
    others = [name_of(0, "log", ".deleted"), name_of(30, "index"), "leader-epoch-checkpoint"]

    assert is_settled(whole, entries_of([*whole, *others]), whole)


class TornListings(SimulatedFileSystem):
    """Every listing misses the names that are renamed during it: the swap moves on in between."""

    def __init__(self, steps: Sequence[Sequence[str]], files: SimulatedFileSystem) -> None:
        super().__init__()
        self._steps = iter(steps)
        self._files = files
        self._now = set(next(self._steps))

    def names(self, path: str) -> list[str]:
        before, self._now = self._now, set(next(self._steps, self._now))
        return sorted(before & self._now)

    def list(self, path: str) -> list[DirectoryEntry]:
        return entries_of(self.names(path))

    def open_read(self, path: str):  # type: ignore[no-untyped-def]
        return self._files.open_read(path)


def test_listings_that_a_swap_tears_are_repeated_until_it_rests(fs: SimulatedFileSystem) -> None:
    for base, end in NEW.items():
        put_segment(fs, base, end, ".swap")
    all_steps = [names for _, names in swap_steps()][:22]
    for first in range(len(all_steps)):
        found = find_segments(TornListings(all_steps[first:], fs), "/log")

        assert [segment.base_offset for segment in found] == [0, *NEW, 40]


def test_a_directory_that_never_rests_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_files, "_PAUSE_S", 0)
    restless = TornListings(
        [[name_of(base, "log") for base in range(n % 7 + 1)] for n in range(5000)],
        SimulatedFileSystem(),
    )

    with pytest.raises(StorageError, match="changed during each of 1000 looks"):
        find_segments(restless, "/log")


def test_an_undone_replacement_does_not_count_even_if_undoing_it_is_interrupted(
    fs: SimulatedFileSystem,
) -> None:
    put_segment(fs, 0, 6)
    put_segment(fs, 3, 6, ".swap", mark=b"clean")
    put_segment(fs, 0, 3, ".cleaned", mark=b"clean")
    fs.sync_directory("/log")
    fs.sync_directory("/")

    for call in range(1, 30):
        trial = fs.kill()
        trial.fail_at(call, OSError(errno.EIO, "the power goes here"))
        with contextlib.suppress(OSError):
            tidy_directory(trial, "/log")
        for seed in range(4):
            after = trial.crash(random.Random(seed))

            assert stems(after) == [0]
            tidy_directory(after, "/log")
            assert stems(after) == [0]


def test_a_replacement_keeps_its_aborted_transactions_if_it_is_completed_twice(
    fs: SimulatedFileSystem,
) -> None:
    put_segment(fs, 0, 6)
    put_segment(fs, 0, 6, ".swap", mark=b"clean")
    put(fs, f"{0:020}.txnindex.swap", b"aborted")
    fs.sync_directory("/log")
    fs.sync_directory("/")

    for call in range(1, 30):
        trial = fs.kill()
        trial.fail_at(call, OSError(errno.EIO, "the power goes here"))
        with contextlib.suppress(OSError):
            tidy_directory(trial, "/log")
        for seed in range(8):
            after = trial.crash(random.Random(seed))
            tidy_directory(after, "/log")

            assert read_whole(after, f"/log/{0:020}.txnindex", limit=100) == b"aborted"


# --- tidying ------------------------------------------------------------------------------------


def test_a_tidy_directory_stays_as_it_is(fs: SimulatedFileSystem) -> None:
    put_segment(fs, 0, 3)
    put_segment(fs, 3, 5)
    put(fs, f"{3:020}.snapshot", b"x")
    for foreign in ("leader-epoch-checkpoint", "partition.metadata", "high-watermark", "x.log.bak"):
        put(fs, foreign)
    before = names(fs)
    calls = len(fs.call_log)

    found = tidy_directory(fs, "/log")

    assert names(fs) == before
    assert [(s.base_offset, s.has_indexes) for s in found.segments] == [(0, True), (3, True)]
    assert found.snapshots == [3]
    assert {operation for operation, _ in fs.call_log[calls:]} == {"list", "names"}


@pytest.mark.parametrize("suffix", [".deleted", ".cleaned"])
def test_what_was_being_deleted_or_built_is_removed(fs: SimulatedFileSystem, suffix: str) -> None:
    put_segment(fs, 0, 3)
    put_segment(fs, 0, 2, suffix)
    put(fs, f"{7:020}.snapshot.deleted")
    put(fs, f"{7:020}.txnindex{suffix}")

    tidy_directory(fs, "/log")

    assert names(fs) == files_of(0)


def test_an_index_without_its_log_is_removed(fs: SimulatedFileSystem) -> None:
    put_segment(fs, 0, 3)
    for kind in ("index", "timeindex", "txnindex"):
        put(fs, f"{9:020}.{kind}")
    put(fs, f"{9:020}.snapshot", b"x")

    found = tidy_directory(fs, "/log")

    assert names(fs) == files_of(0) | {f"{9:020}.snapshot"}
    assert found.snapshots == [9]


@pytest.mark.parametrize(
    ("index_size", "time_size", "has_indexes"),
    [
        (0, 0, True),
        (8, 12, True),
        (7, 12, False),
        (8, 13, False),
        (None, 12, False),
        (8, None, False),
    ],
)
def test_a_segment_has_its_indexes_when_both_are_there_in_whole_entries(
    fs: SimulatedFileSystem, index_size: int | None, time_size: int | None, has_indexes: bool
) -> None:
    put(fs, f"{0:020}.log")
    if index_size is not None:
        put(fs, f"{0:020}.index", bytes(index_size))
    if time_size is not None:
        put(fs, f"{0:020}.timeindex", bytes(time_size))

    [found] = find_segments(fs, "/log")

    assert found.has_indexes == has_indexes


def test_a_finished_replacement_goes_in_and_what_it_replaces_goes_out(
    fs: SimulatedFileSystem,
) -> None:
    put_segment(fs, 0, 3)
    put_segment(fs, 3, 6)
    put_segment(fs, 6, 8)
    put_segment(fs, 0, 6, ".swap", mark=b"clean")

    tidy_directory(fs, "/log")

    assert names(fs) == files_of(0, 6)
    assert b"clean" in read_whole(fs, f"/log/{0:020}.log", limit=10_000)


def test_a_replacement_by_several_segments_goes_in_whole(fs: SimulatedFileSystem) -> None:
    put_segment(fs, 0, 6)
    put_segment(fs, 6, 8)
    put_segment(fs, 0, 3, ".swap", mark=b"clean")
    put_segment(fs, 3, 6, ".swap", mark=b"clean")

    tidy_directory(fs, "/log")

    assert stems(fs) == [0, 3, 6]


def test_a_replacement_that_was_not_complete_is_thrown_away(fs: SimulatedFileSystem) -> None:
    put_segment(fs, 0, 6)
    put_segment(fs, 3, 6, ".swap", mark=b"clean")
    put_segment(fs, 0, 3, ".cleaned", mark=b"clean")

    tidy_directory(fs, "/log")

    assert names(fs) == files_of(0)
    assert b"clean" not in read_whole(fs, f"/log/{0:020}.log", limit=10_000)


def test_a_replacement_before_the_unfinished_one_goes_in(fs: SimulatedFileSystem) -> None:
    put_segment(fs, 0, 3)
    put_segment(fs, 3, 6)
    put_segment(fs, 0, 3, ".swap", mark=b"clean")
    put_segment(fs, 3, 6, ".cleaned", mark=b"clean")

    tidy_directory(fs, "/log")

    assert names(fs) == files_of(0, 3)
    assert b"clean" in read_whole(fs, f"/log/{0:020}.log", limit=10_000)
    assert b"clean" not in read_whole(fs, f"/log/{3:020}.log", limit=10_000)


def test_a_replacement_without_a_record_goes_in_too(fs: SimulatedFileSystem) -> None:
    put_segment(fs, 0, 3)
    put_segment(fs, 3, 6)
    put_segment(fs, 0, 0, ".swap")

    tidy_directory(fs, "/log")

    assert stems(fs) == [0, 3]
    assert fs.size(f"/log/{0:020}.log") == 0


def test_a_replacement_that_is_damaged_takes_nothing_away_but_its_namesake(
    fs: SimulatedFileSystem,
) -> None:
    put_segment(fs, 0, 3)
    put_segment(fs, 3, 6)
    put_segment(fs, 6, 9)
    put_segment(fs, 0, 6, ".swap", mark=b"clean")
    file = fs.open_write(f"/log/{0:020}.log.swap")
    file.write_at(150, b"!")
    file.sync()

    tidy_directory(fs, "/log")

    assert stems(fs) == [0, 3, 6]
    assert b"clean" in read_whole(fs, f"/log/{0:020}.log", limit=10_000)


def test_tidying_may_be_interrupted_anywhere_and_done_again(fs: SimulatedFileSystem) -> None:
    put_segment(fs, 0, 3)
    put_segment(fs, 3, 6)
    put_segment(fs, 6, 8)
    put_segment(fs, 0, 6, ".swap", mark=b"clean")
    put_segment(fs, 9, 9, ".deleted")
    fs.sync_directory("/log")
    fs.sync_directory("/")

    for call in range(1, 40):
        trial = fs.kill()
        trial.fail_at(call, OSError(errno.EIO, "the power goes here"))
        with contextlib.suppress(OSError):
            tidy_directory(trial, "/log")
        for seed in range(4):
            after = trial.crash(random.Random(seed))
            tidy_directory(after, "/log")
            data = b"".join(
                read_whole(after, f"/log/{base:020}.log", limit=10_000) for base in stems(after)
            )
            decoder = BatchDecoder()
            decoder.scan(memoryview(data), 0, len(data))
            offsets = [decoder.batch(n).base_offset for n in range(decoder.count)]
            assert offsets == list(range(8)), "all data, nothing twice"


def test_a_snapshot_that_was_begun_and_not_written_is_removed(fs: SimulatedFileSystem) -> None:
    put(fs, f"{3:020}.snapshot")
    put(fs, f"{9:020}.snapshot", b"x")

    found = tidy_directory(fs, "/log")

    assert found.snapshots == [9]
    assert names(fs) == {f"{9:020}.snapshot"}

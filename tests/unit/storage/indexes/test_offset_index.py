"""From an offset to a position at or before it."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import FormatError
from cordwood.quantities import INT32_MAX, FilePosition, Offset
from cordwood.storage.files import RealFileSystem, read_whole, replace_file
from cordwood.storage.indexes.offset_index import OffsetIndex
from fakes.simulated_fs import SimulatedFileSystem

BASE = Offset(45)
PATH = "/00000000000000000045.index"
ENTRIES = [(51, 10), (52, 20), (57, 40), (90, 41)]


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def filled(
    fs: SimulatedFileSystem, entries: list[tuple[int, int]] = ENTRIES, *, max_bytes: int = 800
) -> OffsetIndex:
    index = OffsetIndex.create(fs, PATH, BASE, max_bytes=max_bytes)
    for offset, position in entries:
        index.add(Offset(offset), FilePosition(position))
    return index


def all_entries(index: OffsetIndex) -> list[tuple[int, int]]:
    return [index.entry(slot) for slot in range(index.count)]


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (0, (45, 0)),
        (45, (45, 0)),
        (50, (45, 0)),
        (51, (51, 10)),
        (52, (52, 20)),
        (56, (52, 20)),
        (57, (57, 40)),
        (89, (57, 40)),
        (90, (90, 41)),
        (2**62, (90, 41)),
    ],
)
def test_a_lookup_finds_the_last_entry_at_or_below_the_offset(
    fs: SimulatedFileSystem, offset: int, found: tuple[int, int], is_sealed: bool
) -> None:
    index = filled(fs)
    if is_sealed:
        index.seal()

    assert index.lookup(Offset(offset)) == found


@given(
    relative_offsets=st.lists(st.integers(0, INT32_MAX), unique=True).map(sorted),
    target=st.integers(-1, INT32_MAX + 1),
)
def test_a_lookup_agrees_with_looking_at_every_entry(
    relative_offsets: list[int], target: int
) -> None:
    entries = [(BASE + relative, slot * 7) for slot, relative in enumerate(relative_offsets)]
    index = filled(SimulatedFileSystem(), entries, max_bytes=1 << 20)

    found = index.lookup(Offset(BASE + target))

    expected = [entry for entry in entries if entry[0] <= BASE + target]
    assert found == (expected[-1] if expected else (BASE, 0))


@given(
    relative_offsets=st.lists(st.integers(0, 1000), unique=True).map(sorted),
    target=st.integers(0, 1001),
)
def test_the_batch_of_an_offset_ends_at_or_before_the_position_beyond_it(
    relative_offsets: list[int], target: int
) -> None:
    entries = [(BASE + relative, slot * 7) for slot, relative in enumerate(relative_offsets)]
    index = filled(SimulatedFileSystem(), entries, max_bytes=1 << 20)

    found = index.position_beyond(Offset(BASE + target))

    # The entry of the batch that holds the offset, or of a later one, is the first of these.
    behind = [position for offset, position in entries if offset > BASE + target]
    assert found == (behind[1] if len(behind) > 1 else None)


def test_an_empty_index_gives_the_start_of_the_segment(fs: SimulatedFileSystem) -> None:
    index = filled(fs, [])

    assert index.lookup(Offset(100)) == (BASE, 0)
    assert index.last_offset == BASE
    assert index.count == 0


@pytest.mark.parametrize("left", [0, 1, 7, 8, 9, 24, 31])
def test_an_index_that_lost_its_end_still_gives_no_place_too_late(
    fs: SimulatedFileSystem, left: int
) -> None:
    filled(fs).seal()
    fs.open_write(PATH).truncate_to(left)

    index = OffsetIndex.open_sealed(fs, PATH, BASE)

    assert index.lookup(Offset(90)) == ([(45, 0), *ENTRIES][left // 8])


def test_a_missing_index_gives_the_start_of_the_segment(fs: SimulatedFileSystem) -> None:
    assert OffsetIndex.open_sealed(fs, PATH, BASE).lookup(Offset(90)) == (BASE, 0)


@pytest.mark.parametrize("damaged", [b"\xff\xff\xff\xff\0\0\0\1", b"\0\0\0\1\xff\xff\xff\xff"])
def test_a_negative_number_in_the_file_is_no_answer(
    fs: SimulatedFileSystem, damaged: bytes
) -> None:
    replace_file(fs, PATH, damaged)

    assert OffsetIndex.open_sealed(fs, PATH, BASE).lookup(Offset(90)) == (BASE, 0)


def test_an_entry_is_eight_big_endian_bytes(fs: SimulatedFileSystem) -> None:
    filled(fs, [(45 + 0x01020304, 0x05060708)]).flush()

    assert read_whole(fs, PATH, limit=100) == bytes(range(1, 9))


@pytest.mark.parametrize("slot", [-1, 4, 100])
def test_a_slot_that_is_not_there_is_an_error(fs: SimulatedFileSystem, slot: int) -> None:
    index = filled(fs)

    with pytest.raises(IndexError):
        index.entry(slot)


@pytest.mark.parametrize("offset", [45, 89, 90])
def test_an_offset_that_is_not_beyond_the_last_is_refused(
    fs: SimulatedFileSystem, offset: int
) -> None:
    index = filled(fs)

    with pytest.raises(FormatError):
        index.add(Offset(offset), FilePosition(1000))

    assert all_entries(index) == ENTRIES


@pytest.mark.parametrize("relative", [-1, INT32_MAX + 1])
def test_an_offset_too_far_from_the_base_is_refused(fs: SimulatedFileSystem, relative: int) -> None:
    index = filled(fs, [])

    with pytest.raises(FormatError):
        index.add(Offset(BASE + relative), FilePosition(0))


def test_the_base_offset_and_the_farthest_one_fit(fs: SimulatedFileSystem) -> None:
    index = filled(fs, [(BASE, 0), (BASE + INT32_MAX, INT32_MAX)])

    assert index.last_offset == BASE + INT32_MAX


def test_a_full_index_says_so_and_takes_no_more(fs: SimulatedFileSystem) -> None:
    index = filled(fs, ENTRIES[:2], max_bytes=3 * 8 + 7)
    before = index.is_full
    index.add(Offset(57), FilePosition(40))

    assert not before
    assert index.is_full
    with pytest.raises(FormatError, match="full"):
        index.add(Offset(90), FilePosition(41))


def test_encoded_entries_are_taken_and_fill_the_room(fs: SimulatedFileSystem) -> None:
    filled(fs).flush()
    encoded = read_whole(fs, PATH, limit=100)
    index = OffsetIndex.create(fs, PATH, BASE, max_bytes=3 * 8)

    index.extend(encoded[:8])
    assert index.room == 2
    index.extend(memoryview(encoded)[8:24])

    assert all_entries(index) == ENTRIES[:3]
    assert index.room == 0
    assert index.is_full


def test_a_sealed_index_counts_as_full(fs: SimulatedFileSystem) -> None:
    index = filled(fs)

    index.seal()

    assert index.is_full


def test_reopened_it_has_the_same_entries_and_takes_more(fs: SimulatedFileSystem) -> None:
    filled(fs).seal()

    index = OffsetIndex.open_active(fs, PATH, BASE, max_bytes=800)
    reopened = all_entries(index)
    index.add(Offset(91), FilePosition(50))

    assert reopened == ENTRIES
    assert index.last_offset == 91


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize(
    ("offset", "kept"), [(0, 0), (51, 0), (52, 1), (55, 2), (57, 2), (90, 3), (91, 4), (2**62, 4)]
)
def test_truncating_drops_the_entries_at_or_beyond_the_offset(
    fs: SimulatedFileSystem, offset: int, kept: int, is_sealed: bool
) -> None:
    index = filled(fs)
    index.seal() if is_sealed else index.flush()

    index.truncate_to(Offset(offset))

    assert all_entries(index) == ENTRIES[:kept]
    assert fs.size(PATH) == kept * 8


def test_clearing_drops_all_and_lets_it_start_again(fs: SimulatedFileSystem) -> None:
    index = filled(fs)

    index.clear()
    index.add(Offset(46), FilePosition(0))

    assert all_entries(index) == [(46, 0)]


@pytest.mark.parametrize(
    ("position", "size", "bound"),
    [
        (0, 10, 51),
        (0, 11, 52),
        (10, 10, 52),
        (20, 20, 57),
        (40, 1, 90),
        (40, 2, None),
        (99, 0, None),
    ],
)
def test_the_upper_bound_is_the_first_entry_at_or_past_the_range(
    fs: SimulatedFileSystem, position: int, size: int, bound: int | None
) -> None:
    assert filled(fs).upper_bound(FilePosition(position), size) == bound


def test_sound_entries_pass_the_check(fs: SimulatedFileSystem) -> None:
    filled(fs, []).sanity_check(log_size=0)
    filled(fs, [(BASE, 0)]).sanity_check(log_size=1)
    filled(fs).sanity_check(log_size=42)


@pytest.mark.parametrize(
    "content",
    [
        b"\0\0\0\1\0\0\0\1\0",
        b"\xff\xff\xff\xff\0\0\0\1",
        b"\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\2",
        b"\0\0\0\2\0\0\0\1\0\0\0\1\0\0\0\2",
        b"\0\0\0\1\0\0\0\2\0\0\0\2\0\0\0\2",
        b"\0\0\0\1\0\0\0\x2a",
    ],
    ids=["torn", "below base", "equal", "decreasing", "same position", "past the log"],
)
def test_entries_no_writer_wrote_fail_the_check(fs: SimulatedFileSystem, content: bytes) -> None:
    replace_file(fs, PATH, content)

    with pytest.raises(FormatError):
        OffsetIndex.open_sealed(fs, PATH, BASE).sanity_check(log_size=42)


def test_readers_of_a_growing_file_always_find_a_prefix(tmp_path: Path) -> None:
    fs, path = RealFileSystem(), str(tmp_path / "index")
    writer = OffsetIndex.create(fs, path, BASE, max_bytes=8000)
    rng = random.Random(3)

    for number in range(1, 200):
        writer.add(Offset(BASE + number), FilePosition(number))
        if rng.random() < 0.3:
            writer.flush()
        reader = OffsetIndex.open_sealed(fs, path, BASE)
        found = all_entries(reader)
        assert found == all_entries(writer)[: len(found)]

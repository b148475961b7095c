"""From a timestamp to an offset before which nothing newer lies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import FormatError
from cordwood.quantities import INT32_MAX, Offset, TimestampMs
from cordwood.storage.files import read_whole, replace_file
from cordwood.storage.indexes.time_index import TimeIndex
from fakes.simulated_fs import SimulatedFileSystem

BASE = Offset(345)
PATH = "/00000000000000000345.timeindex"
ENTRIES = [(10, 355), (20, 365), (30, 365), (40, 385)]


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def filled(
    fs: SimulatedFileSystem, entries: list[tuple[int, int]] = ENTRIES, *, max_bytes: int = 1200
) -> TimeIndex:
    index = TimeIndex.create(fs, PATH, BASE, max_bytes=max_bytes)
    for timestamp, offset in entries:
        index.add(TimestampMs(timestamp), Offset(offset))
    return index


def all_entries(index: TimeIndex) -> list[tuple[int, int]]:
    return [index.entry(slot) for slot in range(index.count)]


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (-1, (-1, 345)),
        (9, (-1, 345)),
        (10, (10, 355)),
        (19, (10, 355)),
        (20, (20, 365)),
        (39, (30, 365)),
        (40, (40, 385)),
        (2**62, (40, 385)),
    ],
)
def test_a_lookup_finds_the_last_entry_at_or_below_the_timestamp(
    fs: SimulatedFileSystem, timestamp: int, found: tuple[int, int], is_sealed: bool
) -> None:
    index = filled(fs)
    if is_sealed:
        index.seal()

    assert index.lookup(TimestampMs(timestamp)) == found


@given(
    timestamps=st.lists(st.integers(0, 2**62), unique=True).map(sorted),
    target=st.integers(-1, 2**62),
)
def test_a_lookup_agrees_with_looking_at_every_entry(timestamps: list[int], target: int) -> None:
    entries = [(timestamp, BASE + slot) for slot, timestamp in enumerate(timestamps)]
    index = filled(SimulatedFileSystem(), entries, max_bytes=1 << 20)

    found = index.lookup(TimestampMs(target))

    expected = [entry for entry in entries if entry[0] <= target]
    assert found == (expected[-1] if expected else (-1, BASE))


def test_an_empty_or_missing_index_gives_the_start_of_the_segment(
    fs: SimulatedFileSystem,
) -> None:
    missing = TimeIndex.open_sealed(fs, PATH, BASE)
    from_missing = missing.lookup(TimestampMs(5)), missing.last_entry
    empty = filled(fs, [])

    assert from_missing == ((-1, BASE), (-1, BASE))
    assert empty.lookup(TimestampMs(5)) == (-1, BASE)
    assert empty.last_entry == (-1, BASE)


@pytest.mark.parametrize("damaged", [b"\xff" * 8 + b"\0\0\0\1", b"\0" * 8 + b"\xff" * 4])
def test_a_negative_number_in_the_file_is_no_answer(
    fs: SimulatedFileSystem, damaged: bytes
) -> None:
    replace_file(fs, PATH, damaged)

    assert TimeIndex.open_sealed(fs, PATH, BASE).lookup(TimestampMs(90)) == (-1, BASE)


def test_an_entry_is_twelve_big_endian_bytes(fs: SimulatedFileSystem) -> None:
    filled(fs, [(0x0102030405060708, BASE + 0x090A0B0C)]).flush()

    assert read_whole(fs, PATH, limit=100) == bytes(range(1, 13))


@pytest.mark.parametrize("timestamp", [-1, 0, 39, 40])
def test_a_timestamp_that_is_no_larger_than_the_last_says_nothing_new(
    fs: SimulatedFileSystem, timestamp: int
) -> None:
    index = filled(fs)

    was_added = index.add(TimestampMs(timestamp), Offset(400))

    assert not was_added
    assert all_entries(index) == ENTRIES


def test_a_segment_without_timestamps_has_an_empty_index(fs: SimulatedFileSystem) -> None:
    index = filled(fs, [(-1, 350), (-1, 351)])

    assert index.count == 0


def test_a_smaller_offset_is_refused_and_an_equal_one_is_not(fs: SimulatedFileSystem) -> None:
    index = filled(fs)

    with pytest.raises(FormatError):
        index.add(TimestampMs(50), Offset(384))
    was_added = index.add(TimestampMs(50), Offset(385))

    assert was_added
    assert index.last_entry == (50, 385)


@pytest.mark.parametrize("relative", [-1, INT32_MAX + 1])
def test_an_offset_too_far_from_the_base_is_refused(fs: SimulatedFileSystem, relative: int) -> None:
    index = filled(fs, [])

    with pytest.raises(FormatError):
        index.add(TimestampMs(1), Offset(BASE + relative))


def test_it_is_full_one_slot_early_and_the_last_entry_can_be_forced(
    fs: SimulatedFileSystem,
) -> None:
    index = filled(fs, ENTRIES[:2], max_bytes=3 * 12)

    assert index.is_full
    with pytest.raises(FormatError, match="full"):
        index.add(TimestampMs(30), Offset(375))
    assert index.add(TimestampMs(30), Offset(375), force=True)
    assert index.add(TimestampMs(40), Offset(385), force=True), "the limit was lowered meanwhile"


def test_the_slot_kept_for_sealing_is_no_room_for_encoded_entries(fs: SimulatedFileSystem) -> None:
    filled(fs).flush()
    encoded = read_whole(fs, PATH, limit=100)
    index = TimeIndex.create(fs, PATH, BASE, max_bytes=3 * 12)

    assert index.room == 2
    index.extend(encoded[:24])

    assert index.room == 0
    assert all_entries(index) == ENTRIES[:2]
    assert index.add(TimestampMs(40), Offset(385), force=True)


def test_a_full_index_still_ignores_what_says_nothing_new(fs: SimulatedFileSystem) -> None:
    index = filled(fs, ENTRIES[:2], max_bytes=3 * 12)

    assert not index.add(TimestampMs(20), Offset(365))


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize(
    ("offset", "kept"), [(0, 0), (355, 0), (356, 1), (365, 1), (366, 3), (386, 4)]
)
def test_truncating_drops_the_entries_at_or_beyond_the_offset(
    fs: SimulatedFileSystem, offset: int, kept: int, is_sealed: bool
) -> None:
    index = filled(fs)
    index.seal() if is_sealed else index.flush()

    index.truncate_to(Offset(offset))

    assert all_entries(index) == ENTRIES[:kept]
    assert index.last_entry == [(-1, BASE), *ENTRIES][kept]
    assert fs.size(PATH) == kept * 12


def test_reopened_it_has_the_same_entries_and_takes_more(fs: SimulatedFileSystem) -> None:
    filled(fs).seal()

    index = TimeIndex.open_active(fs, PATH, BASE, max_bytes=1200)
    reopened = all_entries(index)
    index.add(TimestampMs(50), Offset(400))

    assert reopened == ENTRIES
    assert index.last_entry == (50, 400)


def test_an_index_kafka_left_preallocated_shows_its_entries_only(fs: SimulatedFileSystem) -> None:
    filled(fs).seal()
    fs.open_write(PATH).truncate_to(1200)

    index = TimeIndex.open_sealed(fs, PATH, BASE)

    assert all_entries(index) == ENTRIES
    assert index.lookup(TimestampMs(99)) == (40, 385)


@pytest.mark.parametrize("slot", [-1, 4])
def test_a_slot_that_is_not_there_is_an_error(fs: SimulatedFileSystem, slot: int) -> None:
    index = filled(fs)

    with pytest.raises(IndexError):
        index.entry(slot)


def test_sound_entries_pass_the_check(fs: SimulatedFileSystem) -> None:
    filled(fs, []).sanity_check()
    filled(fs, [(0, BASE)]).sanity_check()
    filled(fs).sanity_check()


@pytest.mark.parametrize(
    "entries",
    [
        [b"\0" * 8 + b"\0\0\0\1", b"\0"],
        [b"\0" * 8 + b"\xff\xff\xff\xff"],
        [b"\0" * 7 + b"\2" + b"\0\0\0\1", b"\0" * 7 + b"\1" + b"\0\0\0\2"],
        [b"\0" * 7 + b"\1" + b"\0\0\0\1", b"\0" * 7 + b"\1" + b"\0\0\0\2"],
        [b"\0" * 7 + b"\1" + b"\0\0\0\2", b"\0" * 7 + b"\2" + b"\0\0\0\1"],
    ],
    ids=["torn", "below base", "time goes back", "time stands", "offset goes back"],
)
def test_entries_no_writer_wrote_fail_the_check(
    fs: SimulatedFileSystem, entries: list[bytes]
) -> None:
    replace_file(fs, PATH, b"".join(entries))

    with pytest.raises(FormatError):
        TimeIndex.open_sealed(fs, PATH, BASE).sanity_check()

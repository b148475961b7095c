"""Walking a segment's file: every sound batch once, and never silently past a bad one."""

import random

import pytest

from cordwood.errors import CorruptSegmentError
from cordwood.format import kernel_tables as tables
from cordwood.quantities import INT64_MAX, FilePosition, Offset
from cordwood.storage.files import write_all
from cordwood.storage.log_file.segment_reader import SegmentReader
from fakes.client_batches import client_batch
from fakes.simulated_fs import SimulatedFileSystem

PATH = "/00000000000000000010.log"
BASE = Offset(10)
NO_HINT = (BASE, FilePosition(0))
SECTOR = 512


def batches(count: int, *, value: bytes = b"value", gap: int = 0) -> list[bytes]:
    """Batches of two records each, from the base offset on."""
    made, offset = [], int(BASE)
    for _ in range(count):
        made.append(bytes(client_batch(value, value, base_offset=offset)))
        offset += 2 + gap
    return made


def reader_of(
    data: bytes, *, size: int | None = None, offset_limit: int = INT64_MAX, is_dense: bool = False
) -> SegmentReader:
    fs = SimulatedFileSystem()
    file = fs.create(PATH)
    write_all(file, 0, data)
    return SegmentReader(
        file,
        BASE,
        len(data) if size is None else size,
        offset_limit=offset_limit,
        is_dense=is_dense,
    )


def walk(
    reader: SegmentReader,
    position: int = 0,
    next_offset: int = BASE,
    *,
    start_offset: int = 0,
    stop_offset: int = INT64_MAX,
    chunk_bytes: int = 1 << 15,
) -> list[int]:
    """The base offsets of the batches a walk hands out."""
    found = []
    for first, end in reader.chunks(
        FilePosition(position),
        Offset(next_offset),
        start_offset=Offset(start_offset),
        stop_offset=stop_offset,
        chunk_bytes=chunk_bytes,
    ):
        found += [reader.decoder.field(i, tables.B_BASE_OFFSET) for i in range(first, end)]
    return found


# --- walking ------------------------------------------------------------------------------------


def test_an_empty_segment_has_nothing() -> None:
    assert walk(reader_of(b"")) == []
    assert reader_of(b"").locate(BASE, NO_HINT) is None


@pytest.mark.parametrize("chunk_bytes", [61, 100, 200, 1 << 15])
def test_every_batch_is_handed_out_once_whatever_the_chunks(chunk_bytes: int) -> None:
    reader = reader_of(b"".join(batches(50)))

    assert walk(reader, chunk_bytes=chunk_bytes) == list(range(10, 110, 2))
    assert reader.next_offset == 110


@pytest.mark.parametrize("size", [10_000, 40_000, 3_000_000])
def test_a_batch_larger_than_a_chunk_is_read_whole(size: int) -> None:
    data = b"".join([*batches(1), bytes(client_batch(b"x" * size, base_offset=12))])

    assert walk(reader_of(data)) == [10, 12]


def test_bytes_behind_the_size_are_not_looked_at() -> None:
    data = b"".join(batches(3))
    size = len(data)

    assert walk(reader_of(data + b"half a batch", size=size)) == [10, 12, 14]


def test_a_file_shorter_than_it_was_said_to_be_ends_where_it_ends() -> None:
    data = b"".join(batches(3))

    assert walk(reader_of(data, size=len(data) + 500)) == [10, 12, 14]


@pytest.mark.parametrize(
    ("start", "expected"), [(0, [10, 12, 14]), (11, [10, 12, 14]), (12, [12, 14]), (16, [])]
)
def test_batches_before_the_start_are_passed_over(start: int, expected: list[int]) -> None:
    assert walk(reader_of(b"".join(batches(3))), start_offset=start) == expected


@pytest.mark.parametrize(
    ("stop", "expected"), [(10, []), (11, [10]), (12, [10]), (13, [10, 12]), (99, [10, 12, 14])]
)
def test_a_walk_ends_before_the_batch_that_begins_at_the_stop(
    stop: int, expected: list[int]
) -> None:
    assert walk(reader_of(b"".join(batches(3))), stop_offset=stop) == expected


def test_half_a_batch_behind_the_stop_is_nobody_s_business() -> None:
    data = b"".join(batches(3))

    assert walk(reader_of(data[:-5]), stop_offset=14) == [10, 12]


def test_gaps_are_walked_over_unless_the_log_is_dense() -> None:
    data = b"".join(batches(3, gap=5))

    assert walk(reader_of(data)) == [10, 17, 24]
    with pytest.raises(CorruptSegmentError) as caught:
        walk(reader_of(data, is_dense=True))
    assert caught.value.first_offset == 12
    assert caught.value.next_offset == 24, "a batch in the wrong place is not believed itself"


# --- finding an offset --------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(8, 22))
@pytest.mark.parametrize("gap", [0, 3])
def test_an_offset_is_in_the_batch_that_holds_it_or_the_first_behind(offset: int, gap: int) -> None:
    made = batches(3, gap=gap)
    reader = reader_of(b"".join(made))
    bases = [10, 12 + gap, 14 + 2 * gap]

    position = reader.locate(Offset(offset), NO_HINT)

    expected = [number for number, base in enumerate(bases) if base + 2 > offset]
    if not expected:
        assert position is None
    else:
        assert position == sum(len(batch) for batch in made[: expected[0]])
        assert reader.next_offset == bases[expected[0]]


def test_a_hint_shortens_the_walk() -> None:
    made = batches(100)
    reader = reader_of(b"".join(made))
    hint = (Offset(10 + 2 * 90 + 1), FilePosition(sum(len(batch) for batch in made[:90])))

    position = reader.locate(Offset(10 + 2 * 95), hint)

    assert position == sum(len(batch) for batch in made[:95])
    assert reader.chunk_position == hint[1], "nothing before the hint was read"


@pytest.mark.parametrize("last_offset", [10, 50, 2**40])
@pytest.mark.parametrize("position", [1, 7, 61, 500, 10_000])
def test_a_hint_that_points_nowhere_is_not_believed(last_offset: int, position: int) -> None:
    made = batches(100)
    reader = reader_of(b"".join(made))

    found = reader.locate(Offset(30), (Offset(last_offset), FilePosition(position)))

    assert found == sum(len(batch) for batch in made[:10])


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", range(5))
@pytest.mark.parametrize("at", [0, 5, 9, 16, 17, 25, 40, 60, 61, -1])
def test_a_changed_byte_costs_its_batch_and_is_named(bad: int, at: int) -> None:
    made = batches(5, value=b"some value")
    size = len(made[0])
    data = bytearray(b"".join(made))
    where = bad * size + (at if at >= 0 else size + at)
    data[where] ^= 0x21

    reader = reader_of(bytes(data), is_dense=True, offset_limit=20)
    with pytest.raises(CorruptSegmentError) as caught:
        walk(reader)

    # A wrong size makes what follows look wrong too; never anything before it.
    assert caught.value.position in (bad * size, (bad + 1) * size)
    assert caught.value.first_offset in (10 + 2 * bad, 12 + 2 * bad)
    if bad < 4:
        assert caught.value.next_offset == 12 + 2 * bad
    else:
        assert caught.value.next_offset is None


def test_sound_batches_before_damage_are_handed_out_first() -> None:
    data = bytearray(b"".join(batches(5)))
    size = len(data) // 5
    data[3 * size + 30] ^= 1
    reader = reader_of(bytes(data))

    walking = reader.chunks(FilePosition(0), BASE)
    first, end = next(walking)
    seen = [reader.decoder.field(i, tables.B_BASE_OFFSET) for i in range(first, end)]
    with pytest.raises(CorruptSegmentError):
        next(walking)

    assert seen == [10, 12, 14]
    assert (reader.position, reader.next_offset) == (3 * size, 16)


@pytest.mark.parametrize("cut", [1, 30, 61, 70])
def test_a_batch_cut_short_is_damage_without_anything_behind(cut: int) -> None:
    data = b"".join(batches(3, value=b"v" * 20))

    with pytest.raises(CorruptSegmentError) as caught:
        walk(reader_of(data[:-cut]))

    assert (caught.value.first_offset, caught.value.next_offset) == (14, None)


def test_reading_goes_on_behind_damage_that_ends_before_the_offset() -> None:
    made = batches(6)
    data = bytearray(b"".join(made))
    size = len(made[0])
    data[size + 8 : size + 12] = b"\xff\xff\xff\xff"  # an impossible size

    reader = reader_of(bytes(data))

    assert reader.locate(Offset(16), NO_HINT) == 3 * size
    with pytest.raises(CorruptSegmentError) as caught:
        reader.locate(Offset(12), NO_HINT)
    assert (caught.value.first_offset, caught.value.next_offset) == (12, 14)


@pytest.mark.parametrize("junk", [1, 61, 1000, (1 << 20) - 5, (1 << 20) + 5])
def test_the_next_sound_batch_is_found_behind_any_stretch_of_junk(junk: int) -> None:
    rng = random.Random(junk)
    made = batches(2)
    data = made[0] + rng.randbytes(junk) + made[1]
    reader = reader_of(data)

    found = reader.resume_after(len(made[0]), Offset(12))

    assert found is not None
    assert (found.base_offset, found.position) == (12, len(made[0]) + junk)


def test_what_looks_like_a_batch_but_fails_its_checksum_is_not_believed() -> None:
    first, second, third = batches(3)
    broken = bytearray(second)
    broken[-1] ^= 1
    reader = reader_of(first + b"junk" + bytes(broken) + third)

    found = reader.resume_after(len(first), Offset(12))

    assert found is not None
    assert found.base_offset == 14


def test_a_batch_whose_offsets_go_back_or_too_far_is_not_where_reading_goes_on() -> None:
    first, second, third = batches(3)
    far = bytes(client_batch(b"x", base_offset=BASE + 2**31))
    reader = reader_of(second + b"junk" + first + far + third, offset_limit=100)

    found = reader.resume_after(len(second), Offset(14))

    assert found is not None
    assert found.base_offset == 14


FAR = 0x01020310  # no byte of its lower half is zero, and each cut of it is behind the base offset


def behind_a_lost_sector(lost: int, *batches: bytes) -> bytes:
    """Batches of which the first has `lost` bytes in a sector that never reached the disk."""
    return bytes(SECTOR) + b"".join(batches)[lost:]


@pytest.mark.parametrize("lost", range(1, 12))
def test_an_offset_whose_first_bytes_were_lost_is_not_believed(lost: int) -> None:
    torn = bytes(client_batch(b"x", base_offset=FAR))
    reader = reader_of(behind_a_lost_sector(lost, torn))

    found = reader.resume_after(0, BASE)

    assert found is None or found.base_offset == FAR


def test_reading_goes_on_behind_a_batch_whose_offset_was_lost() -> None:
    torn = bytes(client_batch(b"x", b"y", base_offset=FAR))
    whole = bytes(client_batch(b"z", base_offset=FAR + 2))
    reader = reader_of(behind_a_lost_sector(7, torn, whole))

    found = reader.resume_after(0, BASE)

    assert found is not None
    assert found.base_offset == FAR + 2


@pytest.mark.parametrize("lost", range(1, 12))
@pytest.mark.parametrize("is_last", [False, True])
def test_a_small_offset_in_two_sectors_is_believed_if_the_log_goes_on_with_the_next(
    lost: int, is_last: bool
) -> None:
    first, second, third = batches(3)
    data = first.ljust(SECTOR - lost, b"j") + second + (b"" if is_last else third)
    reader = reader_of(data, offset_limit=14 if is_last else INT64_MAX)

    found = reader.resume_after(len(first), Offset(12))

    assert found is not None
    assert (found.base_offset, found.position) == (12, SECTOR - lost)


def sized(base: int, size: int) -> bytes:
    """A batch of one record with that many bytes."""
    short = len(client_batch(bytes(200), base_offset=base))
    made = bytes(client_batch(bytes(200 + size - short), base_offset=base))
    assert len(made) == size
    return made


@pytest.mark.parametrize("is_dense", [False, True])
def test_batches_that_lost_their_first_sectors_alike_do_not_confirm_each_other(
    is_dense: bool,
) -> None:
    """Each sector has the end of one batch, and was lost with the front of the next one."""
    far = BASE + 0x0100
    made = b"".join(sized(far + number, SECTOR) for number in range(3))
    data = bytearray(behind_a_lost_sector(7, made))
    for number in (1, 2):
        at = (number + 1) * SECTOR - 7
        data[at : at + 7] = bytes(7)
    reader = reader_of(bytes(data), is_dense=is_dense)

    assert reader.resume_after(0, BASE) is None


def test_batches_in_two_sectors_each_confirm_each_other_if_they_are_many() -> None:
    made = b"".join(sized(BASE + 1 + number, SECTOR) for number in range(40))
    reader = reader_of(bytes(behind_a_lost_sector(0, bytes(SECTOR - 7) + made)[: -SECTOR - 7]))

    found = reader.resume_after(0, BASE)

    assert found is not None
    assert found.base_offset == BASE + 1


@pytest.mark.parametrize(("lost", "room"), [(5, 1 << 24), (6, 1 << 16), (7, 1 << 8)])
def test_behind_damage_a_gap_is_believed_where_it_leaves_no_room_for_a_larger_offset(
    lost: int, room: int
) -> None:
    """The offset of the batch in two sectors may be too small by `room`, or by more."""
    second = bytes(client_batch(b"x", b"y", base_offset=BASE + 2))

    def found(gap: int, *, is_dense: bool = False) -> int | None:
        third = bytes(client_batch(b"z", base_offset=BASE + 4 + gap))
        data = b"j" * (SECTOR - lost) + second + third
        batch = reader_of(data, is_dense=is_dense).resume_after(0, BASE)
        return None if batch is None else batch.base_offset

    assert found(0) == found(room - 1) == BASE + 2
    assert found(room) == BASE + 4 + room
    assert found(0, is_dense=True) == BASE + 2
    assert found(1, is_dense=True) == BASE + 5


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_to_the_bytes_a_batch_is_itself_or_missing(seed: int) -> None:
    """Walks over damage to the end: what is handed out is always what was written."""
    rng = random.Random(seed)
    made = [
        bytes(client_batch(b"%d" % n * rng.randrange(1, 40), base_offset=BASE + n))
        for n in range(30)
    ]
    data = bytearray(b"".join(made))
    for _ in range(rng.choice([1, 2, 5])):
        at = rng.randrange(len(data))
        match rng.choice(["flip", "zero", "fill", "remove", "insert"]):
            case "flip":
                data[at] ^= 1 << rng.randrange(8)
            case "zero":
                data[at : at + 50] = bytes(len(data[at : at + 50]))
            case "fill":
                data[at : at + 20] = rng.randbytes(len(data[at : at + 20]))
            case "remove":
                del data[at : at + rng.randrange(1, 100)]
            case _:
                data[at:at] = rng.randbytes(rng.randrange(1, 100))
    reader = reader_of(bytes(data), is_dense=True, offset_limit=BASE + 30)
    position, offset = FilePosition(0), BASE
    found: dict[int, bytes] = {}
    while True:
        try:
            for first, end in reader.chunks(position, offset):
                for run in reader.decoder.runs(first, end):
                    found |= {r.offset: r.value or b"" for r in run.records()}
            break
        except CorruptSegmentError as error:
            following = reader.resume_after(error.position + 1, error.first_offset)
            if following is None:
                break
            assert following.base_offset == error.next_offset
            position, offset = FilePosition(following.position), following.base_offset

    for number, value in found.items():
        written = made[number - BASE]
        assert value in written, (number, value)

"""Batches in a buffer: known answers, edges of the tables, refused ranges."""

from array import array

import crc32c
import pytest

from cordwood.format import batch_scan
from cordwood.format import kernel_tables as tables
from cordwood.quantities import INT64_MAX
from fakes.client_batches import client_batch
from fakes.parsed_batches import scan, words


@pytest.mark.parametrize(
    ("base_offset", "is_dense", "stop"),
    [
        (1, True, tables.STOP_END),
        (1, False, tables.STOP_END),
        (2, True, tables.STOP_BAD_OFFSET),
        (2, False, tables.STOP_END),
        (0, False, tables.STOP_BAD_OFFSET),
    ],
)
def test_where_a_batch_may_begin_depends_on_whether_there_may_be_gaps(
    base_offset: int, is_dense: bool, stop: int
) -> None:
    data = bytes(client_batch(b"a") + client_batch(b"b", base_offset=base_offset))

    (_, _, reason), _ = scan(data, is_dense=is_dense)

    assert reason == stop


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2)])
def test_a_batch_must_end_at_the_offset_limit(limit: int, count: int) -> None:
    data = bytes(client_batch(b"a", b"b") + client_batch(b"c", base_offset=2))

    (found, _, reason), _ = scan(data, offset_limit=limit)

    assert found == count
    assert reason == (tables.STOP_END if count == 2 else tables.STOP_BAD_OFFSET)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (0, 1000), (5, 2)])
def test_a_range_outside_the_data_is_refused(start: int, end: int) -> None:
    data = bytes(client_batch(b"v"))
    with pytest.raises(IndexError):
        batch_scan.scan_headers(data, start, end, 0, INT64_MAX, INT64_MAX, False, words(14))
    if start < 0 or end > len(data):
        with pytest.raises(IndexError):
            batch_scan.find_batch_start(data, start, end, 0, 100, len(data))


def test_a_table_without_a_row_ends_a_scan_at_once() -> None:
    data = bytes(client_batch(b"v"))

    found = batch_scan.scan_headers(data, 0, len(data), 0, INT64_MAX, INT64_MAX, False, words(13))

    assert found == (0, 0, tables.STOP_FULL)


@pytest.mark.parametrize("junk", [0, 1, 60, 61, 500])
def test_a_batch_is_found_behind_any_junk(junk: int) -> None:
    batch = bytes(client_batch(b"v", base_offset=7))
    data = b"\x55" * junk + batch

    found = batch_scan.find_batch_start(data, 0, len(data), 0, 1000, len(data))

    assert found == junk


@pytest.mark.parametrize(
    ("offset_min", "offset_max", "room"), [(8, 1000, 500), (0, 6, 500), (0, 1000, 69)]
)
def test_a_batch_with_offsets_or_a_size_that_cannot_be_is_passed_over(
    offset_min: int, offset_max: int, room: int
) -> None:
    data = bytes(client_batch(b"value", base_offset=7))

    assert batch_scan.find_batch_start(data, 0, len(data), offset_min, offset_max, room) == -1


def test_nothing_is_found_in_less_than_a_header() -> None:
    assert batch_scan.find_batch_start(bytes(60), 0, 60, 0, 100, 60) == -1
    assert batch_scan.find_batch_start(b"", 0, 0, 0, 100, 0) == -1


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 1000])
def test_the_portable_checksum_is_that_of_the_library(size: int) -> None:
    data = bytes((i * 37) % 256 for i in range(size))

    assert batch_scan.crc32c_portable(data) == crc32c.crc32c(data)


def test_the_portable_checksum_has_the_known_check_value() -> None:
    assert batch_scan.crc32c_portable(b"123456789") == 0xE3069283
    assert batch_scan.crc32c_portable(bytes(32)) == 0x8A9136AA


def test_batch_rows_that_lie_outside_the_data_are_refused() -> None:
    data = bytes(client_batch(b"v"))
    _, rows = scan(data)

    with pytest.raises(IndexError):
        batch_scan.first_bad_checksum(data, rows, 17, memoryview(data), crc32c.crc32c)
    rows[tables.B_SIZE] += 1
    with pytest.raises(IndexError):
        batch_scan.first_bad_checksum(data, rows, 1, memoryview(data), crc32c.crc32c)


def walk(
    batches: list[bytearray], interval: int, *, base_offset: int = 0, position: int = 0
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], "array[int]"]:
    data = b"".join(bytes(batch) for batch in batches)
    (count, _, _), rows = scan(data)
    state = words(tables.STATE_WORDS)
    state[tables.S_MAX_TIMESTAMP] = state[tables.S_INDEXED_TIMESTAMP] = -1
    state[tables.S_FIRST_TIMESTAMP] = -2
    offset_entries, time_entries = bytearray(8 * count), bytearray(12 * count)
    offset_size, time_size = batch_scan.index_batches(
        rows, count, position, base_offset, interval, state, offset_entries, time_entries
    )
    return (
        [
            (
                int.from_bytes(offset_entries[i : i + 4], "big"),
                int.from_bytes(offset_entries[i + 4 : i + 8], "big"),
            )
            for i in range(0, offset_size, 8)
        ],
        [
            (
                int.from_bytes(time_entries[i : i + 8], "big"),
                int.from_bytes(time_entries[i + 8 : i + 12], "big"),
            )
            for i in range(0, time_size, 12)
        ],
        state,
    )


def test_the_first_batch_is_never_indexed_and_the_others_by_the_bytes_before_them() -> None:
    batches = [client_batch(b"x", base_offset=10 + i) for i in range(4)]
    size = len(batches[0])

    assert walk(batches, 0, base_offset=10)[0] == [(i, i * size) for i in (1, 2, 3)]
    assert walk(batches, size, base_offset=10)[0] == [(2, 2 * size)]
    assert walk(batches, size - 1, base_offset=10, position=1000)[0] == [
        (i, 1000 + i * size) for i in (1, 2, 3)
    ]


def test_time_entries_carry_the_largest_time_so_far_and_whose_it_was() -> None:
    times = [50, 20, 90, 70]
    batches = [client_batch(b"x", base_offset=i, timestamps=[time]) for i, time in enumerate(times)]

    _, entries, state = walk(batches, 0)

    assert entries == [(50, 0), (90, 2)]
    assert state[tables.S_MAX_TIMESTAMP] == 90
    assert state[tables.S_MAX_TIMESTAMP_OFFSET] == 2
    assert state[tables.S_FIRST_TIMESTAMP] == 50
    assert state[tables.S_RECORD_COUNT] == 4


def test_an_offset_too_far_from_the_base_is_not_indexed() -> None:
    far = 2**31
    batches = [client_batch(b"x"), client_batch(b"y", base_offset=far)]

    assert walk(batches, 0)[0] == []
    assert walk([client_batch(b"x"), client_batch(b"y", base_offset=far - 1)], 0)[0] == [
        (far - 1, len(batches[0]))
    ]


def test_headers_lead_to_the_batch_of_an_offset_or_say_where_to_go_on() -> None:
    first, second = client_batch(b"a", b"b"), client_batch(b"c" * 100, base_offset=2)
    data = bytes(first + second)

    assert batch_scan.find_batch(data, 0, len(data), 0, 0, 1) == (0, len(first), -1)
    assert batch_scan.find_batch(data, 0, len(first) + 61, -1, 1, 2) == (
        len(first),
        len(second),
        -1,
    ), "the batch may lie partly behind the end"
    assert batch_scan.find_batch(data, 0, len(first) + 60, 0, 0, 2) == (len(first), 0, 2)
    assert batch_scan.find_batch(data, 0, 61, 0, 0, 9) == (len(first), 0, 2)
    assert batch_scan.find_batch(data, 0, len(data), 0, 0, 9) == (len(data), 0, 3)


@pytest.mark.parametrize(("first_offset", "last_offset"), [(1, 0), (-1, 0), (-1, 2)])
def test_headers_that_do_not_continue_from_the_index_lead_nowhere(
    first_offset: int, last_offset: int
) -> None:
    data = bytes(client_batch(b"a", b"b") + client_batch(b"c", base_offset=2))

    found = batch_scan.find_batch(data, 0, len(data), first_offset, last_offset, 1)

    assert found == (-1, 0, -1)

"""The loops over bytes, each by itself: known answers, edges of the tables, refused ranges."""

from array import array

import crc32c
import pytest

from cordwood.format import kernel_tables as tables
from cordwood.format import kernels
from cordwood.format.record import Record
from cordwood.quantities import INT64_MAX
from fakes.client_batches import client_batch, raw_batch, raw_record


def words(count: int) -> "array[int]":
    return array("q", bytes(8 * count))


def scan(
    data: bytes,
    *,
    rows: int = 16,
    next_offset_min: int = 0,
    stop_offset: int = INT64_MAX,
    offset_limit: int = INT64_MAX,
    is_dense: bool = False,
) -> tuple[tuple[int, int, int], "array[int]"]:
    table = words(tables.BATCH_ROW * rows)
    found = kernels.scan_headers(
        data, 0, len(data), next_offset_min, stop_offset, offset_limit, is_dense, table
    )
    return found, table


def parsed(batch: bytes, count: int) -> "array[int]":
    _, rows = scan(batch)
    table = words(tables.RECORD_ROW * count)
    code, _, _ = kernels.parse_records(batch, 61, len(batch), rows, 0, table, 0)
    assert code == tables.RECORDS_OK
    return table


# --- headers ------------------------------------------------------------------------------------


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
        kernels.scan_headers(data, start, end, 0, INT64_MAX, INT64_MAX, False, words(14))
    if start < 0 or end > len(data):
        with pytest.raises(IndexError):
            kernels.find_batch_start(data, start, end, 0, 100, len(data))


def test_a_table_without_a_row_ends_a_scan_at_once() -> None:
    data = bytes(client_batch(b"v"))

    found = kernels.scan_headers(data, 0, len(data), 0, INT64_MAX, INT64_MAX, False, words(13))

    assert found == (0, 0, tables.STOP_FULL)


@pytest.mark.parametrize("junk", [0, 1, 60, 61, 500])
def test_a_batch_is_found_behind_any_junk(junk: int) -> None:
    batch = bytes(client_batch(b"v", base_offset=7))
    data = b"\x55" * junk + batch

    found = kernels.find_batch_start(data, 0, len(data), 0, 1000, len(data))

    assert found == junk


@pytest.mark.parametrize(
    ("offset_min", "offset_max", "room"), [(8, 1000, 500), (0, 6, 500), (0, 1000, 69)]
)
def test_a_batch_with_offsets_or_a_size_that_cannot_be_is_passed_over(
    offset_min: int, offset_max: int, room: int
) -> None:
    data = bytes(client_batch(b"value", base_offset=7))

    assert kernels.find_batch_start(data, 0, len(data), offset_min, offset_max, room) == -1


def test_nothing_is_found_in_less_than_a_header() -> None:
    assert kernels.find_batch_start(bytes(60), 0, 60, 0, 100, 60) == -1
    assert kernels.find_batch_start(b"", 0, 0, 0, 100, 0) == -1


# --- checksums ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 1000])
def test_the_portable_checksum_is_that_of_the_library(size: int) -> None:
    data = bytes((i * 37) % 256 for i in range(size))

    assert kernels.crc32c_portable(data) == crc32c.crc32c(data)


def test_the_portable_checksum_has_the_known_check_value() -> None:
    assert kernels.crc32c_portable(b"123456789") == 0xE3069283
    assert kernels.crc32c_portable(bytes(32)) == 0x8A9136AA


def test_batch_rows_that_lie_outside_the_data_are_refused() -> None:
    data = bytes(client_batch(b"v"))
    _, rows = scan(data)

    with pytest.raises(IndexError):
        kernels.first_bad_checksum(data, rows, 17, memoryview(data), crc32c.crc32c)
    rows[tables.B_SIZE] += 1
    with pytest.raises(IndexError):
        kernels.first_bad_checksum(data, rows, 1, memoryview(data), crc32c.crc32c)


# --- records ------------------------------------------------------------------------------------


def test_parsing_refuses_tables_that_are_too_small() -> None:
    data = bytes(client_batch(b"a", b"b"))
    _, rows = scan(data)

    for batch, table_rows, first_row in ((16, 2, 0), (-1, 2, 0), (0, 1, 0), (0, 2, 1), (0, 2, -1)):
        with pytest.raises(IndexError):
            kernels.parse_records(
                data, 61, len(data), rows, batch, words(8 * table_rows), first_row
            )
    with pytest.raises(IndexError):
        kernels.parse_plain_batches(data, rows, 0, 17, words(16))


def test_a_run_of_plain_batches_stops_where_the_table_is_full() -> None:
    data = bytes(client_batch(b"a", b"b") + client_batch(b"c", base_offset=2))
    _, rows = scan(data)

    assert kernels.parse_plain_batches(data, rows, 0, 2, words(8 * 2))[:3] == (0, 1, 2)
    assert kernels.parse_plain_batches(data, rows, 0, 2, words(8 * 3))[:3] == (0, 2, 3)


def test_a_run_of_plain_batches_stops_before_a_compressed_and_a_control_batch() -> None:
    for attributes in (1, 2, 3, 4, 0x20):
        second = raw_batch(raw_record(), base_offset=1, attributes=attributes)
        data = bytes(client_batch(b"a") + second)
        _, rows = scan(data)

        assert kernels.parse_plain_batches(data, rows, 0, 2, words(8 * 9))[:3] == (0, 1, 1)


@pytest.mark.parametrize(("offset", "row"), [(0, 0), (10, 0), (11, 1), (12, 2), (13, 3), (99, 3)])
def test_the_first_row_at_an_offset(offset: int, row: int) -> None:
    table = parsed(bytes(client_batch(b"a", b"b", b"c", base_offset=10)), 3)

    assert kernels.first_row_at(table, 0, 3, offset) == row


@pytest.mark.parametrize(("time", "row"), [(0, 0), (5, 0), (6, 2), (9, 2), (10, 3)])
def test_the_first_row_at_a_time_when_times_are_in_no_order(time: int, row: int) -> None:
    table = parsed(bytes(client_batch(b"a", b"b", b"c", timestamps=[5, 3, 9])), 3)

    assert kernels.first_row_at_time(table, 0, 3, time) == row


def test_rows_outside_the_table_are_refused() -> None:
    batch = bytes(client_batch(b"a", b"b"))
    table = parsed(batch, 2)

    with pytest.raises(IndexError):
        kernels.first_row_at(table, 0, 3, 0)
    with pytest.raises(IndexError):
        kernels.first_row_at_time(table, -1, 2, 0)
    with pytest.raises(IndexError):
        kernels.make_records(batch, table, 0, 3, Record)
    with pytest.raises(IndexError):
        kernels.find_key(batch, table, 0, 3, b"k")
    with pytest.raises(IndexError):
        kernels.header_totals(table, 0, 3)
    with pytest.raises(IndexError):
        kernels.check_produced(table, 3, 0, 0, 0, False, words(4))


def test_rows_that_point_outside_the_data_are_refused() -> None:
    batch = bytes(client_batch(b"a", keys=[b"key"]))
    for field, value in ((2, -1), (2, len(batch)), (3, 10_000), (4, INT64_MAX), (5, 10_000)):
        table = parsed(batch, 1)
        table[field] = value

        with pytest.raises(IndexError):
            kernels.make_records(batch, table, 0, 1, Record)


# --- what producers get wrong -------------------------------------------------------------------


def check(
    batch: bytes, count: int, *, oldest: int = 0, newest: int = 100, needs_key: bool = False
) -> tuple[tuple[bool, int, int], list[tuple[int, int]]]:
    faults = words(8)
    found = kernels.check_produced(
        parsed(batch, count), count, 0, oldest, newest, needs_key, faults
    )
    return found, [(faults[i], faults[i + 1]) for i in range(0, 2 * min(found[2], 4), 2)]


def test_sound_records_have_no_faults() -> None:
    batch = bytes(client_batch(b"a", b"b", timestamps=[0, 100]))

    assert check(batch, 2) == ((True, 100, 0), [])


def test_every_fault_is_named_by_its_record() -> None:
    batch = bytes(
        client_batch(b"", b"", b"", b"", keys=[b"k", None, b"k", b"k"], timestamps=[5, 5, 101, -1])
    )

    found, faults = check(batch, 4, needs_key=True)

    assert found == (True, 101, 2)
    assert faults == [(1, 1), (2, 2)]


def test_only_as_many_faults_are_listed_as_there_is_room_for() -> None:
    found, faults = check(bytes(client_batch(*[b""] * 9, timestamps=[500] * 9)), 9)

    assert found[2] == 9
    assert [index for index, _ in faults] == [0, 1, 2, 3]


def test_offsets_that_do_not_run_are_noticed() -> None:
    payload = raw_record(offset_delta=0) + raw_record(offset_delta=2)
    batch = bytes(raw_batch(payload, count=2, last_offset_delta=2))

    assert check(batch, 2, newest=INT64_MAX)[0][0] is False


# --- keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "expected"),
    [  # from Kafka's own tests of its hash
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_of_a_key_is_kafka_s(key: bytes, expected: int) -> None:
    assert kernels.murmur2(key) == expected % 2**32


def test_records_are_sorted_by_key_and_keep_their_order() -> None:
    records = [(b"%d" % (i % 7), b"%d" % i) for i in range(50)] + [(None, b"keyless")]

    lists, chosen = kernels.split_by_key(records, Record, 3, 2)

    assert sorted(len(part) for part in lists) == sorted(
        list(chosen).count(partition) for partition in range(3)
    )
    for partition, part in enumerate(lists):
        assert part == [r for r, p in zip(records, chosen, strict=True) if p == partition]
    assert chosen[-1] == 2
    for key, value in records[:-1]:
        assert key is not None
        assert (key, value) in lists[(kernels.murmur2(key) & 0x7FFFFFFF) % 3]


def test_the_newest_row_of_a_key_is_found() -> None:
    batch = bytes(client_batch(b"1", b"2", b"3", keys=[b"a", b"ab", b"a"]))
    table = parsed(batch, 3)

    assert kernels.find_key(batch, table, 0, 3, b"a") == 2
    assert kernels.find_key(batch, table, 0, 2, b"a") == 0
    assert kernels.find_key(batch, table, 0, 3, b"ab") == 1
    assert kernels.find_key(batch, table, 0, 3, b"b") == -1
    assert kernels.find_key(batch, table, 0, 3, b"") == -1


def test_a_null_key_is_not_the_empty_one() -> None:
    batch = bytes(client_batch(b"1", b"2", keys=[b"", None]))

    assert kernels.find_key(batch, parsed(batch, 2), 0, 2, b"") == 0


# --- writing ------------------------------------------------------------------------------------


def test_encoding_stops_before_the_record_that_does_not_fit_and_says_what_it_needs() -> None:
    out = bytearray(30)

    following, end, _, _, needed = kernels.encode_records(
        [(None, b"x" * 10), (None, b"y" * 20)], 0, 5, Record, out, 0
    )

    assert following == 1
    assert end == len(raw_record(b"x" * 10))
    assert needed == len(raw_record(b"y" * 20, offset_delta=1))


@pytest.mark.parametrize("spare", [0, 1])
def test_encoding_never_writes_past_the_end(spare: int) -> None:
    size = len(raw_record(b"value", key=b"k"))
    out = bytearray(size - spare)

    following, _, _, _, _ = kernels.encode_records([(b"k", b"value")], 0, 5, Record, out, 0)

    assert following == 1 - spare


def test_encoding_at_a_place_outside_the_buffer_is_refused() -> None:
    with pytest.raises(IndexError):
        kernels.encode_records([(b"k", b"v")], 0, 5, Record, bytearray(50), -1)
    with pytest.raises(IndexError):
        kernels.encode_records([(b"k", b"v")], -1, 5, Record, bytearray(50), 0)
    assert kernels.encode_records([(b"k", b"v")], 0, 5, Record, bytearray(5), 50)[0] == 0


# --- columns and indexes ------------------------------------------------------------------------


def test_a_column_is_refused_when_its_buffers_are_too_small() -> None:
    batch = bytes(client_batch(b"abc", b"de"))
    table = parsed(batch, 2)

    def take(ends: int, validity: int, out: int) -> tuple[int, int]:
        return kernels.take_binary(
            batch, table, 0, 2, 4, array("i", bytes(4 * ends)), bytearray(validity),
            bytearray(out), 0, 0,
        )  # fmt: skip

    assert take(3, 1, 5) == (5, 0)
    for sizes in ((2, 1, 5), (3, 0, 5), (3, 1, 4)):
        with pytest.raises(IndexError):
            take(*sizes)
    with pytest.raises(IndexError):
        kernels.take_words(table, 0, 2, 0, words(1), 0)
    with pytest.raises(IndexError):
        kernels.take_words(table, 0, 2, 8, words(2), 0)


def test_header_rows_are_refused_when_they_do_not_fit() -> None:
    batch = bytes(raw_batch(raw_record(headers=[(b"a", b"1"), (b"b", None)])))
    table = parsed(batch, 1)

    assert kernels.header_totals(table, 0, 1) == 2
    ends = array("i", bytes(8))
    assert kernels.take_headers(batch, table, 0, 1, ends, words(16), 0, 0) == 2
    assert list(ends) == [0, 2]
    with pytest.raises(IndexError):
        kernels.take_headers(batch, table, 0, 1, array("i", bytes(8)), words(8), 0, 0)


def walk(
    batches: list[bytearray], interval: int, *, base_offset: int = 0, position: int = 0
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], "array[int]"]:
    data = b"".join(bytes(batch) for batch in batches)
    (count, _, _), rows = scan(data)
    state = words(tables.STATE_WORDS)
    state[tables.S_MAX_TIMESTAMP] = state[tables.S_INDEXED_TIMESTAMP] = -1
    state[tables.S_FIRST_TIMESTAMP] = -2
    offset_entries, time_entries = bytearray(8 * count), bytearray(12 * count)
    offset_size, time_size = kernels.index_batches(
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

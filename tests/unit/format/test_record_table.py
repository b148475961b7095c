"""Questions to a table of records: answers, edges, refused ranges."""

import gc
import pickle
import sys
from array import array
from dataclasses import dataclass

import pytest

from cordwood.format import kernel_tables as tables
from cordwood.format import record_table
from cordwood.format.batch import RecordRun
from cordwood.format.record import Record
from cordwood.quantities import INT64_MAX
from fakes.client_batches import client_batch, raw_batch, raw_record
from fakes.parsed_batches import parsed, words


@dataclass(frozen=True)
class BinaryBuffers:
    ends: memoryview
    validity: bytearray
    data: bytearray
    size: int


@pytest.mark.parametrize(("offset", "row"), [(0, 0), (10, 0), (11, 1), (12, 2), (13, 3), (99, 3)])
def test_the_first_row_at_an_offset(offset: int, row: int) -> None:
    table = parsed(bytes(client_batch(b"a", b"b", b"c", base_offset=10)), 3)

    assert record_table.first_row_at(table, 0, 3, offset) == row


@pytest.mark.parametrize(("time", "row"), [(0, 0), (5, 0), (6, 2), (9, 2), (10, 3)])
def test_the_first_row_at_a_time_when_times_are_in_no_order(time: int, row: int) -> None:
    table = parsed(bytes(client_batch(b"a", b"b", b"c", timestamps=[5, 3, 9])), 3)

    assert record_table.first_row_at_time(table, 0, 3, time) == row


def test_rows_outside_the_table_are_refused() -> None:
    batch = bytes(client_batch(b"a", b"b"))
    table = parsed(batch, 2)

    with pytest.raises(IndexError):
        record_table.first_row_at(table, 0, 3, 0)
    with pytest.raises(IndexError):
        record_table.first_row_at_time(table, -1, 2, 0)
    with pytest.raises(IndexError):
        record_table.make_records(batch, table, 0, 3, Record)
    with pytest.raises(IndexError):
        record_table.find_key(batch, table, 0, 3, b"k")
    with pytest.raises(IndexError):
        record_table.header_totals(table, 0, 3)
    with pytest.raises(IndexError):
        record_table.check_produced(table, 3, 0, 0, 0, False, words(4))


def test_rows_that_point_outside_the_data_are_refused() -> None:
    batch = bytes(client_batch(b"a", keys=[b"key"]))
    for field, value in ((2, -1), (2, len(batch)), (3, 10_000), (4, INT64_MAX), (5, 10_000)):
        table = parsed(batch, 1)
        table[field] = value

        with pytest.raises(IndexError):
            record_table.make_records(batch, table, 0, 1, Record)


def check(
    batch: bytes, count: int, *, oldest: int = 0, newest: int = 100, needs_key: bool = False
) -> tuple[tuple[bool, int, int], list[tuple[int, int]]]:
    faults = words(8)
    found = record_table.check_produced(
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


def test_the_newest_row_of_a_key_is_found() -> None:
    batch = bytes(client_batch(b"1", b"2", b"3", keys=[b"a", b"ab", b"a"]))
    table = parsed(batch, 3)

    assert record_table.find_key(batch, table, 0, 3, b"a") == 2
    assert record_table.find_key(batch, table, 0, 2, b"a") == 0
    assert record_table.find_key(batch, table, 0, 3, b"ab") == 1
    assert record_table.find_key(batch, table, 0, 3, b"b") == -1
    assert record_table.find_key(batch, table, 0, 3, b"") == -1


def test_a_null_key_is_not_the_empty_one() -> None:
    batch = bytes(client_batch(b"1", b"2", keys=[b"", None]))

    assert record_table.find_key(batch, parsed(batch, 2), 0, 2, b"") == 0


def test_a_column_is_refused_when_its_buffers_are_too_small() -> None:
    batch = bytes(client_batch(b"abc", b"de"))
    run = RecordRun(batch, parsed(batch, 2), 0, 2)

    def take(ends: int, validity: int, out: int) -> tuple[int, int]:
        column = BinaryBuffers(
            ends=memoryview(array("i", bytes(4 * ends))),
            validity=bytearray(validity),
            data=bytearray(out),
            size=0,
        )
        return record_table.take_binary(run, tables.R_VALUE_POSITION, column, 0)

    assert take(3, 1, 5) == (5, 0)
    for sizes in ((2, 1, 5), (3, 0, 5), (3, 1, 4)):
        with pytest.raises(IndexError):
            take(*sizes)
    with pytest.raises(IndexError):
        record_table.take_words(run, 0, words(1), 0)
    with pytest.raises(IndexError):
        record_table.take_words(run, 8, words(2), 0)


def test_header_rows_are_refused_when_they_do_not_fit() -> None:
    batch = bytes(raw_batch(raw_record(headers=[(b"a", b"1"), (b"b", None)])))
    table = parsed(batch, 1)

    assert record_table.header_totals(table, 0, 1) == 2
    run = RecordRun(batch, table, 0, 1)
    ends = array("i", bytes(8))
    assert record_table.take_headers(run, ends, words(16)) == 2
    assert list(ends) == [0, 2]
    with pytest.raises(IndexError):
        record_table.take_headers(run, array("i", bytes(8)), words(8))


# --- the records that are made -------------------------------------------------------------------


def test_a_made_record_is_like_one_of_a_caller() -> None:
    batch = bytes(client_batch(b"a", None, keys=[b"k", None], timestamps=[5, 5], base_offset=3))
    table = parsed(batch, 2)

    first, second = record_table.make_records(batch, table, 0, 2, Record)

    assert first == Record(b"a", b"k", [], 5, 3)
    assert second == Record(None, None, [], 5, 4)
    assert type(first) is Record
    assert first._replace(offset=9).offset == 9
    assert pickle.loads(pickle.dumps(first)) == first
    assert gc.is_tracked(first), "its list of headers may come to refer to it"
    with pytest.raises(TypeError):
        hash(first)  # as of any tuple with a list in it


def test_records_that_are_dropped_leave_nothing_behind() -> None:
    batch = bytes(client_batch(*[b"value"] * 50))
    table = parsed(batch, 50)
    record_table.make_records(batch, table, 0, 50, Record)
    before = sys.getrefcount(Record)

    for _ in range(20):
        record_table.make_records(batch, table, 0, 50, Record)

    gc.collect()
    assert abs(sys.getrefcount(Record) - before) < 10


def test_pieces_of_a_run_are_the_records_of_the_run() -> None:
    batch = bytes(client_batch(*[b"%d" % n for n in range(700)]))
    run = RecordRun(memoryview(batch), parsed(batch, 700), 3, 690)

    pieces = list(run.pieces())

    assert [record for piece in pieces for record in piece] == run.records()
    assert max(map(len, pieces)) <= 256
    assert list(RecordRun(memoryview(batch), parsed(batch, 700), 5, 5).pieces()) == []

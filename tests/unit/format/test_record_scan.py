"""Parsing the records of batches: edges of the tables, where runs stop."""

import pytest

from cordwood.format import record_scan
from fakes.client_batches import client_batch, raw_batch, raw_record
from fakes.parsed_batches import scan, words


def test_parsing_refuses_tables_that_are_too_small() -> None:
    data = bytes(client_batch(b"a", b"b"))
    _, rows = scan(data)

    for batch, table_rows, first_row in ((16, 2, 0), (-1, 2, 0), (0, 1, 0), (0, 2, 1), (0, 2, -1)):
        with pytest.raises(IndexError):
            record_scan.parse_records(
                data, 61, len(data), rows, batch, words(8 * table_rows), first_row
            )
    with pytest.raises(IndexError):
        record_scan.parse_plain_batches(data, rows, 0, 17, words(16))


def test_a_run_of_plain_batches_stops_where_the_table_is_full() -> None:
    data = bytes(client_batch(b"a", b"b") + client_batch(b"c", base_offset=2))
    _, rows = scan(data)

    assert record_scan.parse_plain_batches(data, rows, 0, 2, words(8 * 2))[:3] == (0, 1, 2)
    assert record_scan.parse_plain_batches(data, rows, 0, 2, words(8 * 3))[:3] == (0, 2, 3)


def test_a_run_of_plain_batches_stops_before_a_compressed_and_a_control_batch() -> None:
    for attributes in (1, 2, 3, 4, 0x20):
        second = raw_batch(raw_record(), base_offset=1, attributes=attributes)
        data = bytes(client_batch(b"a") + second)
        _, rows = scan(data)

        assert record_scan.parse_plain_batches(data, rows, 0, 2, words(8 * 9))[:3] == (0, 1, 1)

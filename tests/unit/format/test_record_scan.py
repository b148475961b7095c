"""Parsing the records of batches: edges of the tables, where runs stop."""

import random

import pytest

from cordwood.format import record_scan
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.quantities import TimestampMs
from fakes.client_batches import NOW, client_batch, raw_batch, raw_record
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


# Checksums are computed in three ways: the size decides, and the last bytes are not a whole word.
@pytest.mark.parametrize("around", [0, 100, 170, 200, 1024, 1970, 2000, 3000])
def test_a_batch_of_any_size_is_surveyed_by_its_checksum(around: int) -> None:
    for size in range(around, around + 40):
        batch = client_batch(random.Random(size).randbytes(size))
        # In the middle of a buffer: what lies around it does not count.
        data = bytearray(b"?" * 3 + batch + b"?" * 5)
        start, end = 3, 3 + len(batch)

        survey = record_scan.survey_produced(memoryview(data), start, end, 0, NOW, False)
        data[17 + start + size % 4] ^= 1 << size % 8
        of_damaged = record_scan.survey_produced(memoryview(data), start, end, 0, NOW, False)

        assert survey == UnplacedBatch(len(batch), 1, TimestampMs(NOW))
        assert of_damaged is None


def test_a_flipped_bit_anywhere_in_a_value_is_found() -> None:
    data = client_batch(bytes(1000))
    in_value = range(len(data) - 1001, len(data) - 1)

    for at in in_value:
        data[at] ^= 0x10
        found = record_scan.survey_produced(memoryview(data), 0, len(data), 0, NOW, False)
        data[at] ^= 0x10
        assert found is None, at
    assert record_scan.survey_produced(memoryview(data), 0, len(data), 0, NOW, False) is not None


def test_a_survey_is_a_named_tuple_like_any_other() -> None:
    data = client_batch(b"v", producer_id=3, producer_epoch=1, sequence=7)

    survey = record_scan.survey_produced(memoryview(data), 0, len(data), 0, NOW, False)

    expected = UnplacedBatch(len(data), 1, TimestampMs(NOW), 3, 1, 7)  # type: ignore[arg-type]
    assert type(survey) is UnplacedBatch
    assert survey == expected
    assert hash(survey) == hash(expected)
    assert survey._replace(record_count=2) != survey

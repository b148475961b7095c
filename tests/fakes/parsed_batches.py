"""Tables that kernels filled from bytes, for tests of the kernels that read them."""

from array import array

from cordwood.format import batch_scan, record_scan
from cordwood.format import kernel_tables as tables
from cordwood.quantities import INT64_MAX


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
    found = batch_scan.scan_headers(
        data, 0, len(data), next_offset_min, stop_offset, offset_limit, is_dense, table
    )
    return found, table


def parsed(batch: bytes, count: int) -> "array[int]":
    _, rows = scan(batch)
    table = words(tables.RECORD_ROW * count)
    code, _, _ = record_scan.parse_records(batch, 61, len(batch), rows, 0, table, 0)
    assert code == tables.RECORDS_OK
    return table

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The records in a batch: parse them into a record table, or survey those of a produced batch.

See `batch_scan.py` for the rules of kernels and for the tables.
"""

from __future__ import annotations

from array import array

from cordwood.checksums import crc32c
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.primitives import CRC32C_TABLE

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.format import kernel_tables as tables  # type: ignore
    from cython.cimports.cordwood.format.python_api import (  # type: ignore
        PyObject_GC_Track,
        cordwood_forget_hash,
        cordwood_new_items,
    )
    from cython.cimports.cordwood.format.small_checksums import small_crc32c, small_size_max  # type: ignore
    from cython.cimports.cordwood.primitives import (  # type: ignore
        int32,
        int64,
        uint32,
        varint,
        varlong,
        wrapping_sum,
    )
    from cython.cimports.cpython.ref import Py_INCREF  # type: ignore
    from cython.cimports.cpython.tuple import PyTuple_SET_ITEM  # type: ignore
    from cython.cimports.libc.string import memcpy  # type: ignore
else:
    from cordwood.format import kernel_tables as tables
    from cordwood.format.small_checksums import small_crc32c, small_size_max
    from cordwood.primitives import int32, int64, uint32, varint, varlong, wrapping_sum

COMPILED = cython.compiled

_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_TRANSACTIONAL = cython.declare(cython.int, 0x10)
# Up to this size, calling the package for the checksum costs more.
_SMALL_BATCH = cython.declare(cython.Py_ssize_t, small_size_max(256))
_SMALL_SURVEY = cython.declare(cython.Py_ssize_t, 16384)  # too short to release the GIL for
_INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _parse_record(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    base_offset: cython.longlong,
    offset_span: cython.longlong,
    base_timestamp: cython.longlong,
    table: cython.longlong[::1],
    row: cython.Py_ssize_t,
):
    """Parse the record at `at` into the table from word `row` on; return (code, position).

    The position is the end of the record or, for a fault, where it was detected.
    """
    start: cython.Py_ssize_t = at
    body_end: cython.Py_ssize_t
    header: cython.longlong
    size: cython.longlong
    delta: cython.longlong
    if at >= end:
        return tables.TOO_FEW_RECORDS, at
    size, at = varint(data, at, end)
    if at < 0:
        return tables.BAD_VARINT, start
    if size < 1 or size > end - at:
        return tables.BAD_RECORD_SIZE, at
    start = at
    body_end = at + cython.cast(cython.Py_ssize_t, size)
    at += 1  # attributes, unused
    delta, at = varlong(data, at, body_end)
    if at < 0:
        return tables.BAD_VARINT, start
    # Wraps as in Java; signed overflow in C is undefined.
    table[row + tables.R_TIMESTAMP] = wrapping_sum(base_timestamp, delta)
    delta, at = varint(data, at, body_end)
    if at < 0:
        return tables.BAD_VARINT, start
    if delta < 0 or delta > offset_span:
        return tables.BAD_OFFSET_DELTA, start
    table[row + tables.R_OFFSET] = base_offset + delta
    size, at = varint(data, at, body_end)
    if at < 0:
        return tables.BAD_VARINT, start
    if size < -1 or size > body_end - at:
        return tables.BAD_KEY_SIZE, at
    table[row + tables.R_KEY_POSITION] = at
    table[row + tables.R_KEY_SIZE] = size
    if size > 0:
        at += cython.cast(cython.Py_ssize_t, size)
    size, at = varint(data, at, body_end)
    if at < 0:
        return tables.BAD_VARINT, start
    if size < -1 or size > body_end - at:
        return tables.BAD_VALUE_SIZE, at
    table[row + tables.R_VALUE_POSITION] = at
    table[row + tables.R_VALUE_SIZE] = size
    if size > 0:
        at += cython.cast(cython.Py_ssize_t, size)
    size, at = varint(data, at, body_end)
    if at < 0:
        return tables.BAD_VARINT, start
    if size < 0 or size > body_end - at:
        return tables.BAD_HEADER_COUNT, at
    table[row + tables.R_HEADERS_POSITION] = at
    table[row + tables.R_HEADER_COUNT] = size
    header = size
    while header > 0:
        size, at = varint(data, at, body_end)
        if at < 0:
            return tables.BAD_VARINT, start
        if size < 0 or size > body_end - at:
            return tables.BAD_HEADER_SIZE, at
        at += cython.cast(cython.Py_ssize_t, size)
        size, at = varint(data, at, body_end)
        if at < 0:
            return tables.BAD_VARINT, start
        if size < -1 or size > body_end - at:
            return tables.BAD_HEADER_SIZE, at
        if size > 0:
            at += cython.cast(cython.Py_ssize_t, size)
        header -= 1
    if at != body_end:
        return tables.BAD_BODY, at
    return tables.RECORDS_OK, at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t))
def _parse_payload(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    offset_span: cython.longlong,
    base_timestamp: cython.longlong,
    append_timestamp: cython.longlong,
    is_append_time: cython.bint,
    table: cython.longlong[::1],
    first_row: cython.Py_ssize_t,
):
    """Parse `count` records; return (code, index of the record, position)."""
    at: cython.Py_ssize_t = start
    index: cython.Py_ssize_t
    code: cython.Py_ssize_t
    row: cython.Py_ssize_t = first_row * tables.RECORD_ROW
    for index in range(count):
        code, at = _parse_record(
            data, at, end, base_offset, offset_span, base_timestamp, table, row
        )
        if code != tables.RECORDS_OK:
            return code, index, at
        if is_append_time:
            table[row + tables.R_TIMESTAMP] = append_timestamp
        row += tables.RECORD_ROW
    if at != end:
        return tables.BAD_TRAILER, count, at
    return tables.RECORDS_OK, count, at


def parse_records(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    rows: cython.longlong[::1],
    batch: cython.Py_ssize_t,
    table: cython.longlong[::1],
    first_row: cython.Py_ssize_t,
) -> tuple:
    """Parse the records of one batch from its (decompressed) payload ``data[start:end]``.

    Row `batch` of `rows` describes the batch; record rows are written to `table` from `first_row`
    on. Returns (code, index of the record, position).
    """
    at: cython.Py_ssize_t = batch * tables.BATCH_ROW
    count: cython.Py_ssize_t
    is_append_time: cython.bint
    code: cython.Py_ssize_t
    index: cython.Py_ssize_t
    position: cython.Py_ssize_t
    if batch < 0 or at + tables.BATCH_ROW > len(rows):
        raise IndexError("rows outside the table")
    count = rows[at + tables.B_RECORD_COUNT]
    is_append_time = (rows[at + tables.B_ATTRIBUTES] & 0x08) != 0
    if start < 0 or end > len(data) or start > end:
        raise IndexError("range outside the data")
    if first_row < 0 or (first_row + count) * tables.RECORD_ROW > len(table):
        raise IndexError("record table too small")
    with cython.nogil:
        code, index, position = _parse_payload(
            data,
            start,
            end,
            count,
            rows[at + tables.B_BASE_OFFSET],
            rows[at + tables.B_LAST_OFFSET_DELTA],
            rows[at + tables.B_BASE_TIMESTAMP],
            rows[at + tables.B_MAX_TIMESTAMP],
            is_append_time,
            table,
            first_row,
        )
    return code, index, position


def find_record(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    offset: cython.longlong,
    row: cython.longlong[::1],
) -> cython.Py_ssize_t:
    """Parse the record with `offset` of the uncompressed batch ``data[start:end]`` into `row`.

    The records before it are skipped by their sizes. Returns a code: RECORDS_OK, or
    TOO_FEW_RECORDS if the batch has no such record.
    """
    at: cython.Py_ssize_t = start + _HEADER_SIZE
    body: cython.Py_ssize_t
    body_end: cython.Py_ssize_t
    size: cython.longlong
    delta: cython.longlong = -1
    index: cython.longlong = 0
    code: cython.Py_ssize_t
    if start < 0 or end > len(data) or end - start < _HEADER_SIZE or len(row) < tables.RECORD_ROW:
        raise IndexError("range outside the data")
    count: cython.longlong = int32(data, start + 57)
    base_offset: cython.longlong = int64(data, start)
    if base_offset < 0 or offset < base_offset:
        return tables.TOO_FEW_RECORDS
    wanted: cython.longlong = offset - base_offset
    while index < count:
        size, body = varint(data, at, end)
        if body < 0:
            return tables.BAD_VARINT
        if size < 1 or size > end - body:
            return tables.BAD_RECORD_SIZE
        body_end = body + cython.cast(cython.Py_ssize_t, size)
        delta, body = varlong(data, body + 1, body_end)  # the time
        if body < 0:
            return tables.BAD_VARINT
        delta, body = varint(data, body, body_end)
        if body < 0:
            return tables.BAD_VARINT
        if delta >= wanted:
            break
        at = body_end
        index += 1
    if index == count or delta != wanted:
        return tables.TOO_FEW_RECORDS
    code, at = _parse_record(
        data, at, end, base_offset, int32(data, start + 23), int64(data, start + 27), row, 0
    )
    if code == tables.RECORDS_OK and (data[start + 22] & 0x08) != 0:
        row[tables.R_TIMESTAMP] = int64(data, start + 35)
    return code


def parse_plain_batches(
    data: cython.const[cython.uchar][::1],
    rows: cython.longlong[::1],
    first_batch: cython.Py_ssize_t,
    batch_count: cython.Py_ssize_t,
    table: cython.longlong[::1],
) -> tuple:
    """Parse a run of uncompressed batches in place.

    Stops before a compressed batch or a control batch, and if `table` has no room for the next
    one. Returns (code, batch it stopped at, records parsed, position of an error).
    """
    batch: cython.Py_ssize_t = first_batch
    parsed: cython.Py_ssize_t = 0
    room: cython.Py_ssize_t = len(table) // tables.RECORD_ROW
    at: cython.Py_ssize_t
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t
    count: cython.Py_ssize_t
    code: cython.Py_ssize_t = tables.RECORDS_OK
    index: cython.Py_ssize_t
    position: cython.Py_ssize_t = 0
    if first_batch < 0 or batch_count * tables.BATCH_ROW > len(rows):
        raise IndexError("rows outside the table")
    with cython.nogil:
        while batch < batch_count:
            at = batch * tables.BATCH_ROW
            count = rows[at + tables.B_RECORD_COUNT]
            if (rows[at + tables.B_ATTRIBUTES] & 0x27) != 0 or count > room - parsed:
                break
            start = rows[at + tables.B_POSITION] + _HEADER_SIZE
            end = rows[at + tables.B_POSITION] + rows[at + tables.B_SIZE]
            if start < 0 or end > len(data) or start > end:
                code = tables.BAD_RECORD_SIZE
                break
            code, index, position = _parse_payload(
                data,
                start,
                end,
                count,
                rows[at + tables.B_BASE_OFFSET],
                rows[at + tables.B_LAST_OFFSET_DELTA],
                rows[at + tables.B_BASE_TIMESTAMP],
                rows[at + tables.B_MAX_TIMESTAMP],
                (rows[at + tables.B_ATTRIBUTES] & 0x08) != 0,
                table,
                parsed,
            )
            if code != tables.RECORDS_OK:
                break
            parsed += count
            batch += 1
    return code, batch, parsed, position


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.bint, cython.longlong, cython.longlong, cython.bint))
def _survey_records(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base_timestamp: cython.longlong,
    row: cython.longlong[::1],
):
    """(Are the records sound and numbered from 0; newest time; oldest time; have all a key)."""
    index: cython.longlong = 0
    code: cython.Py_ssize_t
    timestamp: cython.longlong
    newest: cython.longlong = -1
    oldest: cython.longlong = _INT64_MAX
    has_keys: cython.bint = True
    while index < count:
        code, at = _parse_record(data, at, end, 0, count - 1, base_timestamp, row, 0)
        if code != tables.RECORDS_OK or row[tables.R_OFFSET] != index:
            return False, newest, oldest, has_keys
        timestamp = row[tables.R_TIMESTAMP]
        newest = max(newest, timestamp)
        oldest = min(oldest, timestamp)
        if row[tables.R_KEY_SIZE] < 0:
            has_keys = False
        index += 1
    return at == end, newest, oldest, has_keys


# A row for `_survey_records` that only a thread with the GIL may use: allocating one takes as long
# as surveying a small batch.
_SURVEY_ROW = array("q", bytes(64))
if cython.compiled:
    _SHARED_ROW = cython.declare(cython.longlong[::1], _SURVEY_ROW)
    _CRC_WORDS = cython.declare(cython.const[cython.uint][::1], CRC32C_TABLE)
else:
    _SHARED_ROW = _SURVEY_ROW
    _CRC_WORDS = CRC32C_TABLE


def survey_produced(
    source: object,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    oldest_ms: cython.longlong,
    newest_ms: cython.longlong,
    needs_keys: cython.bint,
) -> object:
    """What a log must know of a produced batch that is as most are; None if it is not.

    As most are: one uncompressed batch of a client that fills ``source[start:end]``, its records
    sound, numbered from 0 and dated as the header says, from `oldest_ms` to `newest_ms`; all have
    keys if it `needs_keys`; its checksum is right. Returns an `UnplacedBatch`.
    """
    data: cython.const[cython.uchar][::1] = source  # type: ignore[assignment]
    return _survey(source, data, start, end, oldest_ms, newest_ms, needs_keys)


def survey_all_produced(
    source: object,
    spans: list,
    size_max: cython.Py_ssize_t,
    oldest_ms: cython.longlong,
    newest_ms: cython.longlong,
    needs_keys: cython.bint,
) -> tuple | None:
    """As `survey_produced`, for batches that begin and end at the positions in `spans`.

    A batch larger than `size_max` is not as most are. Returns an `UnplacedBatch` for each, their
    bytes one behind the other, and whether one of them has a producer; None if one of them is not
    as most are.
    """
    data: cython.const[cython.uchar][::1] = source  # type: ignore[assignment]
    batches: list = []
    is_numbered: cython.bint = False
    batch: object
    index: cython.Py_ssize_t
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t
    size: cython.Py_ssize_t = 0
    for index in range(0, len(spans) - 1, 2):
        start = spans[index]
        end = spans[index + 1]
        if end - start > size_max:
            return None
        batch = _survey(source, data, start, end, oldest_ms, newest_ms, needs_keys)
        if batch is None:
            return None
        batches.append(batch)
        size += end - start
        if cython.cast(tuple, batch)[3] != -1:
            is_numbered = True
    joined: bytearray = bytearray(size)
    out: cython.uchar[::1] = joined  # type: ignore[assignment]
    at: cython.Py_ssize_t = 0
    for index in range(len(batches)):
        start = spans[2 * index]
        size = spans[2 * index + 1] - start
        if cython.compiled:
            memcpy(cython.address(out[at]), cython.address(data[start]), size)
        else:
            out[at : at + size] = data[start : start + size]
        at += size
    return batches, joined, is_numbered


@cython.cfunc
def _survey(
    source: object,
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    oldest_ms: cython.longlong,
    newest_ms: cython.longlong,
    needs_keys: cython.bint,
) -> object:
    """See `survey_produced`. `data` are the bytes of `source`."""
    size: cython.Py_ssize_t = end - start
    count: cython.longlong
    base_timestamp: cython.longlong
    newest: cython.longlong
    oldest: cython.longlong
    has_keys: cython.bint
    is_usual: cython.bint
    crc: cython.longlong
    row: cython.longlong[::1]
    if start < 0 or end > len(data) or size <= _HEADER_SIZE:
        return None
    if int64(data, start) != 0 or int32(data, start + 8) != size - 12 or data[start + 16] != 2:
        return None
    # Attributes: not compressed, no control batch, ...; it may be part of a transaction.
    is_transactional: cython.bint = data[start + 22] == _TRANSACTIONAL
    if data[start + 21] != 0 or (data[start + 22] != 0 and not is_transactional):
        return None
    count = int32(data, start + 57)
    if count < 1 or int32(data, start + 23) != count - 1 or count > size - _HEADER_SIZE:
        return None
    producer_id: cython.longlong = int64(data, start + 43)
    producer_epoch: cython.longlong = (
        cython.cast(cython.longlong, data[start + 51]) << 8 | data[start + 52]
    )
    base_sequence: cython.longlong = int32(data, start + 53)
    if producer_epoch > 0x7FFF:
        producer_epoch -= 0x10000
    if (producer_id != -1 or is_transactional) and (
        producer_id < 0 or producer_epoch < 0 or base_sequence < 0
    ):
        return None
    base_timestamp = int64(data, start + 27)
    crc = uint32(data, start + 17)
    if size <= _SMALL_SURVEY:
        is_usual, newest, oldest, has_keys = _survey_records(
            data, start + _HEADER_SIZE, end, count, base_timestamp, _SHARED_ROW
        )
    else:
        row = array("q", bytes(64))
        with cython.nogil:
            is_usual, newest, oldest, has_keys = _survey_records(
                data, start + _HEADER_SIZE, end, count, base_timestamp, row
            )
    if not is_usual or newest != int64(data, start + 35):
        return None
    if oldest < oldest_ms or newest > newest_ms or (needs_keys and not has_keys):
        return None
    if size <= _SMALL_BATCH:
        if small_crc32c(data, start + 21, end, _CRC_WORDS) != crc:
            return None
    elif crc32c(source[start + 21 : end]) != crc:  # type: ignore[index]
        return None
    return _unplaced(
        (size, count, newest, producer_id, producer_epoch, base_sequence, is_transactional)
    )


@cython.cfunc
def _unplaced(items: tuple) -> object:
    """The named tuple, filled in place: its constructor takes several times as long.

    Nothing can fail or look at it before it is filled, so it needs no zeros at first.
    """
    if cython.compiled:
        batch: tuple = cython.cast(tuple, cordwood_new_items(UnplacedBatch, len(items)))
        index: cython.Py_ssize_t
        item: object
        cordwood_forget_hash(batch)
        for index in range(len(items)):
            item = items[index]
            Py_INCREF(item)
            PyTuple_SET_ITEM(batch, index, item)
        PyObject_GC_Track(batch)
        return batch
    else:
        return tuple.__new__(UnplacedBatch, items)

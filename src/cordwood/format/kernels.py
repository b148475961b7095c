# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The loops over bytes that must run at memory speed. One source, two forms.

Compiled at install by Cython (annotations become C types) and, where no compiler is to be
had, run as the plain Python it is: slowly, with the same results. The tests hold both equal.

Rules kept here: every read is checked against `end` before it happens, because the compiled
form has no bounds checks of its own; nothing is allocated from a length that was read; errors
come back as codes with a position, and the callers in `batch.py` turn them into exceptions.

Two tables pass between the kernels. They are flat arrays of int64, one row after another:

    batch rows     where each batch lies and what its header says
    record rows    absolute offset and time of each record, and where its key, value and
                   headers lie in the bytes it was parsed from

`kernel_tables.py` names their columns.
"""

from __future__ import annotations

import operator
from array import array

from cordwood.format import kernel_tables as tables

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.format.python_api import PyType_GenericAlloc  # type: ignore
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize  # type: ignore
    from cython.cimports.cpython.ref import Py_INCREF  # type: ignore
    from cython.cimports.cpython.tuple import PyTuple_SET_ITEM  # type: ignore
    from cython.cimports.libc.string import memcpy  # type: ignore

COMPILED = cython.compiled

# The names of `kernel_tables` as C integers: a Python global cannot be read without the GIL.
_BATCH_ROW = cython.declare(cython.Py_ssize_t, tables.BATCH_ROW)
_B_POSITION = cython.declare(cython.Py_ssize_t, tables.B_POSITION)
_B_SIZE = cython.declare(cython.Py_ssize_t, tables.B_SIZE)
_B_BASE_OFFSET = cython.declare(cython.Py_ssize_t, tables.B_BASE_OFFSET)
_B_NEXT_OFFSET = cython.declare(cython.Py_ssize_t, tables.B_NEXT_OFFSET)
_B_MAX_TIMESTAMP = cython.declare(cython.Py_ssize_t, tables.B_MAX_TIMESTAMP)
_B_ATTRIBUTES = cython.declare(cython.Py_ssize_t, tables.B_ATTRIBUTES)
_B_RECORD_COUNT = cython.declare(cython.Py_ssize_t, tables.B_RECORD_COUNT)
_B_BASE_TIMESTAMP = cython.declare(cython.Py_ssize_t, tables.B_BASE_TIMESTAMP)
_B_CRC = cython.declare(cython.Py_ssize_t, tables.B_CRC)
_B_PRODUCER_ID = cython.declare(cython.Py_ssize_t, tables.B_PRODUCER_ID)
_B_PRODUCER_EPOCH = cython.declare(cython.Py_ssize_t, tables.B_PRODUCER_EPOCH)
_B_BASE_SEQUENCE = cython.declare(cython.Py_ssize_t, tables.B_BASE_SEQUENCE)
_B_LEADER_EPOCH = cython.declare(cython.Py_ssize_t, tables.B_LEADER_EPOCH)
_B_LAST_OFFSET_DELTA = cython.declare(cython.Py_ssize_t, tables.B_LAST_OFFSET_DELTA)
_RECORD_ROW = cython.declare(cython.Py_ssize_t, tables.RECORD_ROW)
_R_OFFSET = cython.declare(cython.Py_ssize_t, tables.R_OFFSET)
_R_TIMESTAMP = cython.declare(cython.Py_ssize_t, tables.R_TIMESTAMP)
_R_KEY_POSITION = cython.declare(cython.Py_ssize_t, tables.R_KEY_POSITION)
_R_KEY_SIZE = cython.declare(cython.Py_ssize_t, tables.R_KEY_SIZE)
_R_VALUE_POSITION = cython.declare(cython.Py_ssize_t, tables.R_VALUE_POSITION)
_R_VALUE_SIZE = cython.declare(cython.Py_ssize_t, tables.R_VALUE_SIZE)
_R_HEADERS_POSITION = cython.declare(cython.Py_ssize_t, tables.R_HEADERS_POSITION)
_R_HEADER_COUNT = cython.declare(cython.Py_ssize_t, tables.R_HEADER_COUNT)
_STOP_END = cython.declare(cython.Py_ssize_t, tables.STOP_END)
_STOP_FULL = cython.declare(cython.Py_ssize_t, tables.STOP_FULL)
_STOP_OFFSET = cython.declare(cython.Py_ssize_t, tables.STOP_OFFSET)
_STOP_SHORT_HEADER = cython.declare(cython.Py_ssize_t, tables.STOP_SHORT_HEADER)
_STOP_SHORT_BATCH = cython.declare(cython.Py_ssize_t, tables.STOP_SHORT_BATCH)
_STOP_BAD_SIZE = cython.declare(cython.Py_ssize_t, tables.STOP_BAD_SIZE)
_STOP_BAD_MAGIC = cython.declare(cython.Py_ssize_t, tables.STOP_BAD_MAGIC)
_STOP_BAD_OFFSET = cython.declare(cython.Py_ssize_t, tables.STOP_BAD_OFFSET)
_STOP_BAD_COUNT = cython.declare(cython.Py_ssize_t, tables.STOP_BAD_COUNT)
_RECORDS_OK = cython.declare(cython.Py_ssize_t, tables.RECORDS_OK)
_BAD_VARINT = cython.declare(cython.Py_ssize_t, tables.BAD_VARINT)
_BAD_RECORD_SIZE = cython.declare(cython.Py_ssize_t, tables.BAD_RECORD_SIZE)
_BAD_KEY_SIZE = cython.declare(cython.Py_ssize_t, tables.BAD_KEY_SIZE)
_BAD_VALUE_SIZE = cython.declare(cython.Py_ssize_t, tables.BAD_VALUE_SIZE)
_BAD_HEADER_COUNT = cython.declare(cython.Py_ssize_t, tables.BAD_HEADER_COUNT)
_BAD_HEADER_SIZE = cython.declare(cython.Py_ssize_t, tables.BAD_HEADER_SIZE)
_BAD_BODY = cython.declare(cython.Py_ssize_t, tables.BAD_BODY)
_BAD_TRAILER = cython.declare(cython.Py_ssize_t, tables.BAD_TRAILER)
_BAD_OFFSET_DELTA = cython.declare(cython.Py_ssize_t, tables.BAD_OFFSET_DELTA)
_TOO_FEW_RECORDS = cython.declare(cython.Py_ssize_t, tables.TOO_FEW_RECORDS)
_STATE_WORDS = cython.declare(cython.Py_ssize_t, tables.STATE_WORDS)
_S_UNINDEXED = cython.declare(cython.Py_ssize_t, tables.S_UNINDEXED)
_S_MAX_TIMESTAMP = cython.declare(cython.Py_ssize_t, tables.S_MAX_TIMESTAMP)
_S_MAX_TIMESTAMP_OFFSET = cython.declare(cython.Py_ssize_t, tables.S_MAX_TIMESTAMP_OFFSET)
_S_INDEXED_TIMESTAMP = cython.declare(cython.Py_ssize_t, tables.S_INDEXED_TIMESTAMP)
_S_RECORD_COUNT = cython.declare(cython.Py_ssize_t, tables.S_RECORD_COUNT)
_S_FIRST_TIMESTAMP = cython.declare(cython.Py_ssize_t, tables.S_FIRST_TIMESTAMP)

_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_SMALL_BATCH = cython.declare(
    cython.Py_ssize_t, 2048
)  # below this, calling the hardware checksum costs more
_TINY_BATCH = cython.declare(cython.Py_ssize_t, 256)  # as above, for a single batch
_SMALL_SURVEY = cython.declare(cython.Py_ssize_t, 16384)  # not worth letting go of the lock for
_BIT31 = cython.declare(cython.longlong, 0x80000000)
_BIT32 = cython.declare(cython.longlong, 0x100000000)
_MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
_MURMUR_SEED = cython.declare(cython.ulonglong, 0x9747B28C)
_MURMUR_MIX = cython.declare(cython.ulonglong, 0x5BD1E995)


# --- integers --------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int32(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    """The signed big-endian integer at `at`; the caller has checked that it is there."""
    value: cython.longlong = (
        (cython.cast(cython.longlong, data[at]) << 24)
        | (cython.cast(cython.longlong, data[at + 1]) << 16)
        | (cython.cast(cython.longlong, data[at + 2]) << 8)
        | cython.cast(cython.longlong, data[at + 3])
    )
    if value >= _BIT31:
        value -= _BIT32
    return value


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int64(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    high: cython.longlong = _int32(data, at)
    low: cython.longlong = _int32(data, at + 4) & cython.cast(cython.longlong, _MASK32)
    return high * _BIT32 + low


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.Py_ssize_t))
def _varint(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t):
    """A zig-zag integer of at most 32 bits and the position after it, or -1 if malformed."""
    raw: cython.ulonglong = 0
    shift: cython.int = 0
    byte: cython.uint
    if at < end and data[at] < 0x80:
        byte = data[at]
        return (byte >> 1) ^ -cython.cast(cython.longlong, byte & 1), at + 1
    while at < end and shift <= 28:
        byte = data[at]
        at += 1
        raw |= cython.cast(cython.ulonglong, byte & 0x7F) << shift
        if byte < 0x80:
            if raw > _MASK32:
                return 0, -1
            return (
                cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1),
                at,
            )
        shift += 7
    return 0, -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.Py_ssize_t))
def _varlong(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t):
    """A zig-zag integer of at most 64 bits and the position after it, or -1 if malformed."""
    raw: cython.ulonglong = 0
    shift: cython.int = 0
    byte: cython.uint
    while at < end and shift <= 63:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        raw |= cython.cast(cython.ulonglong, byte & 0x7F) << shift
        if byte < 0x80:
            return (
                cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1),
                at,
            )
        shift += 7
    return 0, -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint_size(value: cython.longlong) -> cython.Py_ssize_t:
    raw: cython.ulonglong = cython.cast(cython.ulonglong, (value << 1) ^ (value >> 63))
    size: cython.Py_ssize_t = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_varint(
    out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong
) -> cython.Py_ssize_t:
    """Write `value` zig-zag at `at`; the caller has checked that there is room."""
    raw: cython.ulonglong = cython.cast(cython.ulonglong, (value << 1) ^ (value >> 63))
    while raw >= 0x80:
        out[at] = cython.cast(cython.uchar, (raw & 0x7F) | 0x80)
        raw >>= 7
        at += 1
    out[at] = cython.cast(cython.uchar, raw)
    return at + 1


# --- a run of batches ------------------------------------------------------------------------


def scan_headers(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    next_offset_min: cython.longlong,
    stop_offset: cython.longlong,
    offset_limit: cython.longlong,
    is_dense: cython.bint,
    rows: cython.longlong[::1],
) -> tuple:
    """Fill `rows` with the batches of ``data[start:end]``: (count, position, why it stopped).

    `position` is that of the first batch not taken. Each batch must begin at or after the
    offset where the one before it ended (`next_offset_min` for the first), exactly there when
    `is_dense`, and end at or before `offset_limit`: the checksum does not cover the base
    offset, so this is what tells a rotten one. Checksums are not looked at here.
    """
    count: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = start
    row: cython.Py_ssize_t = 0
    room: cython.Py_ssize_t = len(rows)
    reason: cython.Py_ssize_t = _STOP_END
    size: cython.longlong
    base_offset: cython.longlong
    delta: cython.longlong
    records: cython.longlong
    if start < 0 or end > len(data) or start > end:
        raise IndexError("range outside the data")
    with cython.nogil:
        while True:
            if at == end:
                reason = _STOP_END
                break
            if row + _BATCH_ROW > room:
                reason = _STOP_FULL
                break
            if end - at < _HEADER_SIZE:
                reason = _STOP_SHORT_HEADER
                break
            size = _int32(data, at + 8) + 12
            base_offset = _int64(data, at)
            if data[at + 16] != 2:
                reason = _STOP_BAD_MAGIC
                break
            if size < _HEADER_SIZE:
                reason = _STOP_BAD_SIZE
                break
            delta = _int32(data, at + 23)
            records = _int32(data, at + 57)
            if (
                base_offset < next_offset_min
                or delta < 0
                or base_offset >= offset_limit
                or delta >= offset_limit - base_offset
                or (is_dense and base_offset != next_offset_min)
            ):
                reason = _STOP_BAD_OFFSET
                break
            if records < 0:
                reason = _STOP_BAD_COUNT
                break
            if base_offset >= stop_offset:
                reason = _STOP_OFFSET
                break
            if size > end - at:
                reason = _STOP_SHORT_BATCH
                break
            next_offset_min = base_offset + delta + 1
            rows[row + _B_POSITION] = at
            rows[row + _B_SIZE] = size
            rows[row + _B_BASE_OFFSET] = base_offset
            rows[row + _B_NEXT_OFFSET] = next_offset_min
            rows[row + _B_MAX_TIMESTAMP] = _int64(data, at + 35)
            rows[row + _B_ATTRIBUTES] = _int32(data, at + 19) & 0xFFFF
            rows[row + _B_RECORD_COUNT] = records
            rows[row + _B_BASE_TIMESTAMP] = _int64(data, at + 27)
            rows[row + _B_CRC] = _int32(data, at + 17) & cython.cast(cython.longlong, _MASK32)
            rows[row + _B_PRODUCER_ID] = _int64(data, at + 43)
            rows[row + _B_PRODUCER_EPOCH] = _int32(data, at + 51) >> 16
            rows[row + _B_BASE_SEQUENCE] = _int32(data, at + 53)
            rows[row + _B_LEADER_EPOCH] = _int32(data, at + 12)
            rows[row + _B_LAST_OFFSET_DELTA] = delta
            row += _BATCH_ROW
            count += 1
            at += cython.cast(cython.Py_ssize_t, size)
    return count, at, reason


def first_bad_checksum(
    data: cython.const[cython.uchar][::1],
    rows: cython.longlong[::1],
    count: cython.Py_ssize_t,
    whole: object,
    hardware_crc: object,
) -> cython.Py_ssize_t:
    """Index of the first of `count` batches whose checksum is wrong, or `count`.

    `whole` is a memoryview of `data`; `hardware_crc` is called for large batches.
    """
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    crc: cython.longlong
    table: cython.const[cython.uint][::1] = _CRC_TABLE
    if count * _BATCH_ROW > len(rows):
        raise IndexError("rows outside the table")
    for i in range(count):
        at = rows[i * _BATCH_ROW + _B_POSITION]
        size = rows[i * _BATCH_ROW + _B_SIZE]
        if at < 0 or size < _HEADER_SIZE or size > len(data) - at:
            raise IndexError("batch outside the data")
        if size < _SMALL_BATCH:
            crc = _crc32c(data, at + 21, at + size, table)
        else:
            crc = hardware_crc(whole[at + 21 : at + size])
        if crc != rows[i * _BATCH_ROW + _B_CRC]:
            return i
    return count


def find_batch_start(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    offset_min: cython.longlong,
    offset_max: cython.longlong,
    room: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Position of the next bytes that look like a batch header, or -1: to get past damage.

    `room` is how many bytes the file has from ``data[0]`` on, which may be more than `data`
    holds. Only a candidate: the caller checks the checksum before believing it.
    """
    at: cython.Py_ssize_t
    found: cython.Py_ssize_t = -1
    size: cython.longlong
    base_offset: cython.longlong
    delta: cython.longlong
    if start < 0 or end > len(data):
        raise IndexError("range outside the data")
    with cython.nogil:
        for at in range(start, end - _HEADER_SIZE + 1):
            if data[at + 16] != 2 or data[at] != 0:
                continue
            size = _int32(data, at + 8) + 12
            if size < _HEADER_SIZE or size > room - at:
                continue
            base_offset = _int64(data, at)
            delta = _int32(data, at + 23)
            if base_offset < offset_min or base_offset > offset_max:
                continue
            if delta < 0 or delta > offset_max - base_offset:
                continue
            if _int32(data, at + 57) < 0 or _int32(data, at + 57) > size:
                continue
            found = at
            break
    return found


# --- records ---------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _wrapping_add(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    if cython.compiled:
        return cython.cast(
            cython.longlong, cython.cast(cython.ulonglong, a) + cython.cast(cython.ulonglong, b)
        )
    return (a + b + (1 << 63)) % (1 << 64) - (1 << 63)


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

    The position is that behind the record or, with an error, where it was noticed.
    """
    start: cython.Py_ssize_t = at
    body_end: cython.Py_ssize_t
    header: cython.longlong
    size: cython.longlong
    delta: cython.longlong
    if at >= end:
        return _TOO_FEW_RECORDS, at
    size, at = _varint(data, at, end)
    if at < 0:
        return _BAD_VARINT, start
    if size < 1 or size > end - at:
        return _BAD_RECORD_SIZE, at
    start = at
    body_end = at + cython.cast(cython.Py_ssize_t, size)
    at += 1  # attributes, unused
    delta, at = _varlong(data, at, body_end)
    if at < 0:
        return _BAD_VARINT, start
    # Addition that wraps as Java's does, without overflowing in C.
    table[row + _R_TIMESTAMP] = _wrapping_add(base_timestamp, delta)
    delta, at = _varint(data, at, body_end)
    if at < 0:
        return _BAD_VARINT, start
    if delta < 0 or delta > offset_span:
        return _BAD_OFFSET_DELTA, start
    table[row + _R_OFFSET] = base_offset + delta
    size, at = _varint(data, at, body_end)
    if at < 0:
        return _BAD_VARINT, start
    if size < -1 or size > body_end - at:
        return _BAD_KEY_SIZE, at
    table[row + _R_KEY_POSITION] = at
    table[row + _R_KEY_SIZE] = size
    if size > 0:
        at += cython.cast(cython.Py_ssize_t, size)
    size, at = _varint(data, at, body_end)
    if at < 0:
        return _BAD_VARINT, start
    if size < -1 or size > body_end - at:
        return _BAD_VALUE_SIZE, at
    table[row + _R_VALUE_POSITION] = at
    table[row + _R_VALUE_SIZE] = size
    if size > 0:
        at += cython.cast(cython.Py_ssize_t, size)
    size, at = _varint(data, at, body_end)
    if at < 0:
        return _BAD_VARINT, start
    if size < 0 or size > body_end - at:
        return _BAD_HEADER_COUNT, at
    table[row + _R_HEADERS_POSITION] = at
    table[row + _R_HEADER_COUNT] = size
    header = size
    while header > 0:
        size, at = _varint(data, at, body_end)
        if at < 0:
            return _BAD_VARINT, start
        if size < 0 or size > body_end - at:
            return _BAD_HEADER_SIZE, at
        at += cython.cast(cython.Py_ssize_t, size)
        size, at = _varint(data, at, body_end)
        if at < 0:
            return _BAD_VARINT, start
        if size < -1 or size > body_end - at:
            return _BAD_HEADER_SIZE, at
        if size > 0:
            at += cython.cast(cython.Py_ssize_t, size)
        header -= 1
    if at != body_end:
        return _BAD_BODY, at
    return _RECORDS_OK, at


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
    row: cython.Py_ssize_t = first_row * _RECORD_ROW
    for index in range(count):
        code, at = _parse_record(
            data, at, end, base_offset, offset_span, base_timestamp, table, row
        )
        if code != _RECORDS_OK:
            return code, index, at
        if is_append_time:
            table[row + _R_TIMESTAMP] = append_timestamp
        row += _RECORD_ROW
    if at != end:
        return _BAD_TRAILER, count, at
    return _RECORDS_OK, count, at


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

    Batch number `batch` of `rows` says what to expect; record rows go into `table` from
    `first_row` on. Returns (code, index of the record, position).
    """
    at: cython.Py_ssize_t = batch * _BATCH_ROW
    count: cython.Py_ssize_t
    is_append_time: cython.bint
    code: cython.Py_ssize_t
    index: cython.Py_ssize_t
    position: cython.Py_ssize_t
    if batch < 0 or at + _BATCH_ROW > len(rows):
        raise IndexError("rows outside the table")
    count = rows[at + _B_RECORD_COUNT]
    is_append_time = (rows[at + _B_ATTRIBUTES] & 0x08) != 0
    if start < 0 or end > len(data) or start > end:
        raise IndexError("range outside the data")
    if first_row < 0 or (first_row + count) * _RECORD_ROW > len(table):
        raise IndexError("record table too small")
    with cython.nogil:
        code, index, position = _parse_payload(
            data,
            start,
            end,
            count,
            rows[at + _B_BASE_OFFSET],
            rows[at + _B_LAST_OFFSET_DELTA],
            rows[at + _B_BASE_TIMESTAMP],
            rows[at + _B_MAX_TIMESTAMP],
            is_append_time,
            table,
            first_row,
        )
    return code, index, position


def parse_plain_batches(
    data: cython.const[cython.uchar][::1],
    rows: cython.longlong[::1],
    first_batch: cython.Py_ssize_t,
    batch_count: cython.Py_ssize_t,
    table: cython.longlong[::1],
) -> tuple:
    """Parse a run of uncompressed batches where they lie.

    Stops before a compressed batch or a control batch, and when `table` has no room for the
    next one. Returns (code, batch it stopped at, records parsed, position of an error).
    """
    batch: cython.Py_ssize_t = first_batch
    parsed: cython.Py_ssize_t = 0
    room: cython.Py_ssize_t = len(table) // _RECORD_ROW
    at: cython.Py_ssize_t
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t
    count: cython.Py_ssize_t
    code: cython.Py_ssize_t = _RECORDS_OK
    index: cython.Py_ssize_t
    position: cython.Py_ssize_t = 0
    if first_batch < 0 or batch_count * _BATCH_ROW > len(rows):
        raise IndexError("rows outside the table")
    with cython.nogil:
        while batch < batch_count:
            at = batch * _BATCH_ROW
            count = rows[at + _B_RECORD_COUNT]
            if (rows[at + _B_ATTRIBUTES] & 0x27) != 0 or count > room - parsed:
                break
            start = rows[at + _B_POSITION] + _HEADER_SIZE
            end = rows[at + _B_POSITION] + rows[at + _B_SIZE]
            if start < 0 or end > len(data) or start > end:
                code = _BAD_RECORD_SIZE
                break
            code, index, position = _parse_payload(
                data,
                start,
                end,
                count,
                rows[at + _B_BASE_OFFSET],
                rows[at + _B_LAST_OFFSET_DELTA],
                rows[at + _B_BASE_TIMESTAMP],
                rows[at + _B_MAX_TIMESTAMP],
                (rows[at + _B_ATTRIBUTES] & 0x08) != 0,
                table,
                parsed,
            )
            if code != _RECORDS_OK:
                break
            parsed += count
            batch += 1
    return code, batch, parsed, position


def first_row_at(
    table: cython.longlong[::1],
    start_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    offset: cython.longlong,
) -> cython.Py_ssize_t:
    """The first record row in [start_row, end_row) whose offset is at or past `offset`."""
    low: cython.Py_ssize_t = start_row
    high: cython.Py_ssize_t = end_row
    middle: cython.Py_ssize_t
    if start_row < 0 or end_row * _RECORD_ROW > len(table):
        raise IndexError("rows outside the table")
    while low < high:
        middle = (low + high) // 2
        if table[middle * _RECORD_ROW + _R_OFFSET] < offset:
            low = middle + 1
        else:
            high = middle
    return low


def first_row_at_time(
    table: cython.longlong[::1],
    start_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    timestamp: cython.longlong,
) -> cython.Py_ssize_t:
    """The first record row in [start_row, end_row) whose time is at or after `timestamp`."""
    row: cython.Py_ssize_t
    if start_row < 0 or end_row * _RECORD_ROW > len(table):
        raise IndexError("rows outside the table")
    for row in range(start_row, end_row):
        if table[row * _RECORD_ROW + _R_TIMESTAMP] >= timestamp:
            return row
    return end_row


def check_produced(
    table: cython.longlong[::1],
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    timestamp_min: cython.longlong,
    timestamp_max: cython.longlong,
    needs_key: cython.bint,
    faults: cython.longlong[::1],
) -> tuple:
    """Look over the records of a produced batch.

    Returns (are offsets base, base+1, ...; largest timestamp; number of faults). Each fault is
    a pair in `faults`: index in the batch, and 1 for a missing key or 2 for a timestamp out of
    bounds; only as many as fit are listed.
    """
    row: cython.Py_ssize_t
    consecutive: cython.bint = True
    largest: cython.longlong = -1
    fault_count: cython.Py_ssize_t = 0
    timestamp: cython.longlong
    kind: cython.int
    if count * _RECORD_ROW > len(table):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(count):
            if table[row * _RECORD_ROW + _R_OFFSET] != base_offset + row:
                consecutive = False
            timestamp = table[row * _RECORD_ROW + _R_TIMESTAMP]
            if timestamp > largest:
                largest = timestamp
            kind = 0
            if needs_key and table[row * _RECORD_ROW + _R_KEY_SIZE] < 0:
                kind = 1
            elif timestamp != -1 and (timestamp < timestamp_min or timestamp > timestamp_max):
                kind = 2
            if kind != 0:
                if fault_count * 2 + 1 < len(faults):
                    faults[fault_count * 2] = row
                    faults[fault_count * 2 + 1] = kind
                fault_count += 1
    return consecutive, largest, fault_count


@cython.cfunc
@cython.inline
def _bytes_at(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> bytes:
    if at < 0 or size < 0 or size > len(data) - at:
        raise IndexError("bytes outside the data")
    if cython.compiled:
        if size == 0:
            return b""
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, cython.address(data[at])), size)
    return bytes(data[at : at + size])


@cython.cfunc
@cython.inline
def _make_record(
    record_type: type, value: object, key: object, headers: list, timestamp: object, offset: object
) -> object:
    """A named tuple of five, filled in place: half the time of building it from a tuple."""
    if cython.compiled:
        record: tuple = cython.cast(tuple, PyType_GenericAlloc(record_type, 5))
        Py_INCREF(value)
        PyTuple_SET_ITEM(record, 0, value)
        Py_INCREF(key)
        PyTuple_SET_ITEM(record, 1, key)
        Py_INCREF(headers)
        PyTuple_SET_ITEM(record, 2, headers)
        Py_INCREF(timestamp)
        PyTuple_SET_ITEM(record, 3, timestamp)
        Py_INCREF(offset)
        PyTuple_SET_ITEM(record, 4, offset)
        return record
    return tuple.__new__(record_type, (value, key, headers, timestamp, offset))


def make_records(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[::1],
    start_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    record_type: type,
) -> list:
    """`Record` objects for rows [start_row, end_row), parsed from `data`."""
    records: list = []
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    key: object
    value: object
    headers: list
    if start_row < 0 or end_row * _RECORD_ROW > len(table):
        raise IndexError("rows outside the table")
    for row in range(start_row, end_row):
        at = row * _RECORD_ROW
        key = None
        value = None
        if table[at + _R_KEY_SIZE] >= 0:
            key = _bytes_at(data, table[at + _R_KEY_POSITION], table[at + _R_KEY_SIZE])
        if table[at + _R_VALUE_SIZE] >= 0:
            value = _bytes_at(data, table[at + _R_VALUE_POSITION], table[at + _R_VALUE_SIZE])
        headers = []
        if table[at + _R_HEADER_COUNT] > 0:
            headers = _make_headers(
                data, table[at + _R_HEADERS_POSITION], table[at + _R_HEADER_COUNT]
            )
        records.append(
            _make_record(
                record_type, value, key, headers, table[at + _R_TIMESTAMP], table[at + _R_OFFSET]
            )
        )
    return records


@cython.cfunc
def _make_headers(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, count: cython.longlong
) -> list:
    """The headers at `at`; the parser has checked every length."""
    headers: list = []
    size: cython.longlong
    end: cython.Py_ssize_t = len(data)
    i: cython.longlong
    name: str
    for i in range(count):
        size, at = _varint(data, at, end)
        # As Kafka reads it: one client's bad name must not keep everyone from the record.
        name = _bytes_at(data, at, size).decode("utf-8", "replace")
        at += cython.cast(cython.Py_ssize_t, size)
        size, at = _varint(data, at, end)
        if size < 0:
            headers.append((name, None))
        else:
            headers.append((name, _bytes_at(data, at, size)))
            at += cython.cast(cython.Py_ssize_t, size)
    return headers


# --- columns ---------------------------------------------------------------------------------


def take_words(
    table: cython.longlong[::1],
    start_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    field: cython.Py_ssize_t,
    out: cython.longlong[::1],
    out_row: cython.Py_ssize_t,
) -> None:
    """Copy one int64 field of rows [start_row, end_row) to `out` from `out_row` on."""
    row: cython.Py_ssize_t
    if (
        start_row < 0
        or out_row < 0
        or not 0 <= field < _RECORD_ROW
        or end_row * _RECORD_ROW > len(table)
        or out_row + (end_row - start_row) > len(out)
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(start_row, end_row):
            out[out_row] = table[row * _RECORD_ROW + field]
            out_row += 1


def take_binary(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[::1],
    start_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    field: cython.Py_ssize_t,
    ends: cython.int[::1],
    validity: cython.uchar[::1],
    out: cython.uchar[::1],
    out_row: cython.Py_ssize_t,
    out_position: cython.Py_ssize_t,
) -> tuple:
    """Gather a key or value column in Arrow's layout; return (new out_position, nulls).

    `field` is the position field; the size follows it. `ends[out_row]` must already hold
    `out_position`; `validity` bits must be zero before.
    """
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    nulls: cython.Py_ssize_t = 0
    room: cython.Py_ssize_t = len(out)
    fits: cython.bint = True
    if (
        start_row < 0
        or out_row < 0
        or out_position < 0
        or not 0 <= field < _RECORD_ROW - 1
        or end_row * _RECORD_ROW > len(table)
        or out_row + (end_row - start_row) + 1 > len(ends)
        or out_row + (end_row - start_row) > len(validity) * 8
        or room > _INT32_MAX
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(start_row, end_row):
            at = table[row * _RECORD_ROW + field]
            size = table[row * _RECORD_ROW + field + 1]
            if size < 0:
                nulls += 1
            else:
                if size > room - out_position or at < 0 or size > len(data) - at:
                    fits = False
                    break
                if size > 0:
                    if cython.compiled:
                        memcpy(
                            cython.address(out[out_position]),
                            cython.address(data[at]),
                            cython.cast(cython.size_t, size),
                        )
                    else:
                        out[out_position : out_position + size] = data[at : at + size]
                    out_position += size
                validity[out_row >> 3] |= cython.cast(cython.uchar, 1 << (out_row & 7))
            out_row += 1
            ends[out_row] = cython.cast(cython.int, out_position)
    if not fits:
        raise IndexError("bytes outside the data or the column buffer")
    return out_position, nulls


# --- writing ---------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
def _put_bytes(
    out: cython.uchar[::1], at: cython.Py_ssize_t, source: bytes, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    if size > 0:
        if cython.compiled:
            memcpy(
                cython.address(out[at]),
                cython.cast(cython.p_char, source),
                cython.cast(cython.size_t, size),
            )
        else:
            out[at : at + size] = source
    return at + size


@cython.cfunc
def _as_bytes(value: object, what: str) -> object:
    """`value` as bytes or None; text is refused, because guessing its encoding loses data."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{what} must be bytes or None, not {type(value).__name__}")


@cython.cfunc
def _check_word(value: object) -> object:
    """What compiled code refuses by itself: a number that is no 64-bit integer."""
    if not -_INT64_MAX - 1 <= operator.index(value) <= _INT64_MAX:
        raise OverflowError(f"{value} does not fit 64 bits")
    return value


@cython.cfunc
def _encode_headers(headers: object) -> bytes:
    """Count and headers as they stand at the end of a record."""
    out = bytearray()
    count = 0
    for name, value in headers:
        if isinstance(name, str):
            name = name.encode("utf-8")
        elif not isinstance(name, bytes):
            raise TypeError(f"header name must be text, not {type(name).__name__}")
        value = _as_bytes(value, "header value")
        _extend_varint(out, len(name))
        out += name
        if value is None:
            _extend_varint(out, -1)
        else:
            _extend_varint(out, len(value))
            out += value
        count += 1
    front = bytearray()
    _extend_varint(front, count)
    return bytes(front + out)


@cython.cfunc
def _extend_varint(out: bytearray, value: cython.longlong) -> None:
    raw: cython.ulonglong = cython.cast(cython.ulonglong, (value << 1) ^ (value >> 63))
    while raw >= 0x80:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def survey_records(records: list, record_type: type) -> tuple:
    """What must be known of records before any is written.

    Returns (smallest, largest timestamp given, both None when none is; index of the first
    record without a key, -1 when all have one). Raises TypeError for what is no record.
    """
    index: cython.Py_ssize_t
    keyless: cython.Py_ssize_t = -1
    is_dated: cython.bint = False
    smallest: cython.longlong = 0
    largest: cython.longlong = 0
    timestamp: cython.longlong
    for index in range(len(records)):
        item = records[index]
        if type(item) is record_type:
            if item[1] is None and keyless < 0:
                keyless = index
            if item[3] is not None:
                timestamp = item[3] if type(item[3]) is int else operator.index(item[3])
                if not cython.compiled:
                    _check_word(timestamp)
                if not is_dated or timestamp < smallest:
                    smallest = timestamp
                if not is_dated or timestamp > largest:
                    largest = timestamp
                is_dated = True
        elif isinstance(item, (tuple, list)) and len(item) == 2:
            if item[0] is None and keyless < 0:
                keyless = index
        else:
            raise TypeError(
                f"record {index} must be a Record or a (key, value) pair, not {type(item).__name__}"
            )
    if is_dated:
        return smallest, largest, keyless
    return None, None, keyless


def encode_records(
    records: list,
    first: cython.Py_ssize_t,
    now_ms: cython.longlong,
    record_type: type,
    out: cython.uchar[::1],
    start: cython.Py_ssize_t,
) -> tuple:
    """Encode ``records[first:]`` into `out` from `start` on, as many as fit.

    An item is a `Record` or a (key, value) pair. Returns (index of the first record not
    encoded, position after the last byte, time of the first record, largest time, bytes the
    record that did not fit needs). Nothing fitted when the index is still `first`.
    """
    index: cython.Py_ssize_t = first
    total: cython.Py_ssize_t = len(records)
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = len(out)
    base_timestamp: cython.longlong = -1
    max_timestamp: cython.longlong = -1
    timestamp: cython.longlong
    key_size: cython.Py_ssize_t
    value_size: cython.Py_ssize_t
    size: cython.Py_ssize_t
    needed: cython.Py_ssize_t = 0
    offset_delta: cython.longlong
    key: object
    value: object
    headers: object
    when: object
    encoded_headers: bytes
    if start < 0 or first < 0:
        raise IndexError("range outside the buffer")
    while index < total:
        item = records[index]
        when = None
        headers = None
        if type(item) is record_type:
            value, key, headers, when = item[0], item[1], item[2], item[3]
        elif isinstance(item, (tuple, list)) and len(item) == 2:
            key, value = item[0], item[1]
        else:
            raise TypeError(
                f"record {index} must be a Record or a (key, value) pair, not {type(item).__name__}"
            )
        if type(key) is not bytes and key is not None:
            key = _as_bytes(key, f"key of record {index}")
        if type(value) is not bytes and value is not None:
            value = _as_bytes(value, f"value of record {index}")
        if type(when) is not int and when is not None:
            when = operator.index(when)
        timestamp = now_ms if when is None else when
        if not cython.compiled:
            _check_word(timestamp)
        if index == first:
            base_timestamp = timestamp
        key_size = -1 if key is None else len(cython.cast(bytes, key))
        value_size = -1 if value is None else len(cython.cast(bytes, value))
        offset_delta = index - first
        if timestamp >= 0 and base_timestamp >= 0:
            size = 1 + _varint_size(timestamp - base_timestamp)
        else:
            if timestamp < -1:
                raise ValueError(f"timestamp of record {index} is {timestamp}, must be -1 or more")
            size = 1 + _varint_size(timestamp - base_timestamp)
        size += _varint_size(offset_delta) + _varint_size(key_size) + _varint_size(value_size)
        if key_size > 0:
            size += key_size
        if value_size > 0:
            size += value_size
        if headers:
            encoded_headers = _encode_headers(headers)
            size += len(encoded_headers)
        else:
            encoded_headers = b"\x00"
            size += 1
        needed = size + _varint_size(size)
        if needed > end - at:
            break
        needed = 0
        at = _put_varint(out, at, size)
        out[at] = 0
        at += 1
        at = _put_varint(out, at, timestamp - base_timestamp)
        at = _put_varint(out, at, offset_delta)
        at = _put_varint(out, at, key_size)
        if key_size > 0:
            at = _put_bytes(out, at, cython.cast(bytes, key), key_size)
        at = _put_varint(out, at, value_size)
        if value_size > 0:
            at = _put_bytes(out, at, cython.cast(bytes, value), value_size)
        at = _put_bytes(out, at, encoded_headers, len(encoded_headers))
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        index += 1
    return index, at, base_timestamp, max_timestamp, needed


# --- keys ------------------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _murmur2(data: cython.const[cython.uchar][::1], size: cython.Py_ssize_t) -> cython.uint:
    mixed: cython.ulonglong = _MURMUR_SEED ^ cython.cast(cython.ulonglong, size)
    word: cython.ulonglong
    at: cython.Py_ssize_t = 0
    rest: cython.Py_ssize_t = size & 3
    while at + 4 <= size:
        word = (
            cython.cast(cython.ulonglong, data[at])
            | (cython.cast(cython.ulonglong, data[at + 1]) << 8)
            | (cython.cast(cython.ulonglong, data[at + 2]) << 16)
            | (cython.cast(cython.ulonglong, data[at + 3]) << 24)
        )
        word = (word * _MURMUR_MIX) & _MASK32
        word ^= word >> 24
        word = (word * _MURMUR_MIX) & _MASK32
        mixed = ((mixed * _MURMUR_MIX) & _MASK32) ^ word
        at += 4
    if rest >= 3:
        mixed ^= cython.cast(cython.ulonglong, data[at + 2]) << 16
    if rest >= 2:
        mixed ^= cython.cast(cython.ulonglong, data[at + 1]) << 8
    if rest >= 1:
        mixed ^= cython.cast(cython.ulonglong, data[at])
        mixed = (mixed * _MURMUR_MIX) & _MASK32
    mixed ^= mixed >> 13
    mixed = (mixed * _MURMUR_MIX) & _MASK32
    mixed ^= mixed >> 15
    return cython.cast(cython.uint, mixed)


def murmur2(data: cython.const[cython.uchar][::1]) -> int:
    """Kafka's hash of a key, as an unsigned 32-bit integer."""
    return _murmur2(data, len(data))


def split_by_key(
    records: list, record_type: type, partitions: cython.int, keyless: cython.int
) -> tuple:
    """Sort records into one list per partition, in order; also the partition of each.

    A key decides by its hash, as in every Kafka client; records without one go to `keyless`.
    """
    lists: list = [[] for _ in range(partitions)]
    chosen = array("i", bytes(4 * len(records)))
    view: cython.int[::1] = chosen
    index: cython.Py_ssize_t
    partition: cython.int
    for index in range(len(records)):
        item = records[index]
        if type(item) is record_type:
            key = item[1]
        elif isinstance(item, (tuple, list)) and len(item) == 2:
            key = item[0]
        else:
            raise TypeError(
                f"record {index} must be a Record or a (key, value) pair, not {type(item).__name__}"
            )
        if key is None:
            partition = keyless
        else:
            key = _as_bytes(key, f"key of record {index}")
            partition = (murmur2(key) & _INT32_MAX) % partitions
        view[index] = partition
        lists[partition].append(item)
    return lists, chosen


# --- checksum --------------------------------------------------------------------------------


def _make_crc_table() -> array:
    """Eight tables of 256 words: the checksum takes eight bytes per step."""
    table = array("I", bytes(4 * 8 * 256))
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ 0x82F63B78 if value & 1 else value >> 1
        table[byte] = value
    for byte in range(256):
        value = table[byte]
        for part in range(1, 8):
            value = table[value & 0xFF] ^ (value >> 8)
            table[part * 256 + byte] = value
    return table


_CRC_TABLE = _make_crc_table()


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _crc32c(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    table: cython.const[cython.uint][::1],
) -> cython.longlong:
    crc: cython.uint = cython.cast(cython.uint, _MASK32)
    low: cython.uint
    while at + 8 <= end:
        low = crc ^ (
            cython.cast(cython.uint, data[at])
            | (cython.cast(cython.uint, data[at + 1]) << 8)
            | (cython.cast(cython.uint, data[at + 2]) << 16)
            | (cython.cast(cython.uint, data[at + 3]) << 24)
        )
        crc = (
            table[1792 + (low & 0xFF)]
            ^ table[1536 + ((low >> 8) & 0xFF)]
            ^ table[1280 + ((low >> 16) & 0xFF)]
            ^ table[1024 + (low >> 24)]
            ^ table[768 + data[at + 4]]
            ^ table[512 + data[at + 5]]
            ^ table[256 + data[at + 6]]
            ^ table[data[at + 7]]
        )
        at += 8
    while at < end:
        crc = table[(crc ^ data[at]) & 0xFF] ^ (crc >> 8)
        at += 1
    return crc ^ cython.cast(cython.uint, _MASK32)


def crc32c_portable(data: cython.const[cython.uchar][::1]) -> int:
    """CRC-32C without hardware help: for short inputs, and the judge of the other one."""
    return _crc32c(data, 0, len(data), _CRC_TABLE)


# --- produced batches ------------------------------------------------------------------------


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
    """Whether the records are sound and numbered from 0; newest and oldest time; all have keys."""
    index: cython.longlong = 0
    code: cython.Py_ssize_t
    timestamp: cython.longlong
    newest: cython.longlong = -1
    oldest: cython.longlong = _INT64_MAX
    has_keys: cython.bint = True
    while index < count:
        code, at = _parse_record(data, at, end, 0, count - 1, base_timestamp, row, 0)
        if code != _RECORDS_OK or row[_R_OFFSET] != index:
            return False, newest, oldest, has_keys
        timestamp = row[_R_TIMESTAMP]
        if timestamp > newest:
            newest = timestamp
        if timestamp < oldest:
            oldest = timestamp
        if row[_R_KEY_SIZE] < 0:
            has_keys = False
        index += 1
    return at == end, newest, oldest, has_keys


# A row for `_survey_records` that only who holds the interpreter's lock may use: making one takes
# as long as looking over a small batch.
_SURVEY_ROW = array("q", bytes(64))
if cython.compiled:
    _SHARED_ROW = cython.declare(cython.longlong[::1], _SURVEY_ROW)
    _CRC_WORDS = cython.declare(cython.const[cython.uint][::1], _CRC_TABLE)
else:
    _SHARED_ROW = _SURVEY_ROW
    _CRC_WORDS = _CRC_TABLE


def survey_produced(
    data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple | None:
    """The facts of a produced batch that is as most are; None for one that wants a closer look.

    As most are: one uncompressed batch of a client that fills ``data[start:end]``, its records
    sound, numbered from 0 and dated as the header says, its checksum right. A batch that is
    large has its checksum left for faster hardware: then the last fact is what it should be.

    Returns (record count, max timestamp, oldest timestamp, whether all have keys, producer id,
    producer epoch, base sequence, checksum to check or -1).
    """
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
    if _int64(data, start) != 0 or _int32(data, start + 8) != size - 12 or data[start + 16] != 2:
        return None
    if data[start + 21] != 0 or data[start + 22] != 0:  # attributes: compressed, control, ...
        return None
    count = _int32(data, start + 57)
    if count < 1 or _int32(data, start + 23) != count - 1 or count > size - _HEADER_SIZE:
        return None
    producer_id: cython.longlong = _int64(data, start + 43)
    producer_epoch: cython.longlong = (
        cython.cast(cython.longlong, data[start + 51]) << 8 | data[start + 52]
    )
    base_sequence: cython.longlong = _int32(data, start + 53)
    if producer_epoch > 0x7FFF:
        producer_epoch -= 0x10000
    if producer_id != -1 and (producer_id < 0 or producer_epoch < 0 or base_sequence < 0):
        return None
    base_timestamp = _int64(data, start + 27)
    crc = _int32(data, start + 17) & cython.cast(cython.longlong, _MASK32)
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
    if not is_usual or newest != _int64(data, start + 35):
        return None
    if size <= _TINY_BATCH:
        if _crc32c(data, start + 21, end, _CRC_WORDS) != crc:
            return None
        crc = -1
    return count, newest, oldest, has_keys, producer_id, producer_epoch, base_sequence, crc


# --- indexes ---------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_int32(
    out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong
) -> cython.void:
    out[at] = cython.cast(cython.uchar, (value >> 24) & 0xFF)
    out[at + 1] = cython.cast(cython.uchar, (value >> 16) & 0xFF)
    out[at + 2] = cython.cast(cython.uchar, (value >> 8) & 0xFF)
    out[at + 3] = cython.cast(cython.uchar, value & 0xFF)


def index_batches(
    rows: cython.longlong[::1],
    count: cython.Py_ssize_t,
    chunk_position: cython.longlong,
    base_offset: cython.longlong,
    interval: cython.longlong,
    state: cython.longlong[::1],
    offset_entries: cython.uchar[::1],
    time_entries: cython.uchar[::1],
) -> tuple:
    """The index entries that `count` batches call for, encoded as they stand in the files.

    `chunk_position` is where in the file the buffer began that the rows speak of. `state`
    carries the walk from call to call, in the columns named S_*. Returns the sizes in bytes of
    what was put into `offset_entries` and `time_entries`, which must have room for 8 and 12
    bytes per batch.
    """
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    offset_size: cython.Py_ssize_t = 0
    time_size: cython.Py_ssize_t = 0
    relative: cython.longlong
    if (
        count * _BATCH_ROW > len(rows)
        or len(offset_entries) < count * 8
        or len(time_entries) < count * 12
        or len(state) < _STATE_WORDS
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for i in range(count):
            at = i * _BATCH_ROW
            if state[_S_FIRST_TIMESTAMP] == -2:
                state[_S_FIRST_TIMESTAMP] = rows[at + _B_MAX_TIMESTAMP]
            if rows[at + _B_MAX_TIMESTAMP] > state[_S_MAX_TIMESTAMP]:
                state[_S_MAX_TIMESTAMP] = rows[at + _B_MAX_TIMESTAMP]
                state[_S_MAX_TIMESTAMP_OFFSET] = rows[at + _B_NEXT_OFFSET] - 1
            relative = rows[at + _B_NEXT_OFFSET] - 1 - base_offset
            if state[_S_UNINDEXED] > interval and relative <= _INT32_MAX:
                _put_int32(offset_entries, offset_size, relative)
                _put_int32(offset_entries, offset_size + 4, chunk_position + rows[at + _B_POSITION])
                offset_size += 8
                if state[_S_MAX_TIMESTAMP] > state[_S_INDEXED_TIMESTAMP]:
                    _put_int32(time_entries, time_size, state[_S_MAX_TIMESTAMP] >> 32)
                    _put_int32(time_entries, time_size + 4, state[_S_MAX_TIMESTAMP])
                    _put_int32(
                        time_entries,
                        time_size + 8,
                        state[_S_MAX_TIMESTAMP_OFFSET] - base_offset,
                    )
                    time_size += 12
                    state[_S_INDEXED_TIMESTAMP] = state[_S_MAX_TIMESTAMP]
                state[_S_UNINDEXED] = 0
            state[_S_UNINDEXED] += rows[at + _B_SIZE]
            state[_S_RECORD_COUNT] += rows[at + _B_RECORD_COUNT]
    return offset_size, time_size


def find_key(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[::1],
    start_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    key: cython.const[cython.uchar][::1],
) -> cython.Py_ssize_t:
    """The last row in [start_row, end_row) with that key, or -1."""
    row: cython.Py_ssize_t
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t = len(key)
    found: cython.Py_ssize_t = -1
    if start_row < 0 or end_row * _RECORD_ROW > len(table):
        raise IndexError("rows outside the table")
    with cython.nogil:
        row = end_row - 1
        while row >= start_row and found < 0:
            at = table[row * _RECORD_ROW + _R_KEY_POSITION]
            if (
                table[row * _RECORD_ROW + _R_KEY_SIZE] == size
                and at >= 0
                and size <= len(data) - at
            ):
                i = 0
                while i < size and data[at + i] == key[i]:
                    i += 1
                if i == size:
                    found = row
            row -= 1
    return found


def header_totals(
    table: cython.longlong[::1], start_row: cython.Py_ssize_t, end_row: cython.Py_ssize_t
) -> cython.longlong:
    """How many headers the records in [start_row, end_row) have together."""
    row: cython.Py_ssize_t
    total: cython.longlong = 0
    if start_row < 0 or end_row * _RECORD_ROW > len(table):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(start_row, end_row):
            total += table[row * _RECORD_ROW + _R_HEADER_COUNT]
    return total


def take_headers(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[::1],
    start_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    list_ends: cython.int[::1],
    names: cython.longlong[::1],
    out_row: cython.Py_ssize_t,
    header_row: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Where the headers of rows [start_row, end_row) lie, as rows of a second record table.

    Each header becomes a row of `names` with its name in the key columns and its value in the
    value columns, so that `take_binary` can gather both. `list_ends` gets Arrow's list offsets.
    Returns the header row after the last.
    """
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t = len(data)
    left: cython.longlong
    size: cython.longlong
    fits: cython.bint = True
    if (
        start_row < 0
        or out_row < 0
        or header_row < 0
        or end_row * _RECORD_ROW > len(table)
        or out_row + (end_row - start_row) + 1 > len(list_ends)
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(start_row, end_row):
            at = table[row * _RECORD_ROW + _R_HEADERS_POSITION]
            left = table[row * _RECORD_ROW + _R_HEADER_COUNT]
            while left > 0:
                if (header_row + 1) * _RECORD_ROW > len(names):
                    fits = False
                    break
                size, at = _varint(data, at, end)
                names[header_row * _RECORD_ROW + _R_KEY_POSITION] = at
                names[header_row * _RECORD_ROW + _R_KEY_SIZE] = size
                at += cython.cast(cython.Py_ssize_t, size)
                size, at = _varint(data, at, end)
                names[header_row * _RECORD_ROW + _R_VALUE_POSITION] = at
                names[header_row * _RECORD_ROW + _R_VALUE_SIZE] = size
                if size > 0:
                    at += cython.cast(cython.Py_ssize_t, size)
                header_row += 1
                left -= 1
            if not fits:
                break
            out_row += 1
            list_ends[out_row] = cython.cast(cython.int, header_row)
    if not fits:
        raise IndexError("header table too small")
    return header_row

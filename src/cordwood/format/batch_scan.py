# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The batches in a buffer: find them, verify their checksums, index them.

Compiled by Cython at install, where annotations become C types; without a compiler it runs as plain
Python, slowly, with the same results. The tests hold both forms equal.

Rules of every kernel: each read is checked against the end of its input first, because the compiled
form has no bounds checks; no memory is allocated from a length that was read; faults in the input
are returned as codes with a position, and the callers turn them into exceptions.

Kernels exchange two tables, flat arrays of int64, one row after another:

    batch rows     where each batch lies and what its header says
    record rows    absolute offset and time of each record, and where its key, value and
                   headers lie in the bytes it was parsed from

`kernel_tables.py` names their columns.
"""

from __future__ import annotations

from cordwood.primitives import CRC32C_TABLE

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.format import kernel_tables as tables  # type: ignore
    from cython.cimports.cordwood.format.small_checksums import small_crc32c, small_size_max  # type: ignore
    from cython.cimports.cordwood.primitives import crc32c_of, int32, int64, put_int32, uint32  # type: ignore
else:
    from cordwood.format import kernel_tables as tables
    from cordwood.format.small_checksums import small_crc32c, small_size_max
    from cordwood.primitives import crc32c_of, int32, int64, put_int32, uint32

COMPILED = cython.compiled

_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
# Up to this size, calling the package for the checksum costs more.
_SMALL_BATCH = cython.declare(cython.Py_ssize_t, small_size_max(2048))
_INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)


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

    `position` is that of the first batch not taken. Each batch must begin at or after the end
    offset of the one before it (`next_offset_min` for the first), exactly there if `is_dense`, and
    end at or before `offset_limit`. The checksum does not cover the base offset, so only this check
    detects a damaged one. Checksums are not verified here.
    """
    count: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = start
    row: cython.Py_ssize_t = 0
    room: cython.Py_ssize_t = len(rows)
    reason: cython.Py_ssize_t = tables.STOP_END
    size: cython.longlong
    base_offset: cython.longlong
    delta: cython.longlong
    records: cython.longlong
    if start < 0 or end > len(data) or start > end:
        raise IndexError("range outside the data")
    with cython.nogil:
        while True:
            if at == end:
                reason = tables.STOP_END
                break
            if row + tables.BATCH_ROW > room:
                reason = tables.STOP_FULL
                break
            if end - at < _HEADER_SIZE:
                reason = tables.STOP_SHORT_HEADER
                break
            size = int32(data, at + 8) + 12
            base_offset = int64(data, at)
            if data[at + 16] != 2:
                reason = tables.STOP_BAD_MAGIC
                break
            if size < _HEADER_SIZE:
                reason = tables.STOP_BAD_SIZE
                break
            delta = int32(data, at + 23)
            records = int32(data, at + 57)
            if (
                base_offset < next_offset_min
                or delta < 0
                or base_offset >= offset_limit
                or delta >= offset_limit - base_offset
                or (is_dense and base_offset != next_offset_min)
            ):
                reason = tables.STOP_BAD_OFFSET
                break
            if records < 0:
                reason = tables.STOP_BAD_COUNT
                break
            if base_offset >= stop_offset:
                reason = tables.STOP_OFFSET
                break
            if size > end - at:
                reason = tables.STOP_SHORT_BATCH
                break
            next_offset_min = base_offset + delta + 1
            rows[row + tables.B_POSITION] = at
            rows[row + tables.B_SIZE] = size
            rows[row + tables.B_BASE_OFFSET] = base_offset
            rows[row + tables.B_NEXT_OFFSET] = next_offset_min
            rows[row + tables.B_MAX_TIMESTAMP] = int64(data, at + 35)
            rows[row + tables.B_ATTRIBUTES] = int32(data, at + 19) & 0xFFFF
            rows[row + tables.B_RECORD_COUNT] = records
            rows[row + tables.B_BASE_TIMESTAMP] = int64(data, at + 27)
            rows[row + tables.B_CRC] = uint32(data, at + 17)
            rows[row + tables.B_PRODUCER_ID] = int64(data, at + 43)
            rows[row + tables.B_PRODUCER_EPOCH] = int32(data, at + 51) >> 16
            rows[row + tables.B_BASE_SEQUENCE] = int32(data, at + 53)
            rows[row + tables.B_LEADER_EPOCH] = int32(data, at + 12)
            rows[row + tables.B_LAST_OFFSET_DELTA] = delta
            row += tables.BATCH_ROW
            count += 1
            at += cython.cast(cython.Py_ssize_t, size)
    return count, at, reason


def find_batch(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    first_offset: cython.longlong,
    last_offset: cython.longlong,
    offset: cython.longlong,
) -> tuple:
    """The batch of a dense log in ``data[start:end]`` that holds `offset`: (position, size, -1).

    The first batch must begin at `first_offset` or, if that is negative, end with `last_offset`;
    every other one begins where the one before it ended. Only headers are looked at, and the batch
    itself may lie partly behind `end`. A position of -1 means that this is not so. If the headers
    end before the batch, the size is 0: then the position, which may lie behind `end`, is where the
    next batch begins, and the third number is the offset at which it must begin.
    """
    at: cython.Py_ssize_t = start
    size: cython.longlong
    delta: cython.longlong
    base_offset: cython.longlong
    is_first: cython.bint = True
    if start < 0 or end > len(data) or start > end:
        raise IndexError("range outside the data")
    while end - at >= _HEADER_SIZE:
        size = int32(data, at + 8) + 12
        base_offset = int64(data, at)
        delta = int32(data, at + 23)
        if data[at + 16] != 2 or size < _HEADER_SIZE or delta < 0 or base_offset < 0:
            return -1, 0, -1
        if is_first and first_offset < 0:
            if base_offset > last_offset or delta != last_offset - base_offset:
                return -1, 0, -1
        elif base_offset != first_offset:
            return -1, 0, -1
        if base_offset > offset:
            return -1, 0, -1
        if offset - base_offset <= delta:
            return at, size, -1
        is_first = False
        first_offset = base_offset + delta + 1
        at += cython.cast(cython.Py_ssize_t, size)
    if is_first:
        return -1, 0, -1
    return at, 0, first_offset


@cython.cfunc
@cython.inline
def _entries_up_to(
    entries: cython.const[cython.uchar][::1], relative_offset: cython.longlong
) -> cython.Py_ssize_t:
    """How many entries of an offset index are at or below `relative_offset`."""
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = len(entries) // 8
    middle: cython.Py_ssize_t
    while low < high:
        middle = (low + high) >> 1
        if int32(entries, middle * 8) <= relative_offset:
            low = middle + 1
        else:
            high = middle
    return low


def floor_entry(
    entries: cython.const[cython.uchar][::1], relative_offset: cython.longlong
) -> tuple:
    """The last entry of an offset index at or below `relative_offset`: (offset, position).

    The offset is relative, too. (-1, 0) if there is none. The offsets must not decrease.
    """
    low: cython.Py_ssize_t = _entries_up_to(entries, relative_offset)
    if low == 0:
        return -1, 0
    return int32(entries, low * 8 - 8), int32(entries, low * 8 - 4)


def entries_around(
    entries: cython.const[cython.uchar][::1],
    base_offset: cython.longlong,
    offset: cython.longlong,
) -> tuple:
    """The entries of an offset index between which the batch with `offset` lies: five numbers.

    The last offset and the position of the last entry at or below `offset`, the same of the entry
    after it, and the position of the one after that. All offsets are absolute. A position of 0
    means that there is no such entry, or that it is damaged.
    """
    low: cython.Py_ssize_t = _entries_up_to(entries, offset - base_offset)
    count: cython.Py_ssize_t = len(entries) // 8
    last: cython.longlong = 0
    position: cython.longlong = 0
    next_last: cython.longlong = 0
    next_position: cython.longlong = 0
    beyond: cython.longlong = 0
    if low > 0:
        last = int32(entries, low * 8 - 8)
        position = int32(entries, low * 8 - 4)
    if low < count:
        next_last = int32(entries, low * 8)
        next_position = int32(entries, low * 8 + 4)
    if low + 1 < count:
        beyond = int32(entries, low * 8 + 12)
    if last < 0 or position < 0:
        last = 0
        position = 0
    if next_last < 0 or next_position < 0 or beyond < 0:
        next_last = 0
        next_position = 0
        beyond = 0
    return base_offset + last, position, base_offset + next_last, next_position, beyond


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
    table: cython.const[cython.uint][::1] = CRC32C_TABLE
    if count * tables.BATCH_ROW > len(rows):
        raise IndexError("rows outside the table")
    for i in range(count):
        at = rows[i * tables.BATCH_ROW + tables.B_POSITION]
        size = rows[i * tables.BATCH_ROW + tables.B_SIZE]
        if at < 0 or size < _HEADER_SIZE or size > len(data) - at:
            raise IndexError("batch outside the data")
        if size <= _SMALL_BATCH:
            crc = small_crc32c(data, at + 21, at + size, table)
        else:
            crc = hardware_crc(whole[at + 21 : at + size])
        if crc != rows[i * tables.BATCH_ROW + tables.B_CRC]:
            return i
    return count


def crc32c_portable(data: cython.const[cython.uchar][::1]) -> int:
    """CRC-32C without hardware support, for short inputs and to test the other one."""
    return crc32c_of(data, 0, len(data), CRC32C_TABLE)


def find_batch_start(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    offset_min: cython.longlong,
    offset_max: cython.longlong,
    room: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Position of the next bytes that look like a batch header, or -1; used to skip damage.

    `room` is the number of bytes in the file from ``data[0]`` on, which may be more than `data`
    holds. The result is only a candidate: the caller must verify its checksum.
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
            size = int32(data, at + 8) + 12
            if size < _HEADER_SIZE or size > room - at:
                continue
            base_offset = int64(data, at)
            delta = int32(data, at + 23)
            if base_offset < offset_min or base_offset > offset_max:
                continue
            if delta < 0 or delta > offset_max - base_offset:
                continue
            if int32(data, at + 57) < 0 or int32(data, at + 57) > size:
                continue
            found = at
            break
    return found


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
    """Encode the index entries of `count` batches as in the index files.

    `chunk_position` is the file position of the buffer that the rows refer to. `state` keeps the
    state of the walk between calls, in the columns named S_*. Returns the sizes in bytes of the
    entries written to `offset_entries` and `time_entries`, which must have room for 8 and 12 bytes
    per batch.
    """
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    offset_size: cython.Py_ssize_t = 0
    time_size: cython.Py_ssize_t = 0
    relative: cython.longlong
    if (
        count * tables.BATCH_ROW > len(rows)
        or len(offset_entries) < count * 8
        or len(time_entries) < count * 12
        or len(state) < tables.STATE_WORDS
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for i in range(count):
            at = i * tables.BATCH_ROW
            if state[tables.S_FIRST_TIMESTAMP] == -2:
                state[tables.S_FIRST_TIMESTAMP] = rows[at + tables.B_MAX_TIMESTAMP]
            if rows[at + tables.B_MAX_TIMESTAMP] > state[tables.S_MAX_TIMESTAMP]:
                state[tables.S_MAX_TIMESTAMP] = rows[at + tables.B_MAX_TIMESTAMP]
                state[tables.S_MAX_TIMESTAMP_OFFSET] = rows[at + tables.B_NEXT_OFFSET] - 1
            relative = rows[at + tables.B_NEXT_OFFSET] - 1 - base_offset
            if state[tables.S_UNINDEXED] > interval and relative <= _INT32_MAX:
                put_int32(offset_entries, offset_size, relative)
                put_int32(
                    offset_entries, offset_size + 4, chunk_position + rows[at + tables.B_POSITION]
                )
                offset_size += 8
                if state[tables.S_MAX_TIMESTAMP] > state[tables.S_INDEXED_TIMESTAMP]:
                    put_int32(time_entries, time_size, state[tables.S_MAX_TIMESTAMP] >> 32)
                    put_int32(time_entries, time_size + 4, state[tables.S_MAX_TIMESTAMP])
                    put_int32(
                        time_entries,
                        time_size + 8,
                        state[tables.S_MAX_TIMESTAMP_OFFSET] - base_offset,
                    )
                    time_size += 12
                    state[tables.S_INDEXED_TIMESTAMP] = state[tables.S_MAX_TIMESTAMP]
                state[tables.S_UNINDEXED] = 0
            state[tables.S_UNINDEXED] += rows[at + tables.B_SIZE]
            state[tables.S_RECORD_COUNT] += rows[at + tables.B_RECORD_COUNT]
    return offset_size, time_size

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The table of parsed records: search and check it, make `Record`s and Arrow columns from it.

See `batch_scan.py` for the rules of kernels and for the tables.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.format import kernel_tables as tables  # type: ignore
    from cython.cimports.cordwood.format.python_api import (  # type: ignore
        PyGC_Disable,
        PyGC_Enable,
        PyObject_GC_Track,
        cordwood_forget_hash,
        cordwood_new_items,
    )
    from cython.cimports.cordwood.primitives import varint  # type: ignore
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize  # type: ignore
    from cython.cimports.cpython.ref import Py_INCREF  # type: ignore
    from cython.cimports.cpython.tuple import PyTuple_SET_ITEM  # type: ignore
    from cython.cimports.libc.string import memcpy  # type: ignore
else:
    from cordwood.format import kernel_tables as tables
    from cordwood.primitives import varint

COMPILED = cython.compiled

_INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)


# --- search and checks -----------------------------------------------------------------------


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
    if start_row < 0 or end_row * tables.RECORD_ROW > len(table):
        raise IndexError("rows outside the table")
    while low < high:
        middle = (low + high) // 2
        if table[middle * tables.RECORD_ROW + tables.R_OFFSET] < offset:
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
    if start_row < 0 or end_row * tables.RECORD_ROW > len(table):
        raise IndexError("rows outside the table")
    for row in range(start_row, end_row):
        if table[row * tables.RECORD_ROW + tables.R_TIMESTAMP] >= timestamp:
            return row
    return end_row


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
    if start_row < 0 or end_row * tables.RECORD_ROW > len(table):
        raise IndexError("rows outside the table")
    with cython.nogil:
        row = end_row - 1
        while row >= start_row and found < 0:
            at = table[row * tables.RECORD_ROW + tables.R_KEY_POSITION]
            if (
                table[row * tables.RECORD_ROW + tables.R_KEY_SIZE] == size
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


def check_produced(
    table: cython.longlong[::1],
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    timestamp_min: cython.longlong,
    timestamp_max: cython.longlong,
    needs_key: cython.bint,
    faults: cython.longlong[::1],
) -> tuple:
    """Check the records of a produced batch.

    Returns (are the offsets base, base+1, ...; largest timestamp; number of faults). Each fault is
    a pair in `faults`: index in the batch, and 1 for a missing key or 2 for a timestamp out of
    bounds. Lists as many faults as fit.
    """
    row: cython.Py_ssize_t
    consecutive: cython.bint = True
    largest: cython.longlong = -1
    fault_count: cython.Py_ssize_t = 0
    timestamp: cython.longlong
    kind: cython.int
    if count * tables.RECORD_ROW > len(table):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(count):
            if table[row * tables.RECORD_ROW + tables.R_OFFSET] != base_offset + row:
                consecutive = False
            timestamp = table[row * tables.RECORD_ROW + tables.R_TIMESTAMP]
            largest = max(largest, timestamp)
            kind = 0
            if needs_key and table[row * tables.RECORD_ROW + tables.R_KEY_SIZE] < 0:
                kind = 1
            elif timestamp != -1 and (timestamp < timestamp_min or timestamp > timestamp_max):
                kind = 2
            if kind != 0:
                if fault_count * 2 + 1 < len(faults):
                    faults[fault_count * 2] = row
                    faults[fault_count * 2 + 1] = kind
                fault_count += 1
    return consecutive, largest, fault_count


# --- `Record` objects ------------------------------------------------------------------------


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
    else:
        return bytes(data[at : at + size])


@cython.cfunc
@cython.inline
def _make_record(
    record_type: type, value: object, key: object, headers: list, timestamp: object, offset: object
) -> object:
    """A named tuple of five, filled in place: twice as fast as building it from a tuple.

    Nothing can fail or look at it before it is filled, so it needs no zeros at first.
    """
    if cython.compiled:
        record: tuple = cython.cast(tuple, cordwood_new_items(record_type, 5))
        cordwood_forget_hash(record)
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
        PyObject_GC_Track(record)
        return record
    else:
        return tuple.__new__(record_type, (value, key, headers, timestamp, offset))


def make_records(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[::1],
    start_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    record_type: type,
) -> list:
    """`Record` objects for rows [start_row, end_row), parsed from `data`."""
    if start_row < 0 or end_row * tables.RECORD_ROW > len(table):
        raise IndexError("rows outside the table")
    if cython.compiled:
        # The collector would search thousands of new records again and again, and none of them
        # can be garbage. The lock of the interpreter is held, so nobody else misses it.
        was_enabled: cython.bint = PyGC_Disable()
        try:
            return _make_all(data, table, start_row, end_row, record_type)
        finally:
            if was_enabled:
                PyGC_Enable()
    else:
        return _make_all(data, table, start_row, end_row, record_type)


@cython.cfunc
def _make_all(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[::1],
    start_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    record_type: type,
) -> list:
    records: list = []
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    key: object
    value: object
    headers: list
    last_time: cython.longlong = -1
    timestamp: object = -1  # of `last_time`: many records in a row have the same
    for row in range(start_row, end_row):
        at = row * tables.RECORD_ROW
        if table[at + tables.R_TIMESTAMP] != last_time:
            last_time = table[at + tables.R_TIMESTAMP]
            timestamp = last_time
        key = None
        value = None
        if table[at + tables.R_KEY_SIZE] >= 0:
            key = _bytes_at(data, table[at + tables.R_KEY_POSITION], table[at + tables.R_KEY_SIZE])
        if table[at + tables.R_VALUE_SIZE] >= 0:
            value = _bytes_at(
                data, table[at + tables.R_VALUE_POSITION], table[at + tables.R_VALUE_SIZE]
            )
        headers = []
        if table[at + tables.R_HEADER_COUNT] > 0:
            headers = _make_headers(
                data, table[at + tables.R_HEADERS_POSITION], table[at + tables.R_HEADER_COUNT]
            )
        records.append(
            _make_record(
                record_type,
                value,
                key,
                headers,
                timestamp,
                table[at + tables.R_OFFSET],
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
        size, at = varint(data, at, end)
        # As in Kafka: an invalid name must not make the record unreadable.
        name = _bytes_at(data, at, size).decode("utf-8", "replace")
        at += cython.cast(cython.Py_ssize_t, size)
        size, at = varint(data, at, end)
        if size < 0:
            headers.append((name, None))
        else:
            headers.append((name, _bytes_at(data, at, size)))
            at += cython.cast(cython.Py_ssize_t, size)
    return headers


# --- Arrow columns ---------------------------------------------------------------------------


def take_words(
    run: object, field: cython.Py_ssize_t, out: cython.longlong[::1], out_row: cython.Py_ssize_t
) -> None:
    """Copy one int64 field of the records of `run`, a `RecordRun`, to `out` from `out_row` on."""
    table: cython.longlong[::1] = run.table
    start_row: cython.Py_ssize_t = run.start
    end_row: cython.Py_ssize_t = run.end
    row: cython.Py_ssize_t
    if (
        start_row < 0
        or out_row < 0
        or not 0 <= field < tables.RECORD_ROW
        or end_row * tables.RECORD_ROW > len(table)
        or out_row + (end_row - start_row) > len(out)
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(start_row, end_row):
            out[out_row] = table[row * tables.RECORD_ROW + field]
            out_row += 1


def take_binary(
    run: object, field: cython.Py_ssize_t, column: object, out_row: cython.Py_ssize_t
) -> tuple:
    """Append the keys or values of `run` to a column in Arrow's layout: (new size, nulls added).

    `field` is the position field; the size follows it. The column has `ends`, `validity`, `data`
    and `size`, the bytes used of `data`; its rows before `out_row` are filled, so ``ends[out_row]``
    is `size`. Validity bits from `out_row` on must be zero.
    """
    data: cython.const[cython.uchar][::1] = run.data
    table: cython.longlong[::1] = run.table
    start_row: cython.Py_ssize_t = run.start
    end_row: cython.Py_ssize_t = run.end
    ends: cython.int[::1] = column.ends
    validity: cython.uchar[::1] = column.validity
    out: cython.uchar[::1] = column.data
    out_position: cython.Py_ssize_t = column.size
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
        or not 0 <= field < tables.RECORD_ROW - 1
        or end_row * tables.RECORD_ROW > len(table)
        or out_row + (end_row - start_row) + 1 > len(ends)
        or out_row + (end_row - start_row) > len(validity) * 8
        or room > _INT32_MAX
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(start_row, end_row):
            at = table[row * tables.RECORD_ROW + field]
            size = table[row * tables.RECORD_ROW + field + 1]
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


def header_totals(
    table: cython.longlong[::1], start_row: cython.Py_ssize_t, end_row: cython.Py_ssize_t
) -> cython.longlong:
    """The number of headers of all records in [start_row, end_row)."""
    row: cython.Py_ssize_t
    total: cython.longlong = 0
    if start_row < 0 or end_row * tables.RECORD_ROW > len(table):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(start_row, end_row):
            total += table[row * tables.RECORD_ROW + tables.R_HEADER_COUNT]
    return total


def take_headers(
    run: object, list_ends: cython.int[::1], headers: cython.longlong[::1]
) -> cython.Py_ssize_t:
    """Where the headers of `run` lie, as rows of a second record table; return how many.

    Each header becomes a row of `headers` with its name in the key columns and its value in the
    value columns, so that `take_binary` can gather both. `list_ends` gets Arrow's list offsets;
    its first word must be 0.
    """
    data: cython.const[cython.uchar][::1] = run.data
    table: cython.longlong[::1] = run.table
    start_row: cython.Py_ssize_t = run.start
    end_row: cython.Py_ssize_t = run.end
    out_row: cython.Py_ssize_t = 0
    header_row: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t = len(data)
    left: cython.longlong
    size: cython.longlong
    fits: cython.bint = True
    if (
        start_row < 0
        or end_row * tables.RECORD_ROW > len(table)
        or out_row + (end_row - start_row) + 1 > len(list_ends)
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(start_row, end_row):
            at = table[row * tables.RECORD_ROW + tables.R_HEADERS_POSITION]
            left = table[row * tables.RECORD_ROW + tables.R_HEADER_COUNT]
            while left > 0:
                if (header_row + 1) * tables.RECORD_ROW > len(headers):
                    fits = False
                    break
                size, at = varint(data, at, end)
                headers[header_row * tables.RECORD_ROW + tables.R_KEY_POSITION] = at
                headers[header_row * tables.RECORD_ROW + tables.R_KEY_SIZE] = size
                at += cython.cast(cython.Py_ssize_t, size)
                size, at = varint(data, at, end)
                headers[header_row * tables.RECORD_ROW + tables.R_VALUE_POSITION] = at
                headers[header_row * tables.RECORD_ROW + tables.R_VALUE_SIZE] = size
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

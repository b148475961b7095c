# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Columns into record batches: find the bytes of each row, choose partitions, encode records.

See `batch_scan.py` for the rules of kernels.

A *span* says where an item lies: two int64, its position and its size; the size of a null is -1.
`spans` makes them from a column in Arrow's layout and checks them once; the encoder reads them.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.primitives import (  # type: ignore
        murmur2_of,
        put_varint,
        varint_size,
    )
    from cython.cimports.libc.string import memcpy  # type: ignore
else:
    from cordwood.primitives import murmur2_of, put_varint, varint_size

_MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_POSITIVE = cython.declare(cython.ulonglong, 0x7FFFFFFF)


# --- spans -----------------------------------------------------------------------------------


def spans(
    ends: cython.const[cython.int][::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    validity: cython.const[cython.uchar][::1],
    data_size: cython.Py_ssize_t,
    out: cython.longlong[::1],
) -> int:
    """Write the spans of rows [first, first + count) of an Arrow column; return the null count.

    `ends` are Arrow's offsets, `validity` its bitmap, empty if no row is null. Raises ValueError
    if a row does not lie within `data_size`.
    """
    row: cython.Py_ssize_t
    bit: cython.Py_ssize_t
    nulls: cython.Py_ssize_t = 0
    start: cython.longlong
    end: cython.longlong
    has_nulls: cython.bint = len(validity) > 0
    fits: cython.bint = True
    if (
        first < 0
        or count < 0
        or first + count + 1 > len(ends)
        or 2 * count > len(out)
        or (has_nulls and first + count > 8 * len(validity))
    ):
        raise IndexError("rows outside the column")
    with cython.nogil:
        for row in range(count):
            bit = first + row
            start = ends[bit]
            end = ends[bit + 1]
            if start < 0 or end < start or end > data_size:
                fits = False
                break
            out[2 * row] = start
            out[2 * row + 1] = end - start
            if has_nulls and not (validity[bit >> 3] >> (bit & 7)) & 1:
                out[2 * row + 1] = -1
                nulls += 1
    if not fits:
        raise ValueError("a row lies outside the data of its column")
    return nulls


# --- partitions ------------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _crc32(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    table: cython.const[cython.uint][::1],
) -> cython.uint:
    """zlib's CRC-32 of ``data[start:start + size]``; the caller has checked the range."""
    at: cython.Py_ssize_t
    crc: cython.uint = cython.cast(cython.uint, _MASK32)
    for at in range(start, start + size):
        crc = table[(crc ^ data[at]) & 0xFF] ^ (crc >> 8)
    return crc ^ cython.cast(cython.uint, _MASK32)


def choose_places(
    key_spans: object,
    given: cython.const[cython.int][::1],
    topics: cython.const[cython.int][::1],
    rule: object,
    places: cython.int[::1],
) -> tuple:
    """Choose a place for each row: the first place of its topic plus its partition.

    The partition is `given` if that is not negative; else the hash of the key chooses it; rows
    without a key use each partition for `rule.rows_per_turn` rows, then the next. `key_spans` are
    `Spans`, `rule` is a `PlaceRule`. Spans, `given` and `topics` may be empty: no keys, no given
    partitions, all rows of topic 0.

    The hash is murmur2, as in Java's clients, if `rule.crc_table` is empty. Otherwise it is CRC-32
    by that table, the default of librdkafka, where an empty key counts as no key.

    Returns (next turn, first row whose topic lacks its partition, or -1).
    """
    keys: cython.const[cython.longlong][::1] = key_spans.words
    key_data: cython.const[cython.uchar][::1] = key_spans.data
    first_places: cython.const[cython.longlong][::1] = rule.first_places
    partition_counts: cython.const[cython.longlong][::1] = rule.partition_counts
    crc_table: cython.const[cython.uint][::1] = rule.crc_table
    turn: cython.longlong = rule.turn
    rows_per_turn: cython.longlong = rule.rows_per_turn
    row: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(places)
    topic: cython.Py_ssize_t = 0
    partitions: cython.longlong
    chosen: cython.longlong
    bad: cython.Py_ssize_t = -1
    has_keys: cython.bint = len(keys) > 0
    has_given: cython.bint = len(given) > 0
    has_topics: cython.bint = len(topics) > 0
    known: cython.Py_ssize_t = len(partition_counts)
    data_size: cython.Py_ssize_t = len(key_data)
    has_crc: cython.bint = len(crc_table) > 0
    size_min: cython.longlong = 1 if has_crc else 0
    if (
        (has_keys and 2 * count > len(keys))
        or (has_crc and len(crc_table) < 256)
        or (has_given and count > len(given))
        or (has_topics and count > len(topics))
        or known < 1
        or len(first_places) < known
        or rows_per_turn < 1
        or turn < 0
    ):
        raise IndexError("rows outside the columns")
    with cython.nogil:
        for row in range(count):
            if has_topics:
                topic = topics[row]
            if topic < 0 or topic >= known:
                bad = row
                break
            partitions = partition_counts[topic]
            if has_given and given[row] >= 0:
                chosen = given[row]
            elif partitions < 1:
                chosen = partitions
            elif has_keys and keys[2 * row + 1] >= size_min:
                if keys[2 * row] < 0 or keys[2 * row + 1] > data_size - keys[2 * row]:
                    bad = row
                    break
                if has_crc:
                    chosen = cython.cast(
                        cython.longlong,
                        _crc32(key_data, keys[2 * row], keys[2 * row + 1], crc_table),
                    )
                else:
                    chosen = cython.cast(
                        cython.longlong,
                        (murmur2_of(key_data, keys[2 * row], keys[2 * row + 1]) & _POSITIVE),
                    )
                chosen = chosen % partitions
            else:
                chosen = (turn // rows_per_turn) % partitions
                turn += 1
            if chosen >= partitions:
                bad = row
                break
            places[row] = cython.cast(cython.int, first_places[topic] + chosen)
    return turn, bad


def order_by_place(
    places: cython.const[cython.int][::1], starts: cython.longlong[::1], rows: cython.int[::1]
) -> None:
    """Sort rows by place, keeping the order of rows with the same place.

    Afterwards ``rows[starts[p]:starts[p + 1]]`` are the rows of place p. `starts` has one item more
    than there are places and must hold zeros.
    """
    row: cython.Py_ssize_t
    place: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(places)
    known: cython.Py_ssize_t = len(starts) - 1
    fits: cython.bint = True
    total: cython.longlong = 0
    before: cython.longlong
    if len(rows) < count or known < 0:
        raise IndexError("no room for the rows")
    with cython.nogil:
        for row in range(count):
            place = places[row]
            if place < 0 or place >= known:
                fits = False
                break
            starts[place] += 1
        if fits:
            for place in range(known):
                before = starts[place]
                starts[place] = total
                total += before
            for row in range(count):
                place = places[row]
                rows[starts[place]] = cython.cast(cython.int, row)
                starts[place] += 1
            # Each start is now the end of its place, which is the start of the next.
            place = known
            while place > 0:
                starts[place] = starts[place - 1]
                place -= 1
            starts[0] = 0
    if not fits:
        raise IndexError("row refers to a missing place")


# --- records ---------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _sized(spans: cython.const[cython.longlong][::1], row: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes that an item takes with its size before it."""
    size: cython.longlong = spans[2 * row + 1]
    if size < 0:
        return 1
    return varint_size(size) + cython.cast(cython.Py_ssize_t, size)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_sized(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    spans: cython.const[cython.longlong][::1],
    row: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
) -> cython.Py_ssize_t:
    """Write an item's size and bytes at `at`; the caller has checked both ranges."""
    position: cython.Py_ssize_t = spans[2 * row]
    size: cython.Py_ssize_t = spans[2 * row + 1]
    at = put_varint(out, at, size)
    if size > 0:
        if cython.compiled:
            memcpy(
                cython.address(out[at]),
                cython.address(data[position]),
                cython.cast(cython.size_t, size),
            )
        else:
            out[at : at + size] = data[position : position + size]
        at += size
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _lies_within(
    spans: cython.const[cython.longlong][::1], row: cython.Py_ssize_t, size: cython.longlong
) -> cython.bint:
    if row < 0 or 2 * row + 2 > len(spans):
        return False
    if spans[2 * row + 1] < 0:
        return True
    return spans[2 * row] >= 0 and spans[2 * row + 1] <= size - spans[2 * row]


def encode_rows(
    rows: cython.const[cython.int][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    columns: object,
    batch: object,
) -> tuple:
    """Encode ``rows[first:stop]`` as records behind those of `batch`, as many as fit.

    `columns` are `RecordColumns`; keys, times and headers may be empty: no keys, all at `now_ms`,
    no headers. `batch` is the unfinished batch: its `scratch` holds `record_count` records up to
    `end`. Neither is changed.

    Returns (first row index not encoded, new end, base and largest time, bytes that the record
    which did not fit needs). Raises ValueError for a row that cannot be a record.
    """
    keys: cython.const[cython.longlong][::1] = columns.keys.words
    key_data: cython.const[cython.uchar][::1] = columns.keys.data
    values: cython.const[cython.longlong][::1] = columns.values.words
    value_data: cython.const[cython.uchar][::1] = columns.values.data
    times: cython.const[cython.longlong][::1] = columns.times
    headers: cython.const[cython.longlong][::1] = columns.headers.words
    names: cython.const[cython.longlong][::1] = columns.header_names.words
    name_data: cython.const[cython.uchar][::1] = columns.header_names.data
    header_values: cython.const[cython.longlong][::1] = columns.header_values.words
    header_data: cython.const[cython.uchar][::1] = columns.header_values.data
    now_ms: cython.longlong = columns.now_ms
    out: cython.uchar[::1] = batch.scratch
    start: cython.Py_ssize_t = batch.end
    record_count: cython.Py_ssize_t = batch.record_count
    base_timestamp: cython.longlong = batch.base_timestamp
    max_timestamp: cython.longlong = batch.max_timestamp
    index: cython.Py_ssize_t = first
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = len(out)
    row: cython.Py_ssize_t
    item: cython.Py_ssize_t
    first_header: cython.Py_ssize_t = 0
    header_count: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    needed: cython.Py_ssize_t = 0
    timestamp: cython.longlong = now_ms
    fault: cython.Py_ssize_t = 0
    has_keys: cython.bint = len(keys) > 0
    has_times: cython.bint = len(times) > 0
    has_headers: cython.bint = len(headers) > 0
    if not 0 <= first <= stop <= len(rows) or not 0 <= start <= end or record_count < 0:
        raise IndexError("rows or range outside the buffers")
    with cython.nogil:
        while index < stop:
            row = rows[index]
            if not _lies_within(values, row, len(value_data)):
                fault = 1
                break
            if has_keys and not _lies_within(keys, row, len(key_data)):
                fault = 1
                break
            if has_times:
                if row >= len(times):
                    fault = 1
                    break
                timestamp = times[row]
            if timestamp < -1:
                fault = 2
                break
            if has_headers:
                if 2 * row + 2 > len(headers):
                    fault = 1
                    break
                first_header = headers[2 * row]
                header_count = headers[2 * row + 1]
                header_count = max(header_count, 0)
            if record_count == 0:
                base_timestamp = timestamp
                max_timestamp = timestamp
            size = 1 + varint_size(timestamp - base_timestamp) + varint_size(record_count)
            size += _sized(keys, row) if has_keys else 1
            size += _sized(values, row) + varint_size(header_count)
            for item in range(first_header, first_header + header_count):
                if not _lies_within(names, item, len(name_data)) or not _lies_within(
                    header_values, item, len(header_data)
                ):
                    fault = 1
                    break
                if names[2 * item + 1] < 0:
                    fault = 3
                    break
                size += _sized(names, item) + _sized(header_values, item)
            if fault:
                break
            if varint_size(size) + size > end - at:
                needed = varint_size(size) + size
                break
            at = put_varint(out, at, size)
            out[at] = 0
            at = put_varint(out, at + 1, timestamp - base_timestamp)
            at = put_varint(out, at, record_count)
            at = _put_sized(out, at, keys, row, key_data) if has_keys else put_varint(out, at, -1)
            at = _put_sized(out, at, values, row, value_data)
            at = put_varint(out, at, header_count)
            for item in range(first_header, first_header + header_count):
                at = _put_sized(out, at, names, item, name_data)
                at = _put_sized(out, at, header_values, item, header_data)
            max_timestamp = max(max_timestamp, timestamp)
            record_count += 1
            index += 1
    if fault == 2:
        raise ValueError(f"row {row} has timestamp {timestamp} ms, which is before 1970")
    if fault == 3:
        raise ValueError(f"row {row} has a header without a key")
    if fault:
        raise IndexError(f"row {row} lies outside its columns")
    return index, at, base_timestamp, max_timestamp, needed

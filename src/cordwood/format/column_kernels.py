# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The loops that turn columns into record batches: find the bytes, choose partitions, encode.

Compiled at install by Cython, and where no compiler is to be had, run as the plain Python it
is, with the same results. As in `kernels.py`, every access is checked against the length of
what it goes to before it happens.

A *span* is where something lies: two int64, its position and its size; the size is -1 for null.
`spans` makes them of a column in Arrow's layout and checks them once; what is encoded goes by
them.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.string import memcpy  # type: ignore

_MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_MURMUR_SEED = cython.declare(cython.ulonglong, 0x9747B28C)
_MURMUR_MIX = cython.declare(cython.ulonglong, 0x5BD1E995)
_POSITIVE = cython.declare(cython.ulonglong, 0x7FFFFFFF)


# --- where things lie ------------------------------------------------------------------------


def spans(
    ends: cython.const[cython.int][::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    validity: cython.const[cython.uchar][::1],
    data_size: cython.Py_ssize_t,
    out: cython.longlong[::1],
) -> int:
    """The spans of rows [first, first + count) of a column of Arrow; return how many are null.

    `ends` are Arrow's offsets, `validity` its bitmap, empty where no row is null. Raises
    ValueError when a row does not lie within `data_size`.
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
def _murmur2(
    data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.uint:
    """As `kernels.murmur2`, of a part of `data`; the caller has checked that it is there."""
    value: cython.ulonglong = (_MURMUR_SEED ^ cython.cast(cython.ulonglong, size)) & _MASK32
    at: cython.Py_ssize_t = start
    rest: cython.Py_ssize_t = size & 3
    whole: cython.Py_ssize_t = start + size - rest
    word: cython.ulonglong
    while at < whole:
        word = (
            cython.cast(cython.ulonglong, data[at])
            | (cython.cast(cython.ulonglong, data[at + 1]) << 8)
            | (cython.cast(cython.ulonglong, data[at + 2]) << 16)
            | (cython.cast(cython.ulonglong, data[at + 3]) << 24)
        )
        word = (word * _MURMUR_MIX) & _MASK32
        word ^= word >> 24
        word = (word * _MURMUR_MIX) & _MASK32
        value = (value * _MURMUR_MIX) & _MASK32
        value ^= word
        at += 4
    if rest >= 3:
        value ^= cython.cast(cython.ulonglong, data[at + 2]) << 16
    if rest >= 2:
        value ^= cython.cast(cython.ulonglong, data[at + 1]) << 8
    if rest >= 1:
        value ^= cython.cast(cython.ulonglong, data[at])
        value = (value * _MURMUR_MIX) & _MASK32
    value ^= value >> 13
    value = (value * _MURMUR_MIX) & _MASK32
    value ^= value >> 15
    return cython.cast(cython.uint, value)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _crc32(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    table: cython.const[cython.uint][::1],
) -> cython.uint:
    """zlib's CRC-32 of a part of `data`; the caller has checked that it is there."""
    at: cython.Py_ssize_t
    crc: cython.uint = cython.cast(cython.uint, _MASK32)
    for at in range(start, start + size):
        crc = table[(crc ^ data[at]) & 0xFF] ^ (crc >> 8)
    return crc ^ cython.cast(cython.uint, _MASK32)


def choose_places(
    keys: cython.const[cython.longlong][::1],
    key_data: cython.const[cython.uchar][::1],
    given: cython.const[cython.int][::1],
    topics: cython.const[cython.int][::1],
    first_places: cython.const[cython.longlong][::1],
    partition_counts: cython.const[cython.longlong][::1],
    turn: cython.longlong,
    rows_per_turn: cython.longlong,
    crc_table: cython.const[cython.uint][::1],
    places: cython.int[::1],
) -> tuple:
    """Choose a place for each row: the topic's first place, and its partition behind that.

    The partition is `given`, where that is not negative; else that of the key's hash; else,
    without a key, partitions take turns of `rows_per_turn` rows. `keys` are spans; `keys`, `given`
    and `topics` may be empty: no keys, none given, all of topic 0. Every given partition must be
    smaller than its topic's count.

    The hash is murmur2, as in Java's clients, where `crc_table` is empty. Else it is the table of
    CRC-32, and that is the hash, as librdkafka has it by default: an empty key is then none.

    Returns (the next turn, the first row with a partition that its topic does not have, or -1).
    """
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
                        (_murmur2(key_data, keys[2 * row], keys[2 * row + 1]) & _POSITIVE),
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
    """Sort rows by place, those of one place in their order.

    ``rows[starts[p]:starts[p + 1]]`` are then the rows of place p; `starts` has one more item
    than there are places, and holds zeros before.
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
            # Each start has become the end of its place, which is the start of the next.
            place = known
            while place > 0:
                starts[place] = starts[place - 1]
                place -= 1
            starts[0] = 0
    if not fits:
        raise IndexError("a row of a place that there is not")


# --- records ---------------------------------------------------------------------------------


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


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _sized(spans: cython.const[cython.longlong][::1], row: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes that a span takes with its size before it."""
    size: cython.longlong = spans[2 * row + 1]
    if size < 0:
        return 1
    return _varint_size(size) + cython.cast(cython.Py_ssize_t, size)


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
    """Write a span's size and bytes at `at`; the caller has checked both ends."""
    position: cython.Py_ssize_t = spans[2 * row]
    size: cython.Py_ssize_t = spans[2 * row + 1]
    at = _put_varint(out, at, size)
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
    keys: cython.const[cython.longlong][::1],
    key_data: cython.const[cython.uchar][::1],
    values: cython.const[cython.longlong][::1],
    value_data: cython.const[cython.uchar][::1],
    times: cython.const[cython.longlong][::1],
    headers: cython.const[cython.longlong][::1],
    names: cython.const[cython.longlong][::1],
    name_data: cython.const[cython.uchar][::1],
    header_values: cython.const[cython.longlong][::1],
    header_data: cython.const[cython.uchar][::1],
    now_ms: cython.longlong,
    out: cython.uchar[::1],
    start: cython.Py_ssize_t,
    record_count: cython.Py_ssize_t,
    base_timestamp: cython.longlong,
    max_timestamp: cython.longlong,
) -> tuple:
    """Encode ``rows[first:stop]`` as records into `out` from `start` on, as many as fit.

    A batch that holds `record_count` records already goes on with them, its times being those
    given. All columns are spans; the spans of `headers` are of items in `names` and
    `header_values`. `keys`, `times` and `headers` may be empty: no keys, all at `now_ms`, no
    headers.

    Returns (the first row index not encoded, the end in `out`, base and largest time, bytes that
    the record which did not fit needs). Raises ValueError for a row that cannot be a record.
    """
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
            size = 1 + _varint_size(timestamp - base_timestamp) + _varint_size(record_count)
            size += _sized(keys, row) if has_keys else 1
            size += _sized(values, row) + _varint_size(header_count)
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
            if _varint_size(size) + size > end - at:
                needed = _varint_size(size) + size
                break
            at = _put_varint(out, at, size)
            out[at] = 0
            at = _put_varint(out, at + 1, timestamp - base_timestamp)
            at = _put_varint(out, at, record_count)
            at = _put_sized(out, at, keys, row, key_data) if has_keys else _put_varint(out, at, -1)
            at = _put_sized(out, at, values, row, value_data)
            at = _put_varint(out, at, header_count)
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

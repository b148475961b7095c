# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Which records compaction keeps, and copying those to a new buffer.

A kernel: see `format/batch_scan.py` for the rules of kernels.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.format import kernel_tables as tables  # type: ignore
    from cython.cimports.cordwood.log.compaction.key_slots import (  # type: ignore
        find_slot,
        look_ahead,
    )
    from cython.cimports.cordwood.primitives import (  # type: ignore
        put_int32,
        put_int64,
        put_unsigned,
        unsigned_size,
        unsigned_varint,
        wrapping_difference,
        zigzag,
    )
    from cython.cimports.libc.string import memcpy  # type: ignore
else:
    from cordwood.format import kernel_tables as tables
    from cordwood.log.compaction.key_slots import find_slot, look_ahead
    from cordwood.primitives import (
        put_int32,
        put_int64,
        put_unsigned,
        unsigned_size,
        unsigned_varint,
        wrapping_difference,
        zigzag,
    )

COMPILED = cython.compiled

GROWTH_PER_RECORD = 12  # bytes at most, when its timestamp is stored relative to another base

# The words of `counts`, where `filter_batches` adds up what it did.
COUNT_WORDS = 5
COUNT_READ = 0
COUNT_KEPT = 1
COUNT_KEYLESS = 2
COUNT_CHANGED_BATCHES = 3
COUNT_TOMBSTONES = 4

_READ = cython.declare(cython.Py_ssize_t, COUNT_READ)
_KEPT = cython.declare(cython.Py_ssize_t, COUNT_KEPT)
_KEYLESS = cython.declare(cython.Py_ssize_t, COUNT_KEYLESS)
_CHANGED_BATCHES = cython.declare(cython.Py_ssize_t, COUNT_CHANGED_BATCHES)
_TOMBSTONES = cython.declare(cython.Py_ssize_t, COUNT_TOMBSTONES)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_GROWTH = cython.declare(cython.Py_ssize_t, GROWTH_PER_RECORD)
_SLOTS_MAX = cython.declare(cython.ulonglong, 2**32 - 1)


# --- the decision ----------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t, cython.longlong))
def _decide(
    words: cython.ulonglong[::1],
    slots: cython.ulonglong,
    latest: cython.longlong,
    hashes: cython.ulonglong[::1],
    table: cython.longlong[::1],
    first_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    drops_tombstones: cython.bint,
    kept: cython.uchar[::1],
):
    """Mark the rows to keep: (how many, tombstones among them, rows without key, largest time)."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    stays: cython.bint
    count: cython.Py_ssize_t = 0
    tombstones: cython.Py_ssize_t = 0
    keyless: cython.Py_ssize_t = 0
    largest: cython.longlong = -1
    newest: cython.longlong
    for row in range(first_row, end_row):
        look_ahead(words, slots, hashes, row, end_row)
        if table[row * tables.RECORD_ROW + tables.R_OFFSET] > latest:
            stays = True  # the map does not cover it
        elif table[row * tables.RECORD_ROW + tables.R_KEY_SIZE] < 0:
            stays = False
            keyless += 1
        elif drops_tombstones and table[row * tables.RECORD_ROW + tables.R_VALUE_SIZE] < 0:
            stays = False
        else:
            at = find_slot(words, slots, hashes[row * 2], hashes[row * 2 + 1])
            newest = cython.cast(cython.longlong, words[at + 2]) - 1
            stays = table[row * tables.RECORD_ROW + tables.R_OFFSET] >= newest
        kept[row] = stays
        if stays:
            count += 1
            if table[row * tables.RECORD_ROW + tables.R_VALUE_SIZE] < 0:
                tombstones += 1
            if table[row * tables.RECORD_ROW + tables.R_TIMESTAMP] > largest:
                largest = table[row * tables.RECORD_ROW + tables.R_TIMESTAMP]
    return count, tombstones, keyless, largest


def decide_records(
    key_map: object,
    hashes: cython.ulonglong[::1],
    table: cython.longlong[::1],
    count: cython.Py_ssize_t,
    drops_tombstones: cython.bint,
    kept: cython.uchar[::1],
) -> tuple:
    """Mark in `kept` which of the first `count` rows to keep.

    A row is kept if the map does not cover it (its offset is past `key_map.latest`), or if it has
    a key, the map has no newer record of the key, and it is not a tombstone that has expired.
    Returns (rows kept, tombstones among them, records without a key, largest timestamp).
    """
    words: cython.ulonglong[::1] = key_map.words
    slots: cython.ulonglong = key_map.slots
    latest: cython.longlong = key_map.latest
    stay: cython.Py_ssize_t
    tombstones: cython.Py_ssize_t
    keyless: cython.Py_ssize_t
    largest: cython.longlong
    if (
        count * tables.RECORD_ROW > len(table)
        or count * 2 > len(hashes)
        or count > len(kept)
        or slots > _SLOTS_MAX
        or slots * 3 > cython.cast(cython.ulonglong, len(words))
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        stay, tombstones, keyless, largest = _decide(
            words, slots, latest, hashes, table, 0, count, drops_tombstones, kept
        )
    return stay, tombstones, keyless, largest


# --- copying ---------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _copy(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copy ``data[start:end]`` to `at`, both checked by the caller; return the end of the copy."""
    if end > start:
        if cython.compiled:
            memcpy(
                cython.address(out[at]),
                cython.address(data[start]),
                cython.cast(cython.size_t, end - start),
            )
        else:
            out[at : at + end - start] = data[start:end]
    return at + end - start


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _copy_kept(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    first_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    kept: cython.uchar[::1],
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copy the kept records unchanged; return the end of the copy, -1 if one is malformed."""
    row: cython.Py_ssize_t
    position: cython.Py_ssize_t = start
    following: cython.Py_ssize_t
    run_start: cython.Py_ssize_t = start
    size: cython.ulonglong
    for row in range(first_row, end_row):
        size, following = unsigned_varint(data, position, end)
        size >>= 1
        if following < 0 or size > cython.cast(cython.ulonglong, end - following):
            return -1
        following += cython.cast(cython.Py_ssize_t, size)
        if not kept[row]:
            at = _copy(out, at, data, run_start, position)
            run_start = following
        position = following
    return _copy(out, at, data, run_start, position)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _copy_rebased(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    table: cython.longlong[::1],
    first_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    kept: cython.uchar[::1],
    base_timestamp: cython.longlong,
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """As `_copy_kept`, with timestamps stored relative to `base_timestamp`."""
    row: cython.Py_ssize_t
    position: cython.Py_ssize_t = start
    body: cython.Py_ssize_t
    rest: cython.Py_ssize_t
    following: cython.Py_ssize_t
    size: cython.ulonglong
    ignored: cython.ulonglong
    delta: cython.ulonglong
    for row in range(first_row, end_row):
        size, body = unsigned_varint(data, position, end)
        size >>= 1
        if body < 0 or size < 1 or size > cython.cast(cython.ulonglong, end - body):
            return -1
        following = body + cython.cast(cython.Py_ssize_t, size)
        if kept[row]:
            ignored, rest = unsigned_varint(data, body + 1, following)
            if rest < 0:
                return -1
            delta = zigzag(
                wrapping_difference(
                    table[row * tables.RECORD_ROW + tables.R_TIMESTAMP], base_timestamp
                )
            )
            size = cython.cast(cython.ulonglong, 1 + unsigned_size(delta) + following - rest)
            at = put_unsigned(out, at, size << 1)
            out[at] = data[body]
            at = put_unsigned(out, at + 1, delta)
            at = _copy(out, at, data, rest, following)
        position = following
    return at


def copy_records(
    run: object,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    kept: cython.uchar[::1],
    new_base_timestamp: object,
    out: cython.uchar[::1],
) -> int:
    """Copy the records of `run` that `kept` marks to `out`; return the size of the copy.

    The records fill ``run.data[start:end]`` and the first `run.end` rows of `run.table`. With a
    `new_base_timestamp`, their timestamps are stored relative to it; None leaves them as they are.
    """
    data: cython.const[cython.uchar][::1] = run.data
    table: cython.longlong[::1] = run.table
    count: cython.Py_ssize_t = run.end
    is_rebased: cython.bint = new_base_timestamp is not None
    base_timestamp: cython.longlong = new_base_timestamp if is_rebased else 0
    size: cython.Py_ssize_t
    if (
        start < 0
        or end > len(data)
        or start > end
        or count * tables.RECORD_ROW > len(table)
        or count > len(kept)
        or end - start + count * _GROWTH > len(out)
    ):
        raise IndexError("range outside the data")
    with cython.nogil:
        if is_rebased:
            size = _copy_rebased(data, start, end, table, 0, count, kept, base_timestamp, out, 0)
        else:
            size = _copy_kept(data, start, end, 0, count, kept, out, 0)
    if size < 0:
        raise IndexError("record outside the data")
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _contains(sorted_offsets: cython.longlong[::1], offset: cython.longlong) -> cython.bint:
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = len(sorted_offsets)
    middle: cython.Py_ssize_t
    while low < high:
        middle = (low + high) // 2
        if sorted_offsets[middle] < offset:
            low = middle + 1
        else:
            high = middle
    return low < len(sorted_offsets) and sorted_offsets[low] == offset


def run_end(
    rows: cython.longlong[::1],
    first_batch: cython.Py_ssize_t,
    end_batch: cython.Py_ssize_t,
    mask: cython.longlong,
) -> int:
    """The first batch in [first_batch, end_batch) with an attribute in `mask`, or `end_batch`."""
    batch: cython.Py_ssize_t = first_batch
    if first_batch < 0 or end_batch * tables.BATCH_ROW > len(rows):
        raise IndexError("rows outside the table")
    with cython.nogil:
        while (
            batch < end_batch and (rows[batch * tables.BATCH_ROW + tables.B_ATTRIBUTES] & mask) == 0
        ):
            batch += 1
    return batch


def filter_batches(
    batches: object,
    first_batch: cython.Py_ssize_t,
    end_batch: cython.Py_ssize_t,
    first_row: cython.Py_ssize_t,
    rules: object,
    output: object,
) -> tuple:
    """Copy the kept records of uncompressed data batches [first_batch, end_batch) to `output`.

    `batches` are `ParsedBatches`, whose record rows and hashes begin at `first_row`; `rules` are
    `FilterRules`; `output` is a `FilterOutput`. `decide_records` says which records are kept. A
    batch that keeps all its records is copied unchanged. One that loses some keeps its offsets and
    producer fields. One that keeps tombstones and has no delete horizon yet gets one: its base
    timestamp becomes `rules.new_horizon`. One that loses all is dropped, unless its last offset is
    among `rules.retained` (sorted): then its header is kept.

    `output.rebuilt` gets (position, size) of each batch that needs a new checksum. Stops early if
    `output.data` or `output.rebuilt` has no room for another batch. Returns (batch and row where
    it stopped, size of the copy, number of words in `rebuilt`).
    """
    data: cython.const[cython.uchar][::1] = batches.data
    rows: cython.longlong[::1] = batches.rows
    table: cython.longlong[::1] = batches.table
    hashes: cython.ulonglong[::1] = batches.hashes
    words: cython.ulonglong[::1] = rules.key_map.words
    slots: cython.ulonglong = rules.key_map.slots
    latest: cython.longlong = rules.key_map.latest
    now_ms: cython.longlong = rules.now_ms
    new_horizon: cython.longlong = rules.new_horizon
    retained: cython.longlong[::1] = rules.retained
    kept: cython.uchar[::1] = output.kept
    out: cython.uchar[::1] = output.data
    rebuilt: cython.longlong[::1] = output.rebuilt
    counts: cython.longlong[::1] = output.counts
    batch: cython.Py_ssize_t = first_batch
    row: cython.Py_ssize_t = first_row
    at: cython.Py_ssize_t = 0
    rebuilt_size: cython.Py_ssize_t = 0
    here: cython.Py_ssize_t
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    end: cython.Py_ssize_t
    count: cython.Py_ssize_t
    attributes: cython.longlong
    has_horizon: cython.bint
    is_rebased: cython.bint
    stay: cython.Py_ssize_t
    tombstones: cython.Py_ssize_t
    keyless: cython.Py_ssize_t
    largest: cython.longlong
    is_sound: cython.bint = True
    if (
        first_batch < 0
        or end_batch * tables.BATCH_ROW > len(rows)
        or first_row < 0
        or slots > _SLOTS_MAX
        or slots * 3 > cython.cast(cython.ulonglong, len(words))
        or len(counts) < COUNT_WORDS
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        while batch < end_batch:
            here = batch * tables.BATCH_ROW
            start = rows[here + tables.B_POSITION]
            size = rows[here + tables.B_SIZE]
            count = rows[here + tables.B_RECORD_COUNT]
            attributes = rows[here + tables.B_ATTRIBUTES]
            if (
                start < 0
                or size < _HEADER_SIZE
                or size > len(data) - start
                or (row + count) * tables.RECORD_ROW > len(table)
                or (row + count) * 2 > len(hashes)
                or row + count > len(kept)
            ):
                is_sound = False
                break
            if size + count * _GROWTH > len(out) - at or rebuilt_size + 2 > len(rebuilt):
                break
            has_horizon = (attributes & 0x40) != 0
            stay, tombstones, keyless, largest = _decide(
                words,
                slots,
                latest,
                hashes,
                table,
                row,
                row + count,
                has_horizon and now_ms >= rows[here + tables.B_BASE_TIMESTAMP],
                kept,
            )
            counts[_READ] += count
            counts[_KEPT] += stay
            counts[_KEYLESS] += keyless
            counts[_TOMBSTONES] += tombstones
            is_rebased = tombstones > 0 and not has_horizon
            if stay == count and not is_rebased and count > 0:
                at = _copy(out, at, data, start, start + size)
            elif stay > 0:
                _copy(out, at, data, start, start + _HEADER_SIZE)
                if is_rebased:
                    attributes |= 0x40
                    put_int64(out, at + 27, new_horizon)
                    end = _copy_rebased(
                        data,
                        start + _HEADER_SIZE,
                        start + size,
                        table,
                        row,
                        row + count,
                        kept,
                        new_horizon,
                        out,
                        at + _HEADER_SIZE,
                    )
                else:
                    end = _copy_kept(
                        data,
                        start + _HEADER_SIZE,
                        start + size,
                        row,
                        row + count,
                        kept,
                        out,
                        at + _HEADER_SIZE,
                    )
                if end < 0:
                    is_sound = False
                    break
                put_int32(out, at + 8, end - at - 12)
                out[at + 22] = cython.cast(cython.uchar, attributes & 0xFF)
                if (attributes & 0x08) == 0:  # else it is the time of every record
                    put_int64(out, at + 35, largest)
                put_int32(out, at + 57, stay)
                rebuilt[rebuilt_size] = at
                rebuilt[rebuilt_size + 1] = end - at
                rebuilt_size += 2
                counts[_CHANGED_BATCHES] += 1
                at = end
            elif _contains(retained, rows[here + tables.B_NEXT_OFFSET] - 1):
                _copy(out, at, data, start, start + _HEADER_SIZE)
                put_int32(out, at + 8, _HEADER_SIZE - 12)
                out[at + 22] = cython.cast(cython.uchar, attributes & 0x38)
                put_int64(out, at + 27, -1)
                put_int32(out, at + 57, 0)
                rebuilt[rebuilt_size] = at
                rebuilt[rebuilt_size + 1] = _HEADER_SIZE
                rebuilt_size += 2
                if count > 0:
                    counts[_CHANGED_BATCHES] += 1
                at += _HEADER_SIZE
            else:
                counts[_CHANGED_BATCHES] += 1
            row += count
            batch += 1
    if not is_sound:
        raise IndexError("batch outside the data")
    return batch, row, at, rebuilt_size

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Which record of a key is the newest, and which records of a batch stay because of it.

The loops of compaction, in one source with two forms: see `format/kernels.py` for the rules.

The map is open-addressed with linear probing. A slot is three words of 64 bits:

    word  holds
    0     low half of the key's hash
    1     high half
    2     offset + 1 of the newest record with that key; 0: the slot is free

A key is known by its 128-bit SipHash alone, so keys of any length cost 24 bytes. The hash is
keyed anew for each run: nobody can prepare keys that meet in one slot, or keys that are taken
for each other.
"""

from __future__ import annotations

import contextlib
import mmap
from array import array

from cordwood.format import kernel_tables as tables

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.log.cache_hint import __builtin_prefetch  # type: ignore
    from cython.cimports.libc.string import memcpy  # type: ignore

COMPILED = cython.compiled

SLOT_BYTES = 24
SLOTS_MAX = 2**32 - 1  # a home slot is found from 32 bits of the hash
GROWTH_PER_RECORD = 12  # at most, when a record's timestamp is told from another base

# What `filter_batches` adds up, by place in its `counts`.
COUNT_WORDS = 5
COUNT_READ = 0
COUNT_KEPT = 1
COUNT_KEYLESS = 2
COUNT_CHANGED_BATCHES = 3
COUNT_TOMBSTONES = 4

# The names of `kernel_tables` as C integers: a Python global cannot be read without the GIL.
_BATCH_ROW = cython.declare(cython.Py_ssize_t, tables.BATCH_ROW)
_B_POSITION = cython.declare(cython.Py_ssize_t, tables.B_POSITION)
_B_SIZE = cython.declare(cython.Py_ssize_t, tables.B_SIZE)
_B_NEXT_OFFSET = cython.declare(cython.Py_ssize_t, tables.B_NEXT_OFFSET)
_B_ATTRIBUTES = cython.declare(cython.Py_ssize_t, tables.B_ATTRIBUTES)
_B_RECORD_COUNT = cython.declare(cython.Py_ssize_t, tables.B_RECORD_COUNT)
_B_BASE_TIMESTAMP = cython.declare(cython.Py_ssize_t, tables.B_BASE_TIMESTAMP)
_RECORD_ROW = cython.declare(cython.Py_ssize_t, tables.RECORD_ROW)
_R_OFFSET = cython.declare(cython.Py_ssize_t, tables.R_OFFSET)
_R_TIMESTAMP = cython.declare(cython.Py_ssize_t, tables.R_TIMESTAMP)
_R_KEY_POSITION = cython.declare(cython.Py_ssize_t, tables.R_KEY_POSITION)
_R_KEY_SIZE = cython.declare(cython.Py_ssize_t, tables.R_KEY_SIZE)
_R_VALUE_SIZE = cython.declare(cython.Py_ssize_t, tables.R_VALUE_SIZE)
_READ = cython.declare(cython.Py_ssize_t, COUNT_READ)
_KEPT = cython.declare(cython.Py_ssize_t, COUNT_KEPT)
_KEYLESS = cython.declare(cython.Py_ssize_t, COUNT_KEYLESS)
_CHANGED_BATCHES = cython.declare(cython.Py_ssize_t, COUNT_CHANGED_BATCHES)
_TOMBSTONES = cython.declare(cython.Py_ssize_t, COUNT_TOMBSTONES)

_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_ROWS_AHEAD = cython.declare(cython.Py_ssize_t, 16)
_GROWTH = cython.declare(cython.Py_ssize_t, GROWTH_PER_RECORD)
_SLOTS_MAX = cython.declare(cython.ulonglong, SLOTS_MAX)
_MASK64 = 0xFFFFFFFFFFFFFFFF  # of the plain form: C's integers are cut off by themselves

_SIP_0 = cython.declare(cython.ulonglong, 0x736F6D6570736575)
_SIP_1 = cython.declare(cython.ulonglong, 0x646F72616E646F6D)
_SIP_2 = cython.declare(cython.ulonglong, 0x6C7967656E657261)
_SIP_3 = cython.declare(cython.ulonglong, 0x7465646279746573)


# --- the hash --------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _sum(a: cython.ulonglong, b: cython.ulonglong) -> cython.ulonglong:
    if cython.compiled:
        return a + b
    return (a + b) & _MASK64


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _rotated(value: cython.ulonglong, bits: cython.int) -> cython.ulonglong:
    if cython.compiled:
        return (value << bits) | (value >> (64 - bits))
    return ((value << bits) | (value >> (64 - bits))) & _MASK64


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.ulonglong, cython.ulonglong, cython.ulonglong))
def _sip_round(
    v0: cython.ulonglong, v1: cython.ulonglong, v2: cython.ulonglong, v3: cython.ulonglong
):
    v0 = _sum(v0, v1)
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 = _sum(v2, v3)
    v3 = _rotated(v3, 16) ^ v2
    v0 = _sum(v0, v3)
    v3 = _rotated(v3, 21) ^ v0
    v2 = _sum(v2, v1)
    v1 = _rotated(v1, 17) ^ v2
    v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _little_word(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.ulonglong:
    """Up to eight bytes, the first the least; the caller has checked that they are there."""
    value: cython.ulonglong = 0
    i: cython.Py_ssize_t
    for i in range(size):
        value |= cython.cast(cython.ulonglong, data[at + i]) << (8 * i)
    return value


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.ulonglong))
def _siphash(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    secret_low: cython.ulonglong,
    secret_high: cython.ulonglong,
):
    """SipHash-2-4 with 128 bits of result, low half first."""
    v0: cython.ulonglong = secret_low ^ _SIP_0
    v1: cython.ulonglong = secret_high ^ _SIP_1 ^ 0xEE
    v2: cython.ulonglong = secret_low ^ _SIP_2
    v3: cython.ulonglong = secret_high ^ _SIP_3
    end: cython.Py_ssize_t = at + size
    block: cython.ulonglong = 0
    low: cython.ulonglong
    i: cython.int
    while at + 8 <= end:
        if cython.compiled:
            # One load. Where the first byte is the greatest it is another hash, and as good.
            memcpy(cython.address(block), cython.address(data[at]), 8)
        else:
            block = _little_word(data, at, 8)
        v3 ^= block
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= block
        at += 8
    block = _little_word(data, at, end - at) | (cython.cast(cython.ulonglong, size & 0xFF) << 56)
    v3 ^= block
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0 ^= block
    v2 ^= 0xEE
    for i in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    for i in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


def hash_key(
    key: cython.const[cython.uchar][::1],
    secret_low: cython.ulonglong,
    secret_high: cython.ulonglong,
) -> tuple:
    """The two halves of one key's hash."""
    return _siphash(key, 0, len(key), secret_low, secret_high)


def hash_keys(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[::1],
    count: cython.Py_ssize_t,
    secret_low: cython.ulonglong,
    secret_high: cython.ulonglong,
    hashes: cython.ulonglong[::1],
) -> None:
    """Hash the keys of the first `count` record rows into pairs of words; 0, 0 without a key."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    is_inside: cython.bint = True
    if count * _RECORD_ROW > len(table) or count * 2 > len(hashes):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(count):
            at = table[row * _RECORD_ROW + _R_KEY_POSITION]
            size = table[row * _RECORD_ROW + _R_KEY_SIZE]
            if size < 0:
                hashes[row * 2] = 0
                hashes[row * 2 + 1] = 0
                continue
            if at < 0 or at > len(data) or size > len(data) - at:
                is_inside = False
                break
            hashes[row * 2], hashes[row * 2 + 1] = _siphash(data, at, size, secret_low, secret_high)
    if not is_inside:
        raise IndexError("key outside the data")


# --- the map ---------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _find_slot(
    words: cython.ulonglong[::1],
    slots: cython.ulonglong,
    low: cython.ulonglong,
    high: cython.ulonglong,
) -> cython.Py_ssize_t:
    """Where the key's slot begins in `words`, or the free one where it would go.

    One is always found: the map is never full.
    """
    slot: cython.ulonglong = ((low >> 32) * slots) >> 32
    at: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, slot * 3)
    end: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, slots * 3)
    while words[at + 2] != 0 and not (words[at] == low and words[at + 1] == high):
        at += 3
        if at == end:
            at = 0
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _look_ahead(
    words: cython.ulonglong[::1],
    slots: cython.ulonglong,
    hashes: cython.ulonglong[::1],
    row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
) -> cython.void:
    """Have the slot of a later row on its way from memory: the map is larger than any cache."""
    if cython.compiled:
        row += _ROWS_AHEAD
        if row < end_row:
            __builtin_prefetch(
                cython.address(
                    words[
                        cython.cast(
                            cython.Py_ssize_t, (((hashes[row * 2] >> 32) * slots) >> 32) * 3
                        )
                    ]
                )
            )


def put_latest(
    words: cython.ulonglong[::1],
    slots: cython.ulonglong,
    used: cython.ulonglong,
    limit: cython.ulonglong,
    hashes: cython.ulonglong[::1],
    table: cython.longlong[::1],
    count: cython.Py_ssize_t,
    start_offset: cython.longlong,
) -> tuple:
    """Enter the offsets of the first `count` rows, those at or past `start_offset`.

    Rows come in the order of their offsets, so the last one with a key wins. Stops before a
    key that would be one more than `limit`. Returns (rows taken, keys in the map).
    """
    row: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t
    if (
        count * _RECORD_ROW > len(table)
        or count * 2 > len(hashes)
        or slots > _SLOTS_MAX
        or slots * 3 > cython.cast(cython.ulonglong, len(words))
    ):
        raise IndexError("rows outside the table")
    if limit >= slots or used > limit:
        raise ValueError("one slot must stay free")
    with cython.nogil:
        while row < count:
            _look_ahead(words, slots, hashes, row, count)
            if (
                table[row * _RECORD_ROW + _R_KEY_SIZE] >= 0
                and table[row * _RECORD_ROW + _R_OFFSET] >= start_offset
            ):
                at = _find_slot(words, slots, hashes[row * 2], hashes[row * 2 + 1])
                if words[at + 2] == 0:
                    if used >= limit:
                        break
                    words[at] = hashes[row * 2]
                    words[at + 1] = hashes[row * 2 + 1]
                    used += 1
                words[at + 2] = cython.cast(
                    cython.ulonglong, table[row * _RECORD_ROW + _R_OFFSET] + 1
                )
            row += 1
    return row, used


def find_offset(
    words: cython.ulonglong[::1],
    slots: cython.ulonglong,
    low: cython.ulonglong,
    high: cython.ulonglong,
) -> int:
    """The offset in the map for one hash; -1 when it has none."""
    if slots > _SLOTS_MAX or slots * 3 > cython.cast(cython.ulonglong, len(words)):
        raise IndexError("slots outside the map")
    at: cython.Py_ssize_t = _find_slot(words, slots, low, high)
    found: cython.ulonglong = words[at + 2]
    return int(found) - 1


# --- who stays -------------------------------------------------------------------------------


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
    """Mark the rows that stay: (how many, tombstones among them, keyless ones, largest time)."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    stays: cython.bint
    count: cython.Py_ssize_t = 0
    tombstones: cython.Py_ssize_t = 0
    keyless: cython.Py_ssize_t = 0
    largest: cython.longlong = -1
    newest: cython.longlong
    for row in range(first_row, end_row):
        _look_ahead(words, slots, hashes, row, end_row)
        if table[row * _RECORD_ROW + _R_OFFSET] > latest:
            stays = True  # the map knows nothing of it
        elif table[row * _RECORD_ROW + _R_KEY_SIZE] < 0:
            stays = False
            keyless += 1
        elif drops_tombstones and table[row * _RECORD_ROW + _R_VALUE_SIZE] < 0:
            stays = False
        else:
            at = _find_slot(words, slots, hashes[row * 2], hashes[row * 2 + 1])
            newest = cython.cast(cython.longlong, words[at + 2]) - 1
            stays = table[row * _RECORD_ROW + _R_OFFSET] >= newest
        kept[row] = stays
        if stays:
            count += 1
            if table[row * _RECORD_ROW + _R_VALUE_SIZE] < 0:
                tombstones += 1
            if table[row * _RECORD_ROW + _R_TIMESTAMP] > largest:
                largest = table[row * _RECORD_ROW + _R_TIMESTAMP]
    return count, tombstones, keyless, largest


def decide_records(
    words: cython.ulonglong[::1],
    slots: cython.ulonglong,
    latest: cython.longlong,
    hashes: cython.ulonglong[::1],
    table: cython.longlong[::1],
    count: cython.Py_ssize_t,
    drops_tombstones: cython.bint,
    kept: cython.uchar[::1],
) -> tuple:
    """Mark in `kept` which of the first `count` rows stay.

    One does if the map does not reach it (its offset is past `latest`), or if it has a key, no
    newer record of the key is in the map, and it is not a tombstone that has had its time.
    Returns (how many stay, tombstones among them, records without a key, largest timestamp).
    """
    stay: cython.Py_ssize_t
    tombstones: cython.Py_ssize_t
    keyless: cython.Py_ssize_t
    largest: cython.longlong
    if (
        count * _RECORD_ROW > len(table)
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
@cython.returns((cython.ulonglong, cython.Py_ssize_t))
def _raw_varint(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
):
    """A number of up to ten bytes as it is stored, and the position after it; -1: malformed."""
    raw: cython.ulonglong = 0
    shift: cython.int = 0
    byte: cython.uint
    while at < end and shift <= 63:
        byte = data[at]
        at += 1
        raw |= cython.cast(cython.ulonglong, byte & 0x7F) << shift
        if byte < 0x80:
            return raw, at
        shift += 7
    return 0, -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _zigzag(value: cython.longlong) -> cython.ulonglong:
    if cython.compiled:
        return (cython.cast(cython.ulonglong, value) << 1) ^ cython.cast(
            cython.ulonglong, value >> 63
        )
    return ((value << 1) ^ (value >> 63)) & _MASK64


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _wrapping_difference(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    if cython.compiled:
        return cython.cast(
            cython.longlong, cython.cast(cython.ulonglong, a) - cython.cast(cython.ulonglong, b)
        )
    return (a - b + (1 << 63)) % (1 << 64) - (1 << 63)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _raw_size(raw: cython.ulonglong) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_raw(
    out: cython.uchar[::1], at: cython.Py_ssize_t, raw: cython.ulonglong
) -> cython.Py_ssize_t:
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
def _copy(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copy ``data[start:end]`` to `at`; both ends were checked. Returns the end of the copy."""
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
    """Copy the records that stay, as they are; return the end of the copy, -1 if malformed."""
    row: cython.Py_ssize_t
    position: cython.Py_ssize_t = start
    following: cython.Py_ssize_t
    run_start: cython.Py_ssize_t = start
    size: cython.ulonglong
    for row in range(first_row, end_row):
        size, following = _raw_varint(data, position, end)
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
    """As `_copy_kept`, with timestamps told from `base_timestamp`."""
    row: cython.Py_ssize_t
    position: cython.Py_ssize_t = start
    body: cython.Py_ssize_t
    rest: cython.Py_ssize_t
    following: cython.Py_ssize_t
    size: cython.ulonglong
    ignored: cython.ulonglong
    delta: cython.ulonglong
    for row in range(first_row, end_row):
        size, body = _raw_varint(data, position, end)
        size >>= 1
        if body < 0 or size < 1 or size > cython.cast(cython.ulonglong, end - body):
            return -1
        following = body + cython.cast(cython.Py_ssize_t, size)
        if kept[row]:
            ignored, rest = _raw_varint(data, body + 1, following)
            if rest < 0:
                return -1
            delta = _zigzag(
                _wrapping_difference(table[row * _RECORD_ROW + _R_TIMESTAMP], base_timestamp)
            )
            size = cython.cast(cython.ulonglong, 1 + _raw_size(delta) + following - rest)
            at = _put_raw(out, at, size << 1)
            out[at] = data[body]
            at = _put_raw(out, at + 1, delta)
            at = _copy(out, at, data, rest, following)
        position = following
    return at


def copy_records(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    table: cython.longlong[::1],
    count: cython.Py_ssize_t,
    kept: cython.uchar[::1],
    is_rebased: cython.bint,
    base_timestamp: cython.longlong,
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> int:
    """Copy those of the `count` records in ``data[start:end]`` that `kept` marks to `out`.

    With `is_rebased` their timestamps are told from `base_timestamp`. Returns the end of the
    copy.
    """
    if (
        start < 0
        or end > len(data)
        or start > end
        or count * _RECORD_ROW > len(table)
        or count > len(kept)
        or at < 0
        or end - start + count * _GROWTH > len(out) - at
    ):
        raise IndexError("range outside the data")
    with cython.nogil:
        if is_rebased:
            at = _copy_rebased(data, start, end, table, 0, count, kept, base_timestamp, out, at)
        else:
            at = _copy_kept(data, start, end, 0, count, kept, out, at)
    if at < 0:
        raise IndexError("record outside the data")
    return at


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


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_int64(
    out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong
) -> cython.void:
    _put_int32(out, at, value >> 32)
    _put_int32(out, at + 4, value)


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
    """The first batch in [first_batch, end_batch) with one of the attributes in `mask`."""
    batch: cython.Py_ssize_t = first_batch
    if first_batch < 0 or end_batch * _BATCH_ROW > len(rows):
        raise IndexError("rows outside the table")
    with cython.nogil:
        while batch < end_batch and (rows[batch * _BATCH_ROW + _B_ATTRIBUTES] & mask) == 0:
            batch += 1
    return batch


def filter_batches(
    data: cython.const[cython.uchar][::1],
    rows: cython.longlong[::1],
    first_batch: cython.Py_ssize_t,
    end_batch: cython.Py_ssize_t,
    table: cython.longlong[::1],
    first_row: cython.Py_ssize_t,
    hashes: cython.ulonglong[::1],
    words: cython.ulonglong[::1],
    slots: cython.ulonglong,
    latest: cython.longlong,
    now_ms: cython.longlong,
    new_horizon: cython.longlong,
    retained: cython.longlong[::1],
    kept: cython.uchar[::1],
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    rebuilt: cython.longlong[::1],
    counts: cython.longlong[::1],
) -> tuple:
    """Copy what stays of uncompressed data batches [first_batch, end_batch) to `out` at `at`.

    Their records are in `table` and `hashes` from `first_row` on; see `decide_records` on which
    stay. A batch that keeps all is copied as it is. One that loses some keeps its offsets and
    its producer's fields. One that gets tombstones to keep learns when they may go: the base
    timestamp becomes `new_horizon`. One that loses all goes, unless its last offset is among
    `retained` (in order): then its header stays.

    `rebuilt` gets (position in `out`, size) of each batch that needs a new checksum. Stops early
    when `out` or `rebuilt` has no room for another batch. Returns (batch it stopped at, row it
    stopped at, end of what was copied, number of words in `rebuilt`).
    """
    batch: cython.Py_ssize_t = first_batch
    row: cython.Py_ssize_t = first_row
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
        or end_batch * _BATCH_ROW > len(rows)
        or first_row < 0
        or at < 0
        or slots > _SLOTS_MAX
        or slots * 3 > cython.cast(cython.ulonglong, len(words))
        or len(counts) < COUNT_WORDS
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        while batch < end_batch:
            here = batch * _BATCH_ROW
            start = rows[here + _B_POSITION]
            size = rows[here + _B_SIZE]
            count = rows[here + _B_RECORD_COUNT]
            attributes = rows[here + _B_ATTRIBUTES]
            if (
                start < 0
                or size < _HEADER_SIZE
                or size > len(data) - start
                or (row + count) * _RECORD_ROW > len(table)
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
                has_horizon and now_ms >= rows[here + _B_BASE_TIMESTAMP],
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
                    _put_int64(out, at + 27, new_horizon)
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
                _put_int32(out, at + 8, end - at - 12)
                out[at + 22] = cython.cast(cython.uchar, attributes & 0xFF)
                if (attributes & 0x08) == 0:  # else it is the time of every record
                    _put_int64(out, at + 35, largest)
                _put_int32(out, at + 57, stay)
                rebuilt[rebuilt_size] = at
                rebuilt[rebuilt_size + 1] = end - at
                rebuilt_size += 2
                counts[_CHANGED_BATCHES] += 1
                at = end
            elif _contains(retained, rows[here + _B_NEXT_OFFSET] - 1):
                _copy(out, at, data, start, start + _HEADER_SIZE)
                _put_int32(out, at + 8, _HEADER_SIZE - 12)
                out[at + 22] = cython.cast(cython.uchar, attributes & 0x38)
                _put_int64(out, at + 27, -1)
                _put_int32(out, at + 57, 0)
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


# --- the map as its users see it -------------------------------------------------------------


class KeyMap:
    """The newest offset of each key in a range of a log, in bounded memory. For one thread.

    Invariant: it speaks of all records with offsets in [start_offset, latest], and of none
    outside. A record past `latest` is not judged.
    """

    def __init__(self, slots: int, limit: int, secret: bytes, start_offset: int) -> None:
        if not 2 <= slots <= SLOTS_MAX or not 0 < limit < slots:
            raise ValueError(f"{slots} slots for {limit} keys: one slot must stay free")
        memory = mmap.mmap(-1, slots * SLOT_BYTES)  # zeros, taken as they are touched
        with contextlib.suppress(AttributeError, OSError):  # where there are no larger pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        self.words = memoryview(memory).cast("Q")
        self.slots = slots
        self.limit = limit
        self.used = 0
        self.start_offset = start_offset
        self.latest = start_offset - 1
        self.is_full = False
        self._secret_low = int.from_bytes(secret[:8], "little")
        self._secret_high = int.from_bytes(secret[8:16], "little")
        self._hashes = array("Q", bytes(16))

    def hashes_of(self, data: object, table: object, count: int) -> object:
        """The hashes of the first `count` rows; valid until the next call."""
        if len(self._hashes) < count * 2:
            self._hashes = array("Q", bytes(16 * count))
        hash_keys(data, table, count, self._secret_low, self._secret_high, self._hashes)
        return self._hashes

    def put(self, data: object, table: object, count: int) -> int:
        """Enter the first `count` rows in order; return how many were taken before it was full."""
        hashes = self.hashes_of(data, table, count)
        taken, self.used = put_latest(
            self.words, self.slots, self.used, self.limit, hashes, table, count, self.start_offset
        )
        if taken:
            at = (taken - 1) * tables.RECORD_ROW + tables.R_OFFSET
            self.latest = max(self.latest, table[at])
        self.is_full = taken < count
        return taken

    def pass_to(self, next_offset: int) -> None:
        """Offsets below hold nothing that a key could be known by, or all of them are in."""
        self.latest = max(self.latest, next_offset - 1)

    def get(self, key: bytes) -> int | None:
        """The newest offset of a key; None when the map does not have it."""
        low, high = hash_key(key, self._secret_low, self._secret_high)
        offset = find_offset(self.words, self.slots, low, high)
        return None if offset < 0 else offset

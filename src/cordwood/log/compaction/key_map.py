# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The newest offset of each key: the map that compaction builds.

A kernel: see `format/batch_scan.py` for the rules of kernels, and `key_slots.py` for the layout.

A key is known by its 128-bit SipHash alone, so a key of any length takes 24 bytes. Each run keys
the hash again: nobody can prepare keys that collide in one slot or are taken for each other.
"""

from __future__ import annotations

import contextlib
import mmap
from array import array

from cordwood.format.kernel_tables import R_OFFSET, RECORD_ROW

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
    from cython.cimports.libc.string import memcpy  # type: ignore
else:
    from cordwood.format import kernel_tables as tables
    from cordwood.log.compaction.key_slots import find_slot, look_ahead

COMPILED = cython.compiled

SLOT_BYTES = 24
SLOTS_MAX = 2**32 - 1  # the hash chooses a slot with 32 of its bits

_SLOTS_MAX = cython.declare(cython.ulonglong, SLOTS_MAX)
_MASK64 = 0xFFFFFFFFFFFFFFFF  # for the plain form: C's integers wrap by themselves

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
    else:
        return (a + b) & _MASK64


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _rotated(value: cython.ulonglong, bits: cython.int) -> cython.ulonglong:
    if cython.compiled:
        return (value << bits) | (value >> (64 - bits))
    else:
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
    """Up to eight bytes as a little-endian integer; the caller has checked the range."""
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
            # One load. On a big-endian machine this is another hash, equally good.
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
    """Hash the keys of the first `count` record rows into pairs of words; no key gives 0, 0."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    is_inside: cython.bint = True
    if count * tables.RECORD_ROW > len(table) or count * 2 > len(hashes):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(count):
            at = table[row * tables.RECORD_ROW + tables.R_KEY_POSITION]
            size = table[row * tables.RECORD_ROW + tables.R_KEY_SIZE]
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


def put_latest(
    key_map: object,
    hashes: cython.ulonglong[::1],
    table: cython.longlong[::1],
    count: cython.Py_ssize_t,
) -> tuple:
    """Enter the offsets of the first `count` rows, from `key_map.start_offset` on.

    Rows come in the order of their offsets, so the last row of a key wins. Stops before a key that
    would exceed `key_map.limit`. Returns (rows taken, keys in the map).
    """
    words: cython.ulonglong[::1] = key_map.words
    slots: cython.ulonglong = key_map.slots
    used: cython.ulonglong = key_map.used
    limit: cython.ulonglong = key_map.limit
    start_offset: cython.longlong = key_map.start_offset
    row: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t
    if (
        count * tables.RECORD_ROW > len(table)
        or count * 2 > len(hashes)
        or slots > _SLOTS_MAX
        or slots * 3 > cython.cast(cython.ulonglong, len(words))
    ):
        raise IndexError("rows outside the table")
    if limit >= slots or used > limit:
        raise ValueError("one slot must stay free")
    with cython.nogil:
        while row < count:
            look_ahead(words, slots, hashes, row, count)
            if (
                table[row * tables.RECORD_ROW + tables.R_KEY_SIZE] >= 0
                and table[row * tables.RECORD_ROW + tables.R_OFFSET] >= start_offset
            ):
                at = find_slot(words, slots, hashes[row * 2], hashes[row * 2 + 1])
                if words[at + 2] == 0:
                    if used >= limit:
                        break
                    words[at] = hashes[row * 2]
                    words[at + 1] = hashes[row * 2 + 1]
                    used += 1
                words[at + 2] = cython.cast(
                    cython.ulonglong, table[row * tables.RECORD_ROW + tables.R_OFFSET] + 1
                )
            row += 1
    return row, used


def find_offset(
    words: cython.ulonglong[::1],
    slots: cython.ulonglong,
    low: cython.ulonglong,
    high: cython.ulonglong,
) -> int:
    """The offset in the map for one hash; -1 if it has none."""
    if slots > _SLOTS_MAX or slots * 3 > cython.cast(cython.ulonglong, len(words)):
        raise IndexError("slots outside the map")
    at: cython.Py_ssize_t = find_slot(words, slots, low, high)
    found: cython.ulonglong = words[at + 2]
    return int(found) - 1


# --- the map as its users see it -------------------------------------------------------------


class KeyMap:
    """The newest offset of each key in a range of a log, in bounded memory. For one thread.

    Invariant: it covers all records with offsets in [start_offset, latest], and no others. It says
    nothing about a record past `latest`.
    """

    def __init__(self, slots: int, limit: int, secret: bytes, start_offset: int) -> None:
        if not 2 <= slots <= SLOTS_MAX or not 0 < limit < slots:
            raise ValueError(f"{slots} slots for {limit} keys: one slot must stay free")
        memory = mmap.mmap(-1, slots * SLOT_BYTES)  # zeros; pages are allocated when touched
        with contextlib.suppress(AttributeError, OSError):  # systems without huge pages
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
        """Enter the first `count` rows in order; return how many fitted before the map was full."""
        taken = self.put_hashed(self.hashes_of(data, table, count), table, count)
        if taken:
            self.latest = max(self.latest, table[(taken - 1) * RECORD_ROW + R_OFFSET])
        self.is_full = taken < count
        return taken

    def put_hashed(self, hashes: object, table: object, count: int) -> int:
        """As `put`, for keys known by their hashes; leaves `latest` and `is_full` as they are."""
        taken, self.used = put_latest(self, hashes, table, count)
        return taken

    def pass_to(self, next_offset: int) -> None:
        """Declare that every keyed record below `next_offset` is in the map."""
        self.latest = max(self.latest, next_offset - 1)

    def get(self, key: bytes) -> int | None:
        """The newest offset of a key; None if the map does not have it."""
        low, high = hash_key(key, self._secret_low, self._secret_high)
        offset = find_offset(self.words, self.slots, low, high)
        return None if offset < 0 else offset

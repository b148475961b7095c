# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The loops of the key index: hash the keys of parsed records, sort, encode, search.

Compiled at install by Cython, and where no compiler is to be had, run as the plain Python it
is, with the same results. As in `kernels.py`, every access is checked against the length of
what it goes to before it happens.

The hash of a key is FNV-1a with 64 bits, then the finaliser of MurmurHash3, which spreads what
short keys leave in few bits over all of them:

    hash = 0xcbf29ce484222325
    for each byte:  hash = ((hash xor byte) * 0x100000001b3) mod 2^64
    hash ^= hash >> 33;  hash = hash * 0xff51afd7ed558ccd mod 2^64
    hash ^= hash >> 33;  hash = hash * 0xc4ceb9fe1a85ec53 mod 2^64
    hash ^= hash >> 33
"""

from __future__ import annotations

from array import array

from cordwood.format import kernel_tables as tables

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

_BATCH_ROW = cython.declare(cython.Py_ssize_t, tables.BATCH_ROW)
_B_POSITION = cython.declare(cython.Py_ssize_t, tables.B_POSITION)
_B_NEXT_OFFSET = cython.declare(cython.Py_ssize_t, tables.B_NEXT_OFFSET)
_RECORD_ROW = cython.declare(cython.Py_ssize_t, tables.RECORD_ROW)
_R_OFFSET = cython.declare(cython.Py_ssize_t, tables.R_OFFSET)
_R_KEY_POSITION = cython.declare(cython.Py_ssize_t, tables.R_KEY_POSITION)
_R_KEY_SIZE = cython.declare(cython.Py_ssize_t, tables.R_KEY_SIZE)

_FNV_START = cython.declare(cython.ulonglong, 0xCBF29CE484222325)
_FNV_PRIME = cython.declare(cython.ulonglong, 0x100000001B3)
_MIX_1 = cython.declare(cython.ulonglong, 0xFF51AFD7ED558CCD)
_MIX_2 = cython.declare(cython.ulonglong, 0xC4CEB9FE1A85EC53)
_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)

_ENTRY_SIZE = cython.declare(cython.Py_ssize_t, 12)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _hash(
    data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.ulonglong:
    value: cython.ulonglong = _FNV_START
    at: cython.Py_ssize_t
    for at in range(start, end):
        value = ((value ^ data[at]) * _FNV_PRIME) & _MASK64
    value ^= value >> 33
    value = (value * _MIX_1) & _MASK64
    value ^= value >> 33
    value = (value * _MIX_2) & _MASK64
    value ^= value >> 33
    return value


def key_hash(key: cython.const[cython.uchar][::1]) -> int:
    """The hash under which a key stands in the index."""
    return _hash(key, 0, len(key))


def collect_keys(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[::1],
    start_row: cython.Py_ssize_t,
    end_row: cython.Py_ssize_t,
    rows: cython.longlong[::1],
    first_batch: cython.Py_ssize_t,
    batch_count: cython.Py_ssize_t,
    chunk_position: cython.longlong,
    low: cython.ulonglong,
    high: cython.ulonglong,
    hashes: cython.ulonglong[::1],
    positions: cython.ulonglong[::1],
    count: cython.Py_ssize_t,
) -> tuple:
    """Note hash and batch position of each keyed record in rows [start_row, end_row).

    Only hashes in [low, high], both ends included. The batches of these records are among
    `rows`, from `first_batch` on. Notes go to `hashes` and `positions` from index `count` on. A
    key that follows itself within a batch is noted once. Returns (count, batch of the last
    record); a count of -1 says there was no room.
    """
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    batch: cython.Py_ssize_t = first_batch
    room: cython.Py_ssize_t = min(len(hashes), len(positions))
    length: cython.Py_ssize_t = len(data)
    value: cython.ulonglong
    position: cython.ulonglong
    if (
        start_row < 0
        or end_row * _RECORD_ROW > len(table)
        or first_batch < 0
        or batch_count * _BATCH_ROW > len(rows)
        or count < 0
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(start_row, end_row):
            size = table[row * _RECORD_ROW + _R_KEY_SIZE]
            at = table[row * _RECORD_ROW + _R_KEY_POSITION]
            if size < 0 or at < 0 or size > length - at:
                continue
            while (
                batch < batch_count
                and rows[batch * _BATCH_ROW + _B_NEXT_OFFSET]
                <= table[row * _RECORD_ROW + _R_OFFSET]
            ):
                batch += 1
            if batch >= batch_count:
                break
            value = _hash(data, at, at + size)
            if value < low or value > high:
                continue
            position = chunk_position + rows[batch * _BATCH_ROW + _B_POSITION]
            if count > 0 and hashes[count - 1] == value and positions[count - 1] == position:
                continue
            if count >= room:
                count = -1
                break
            hashes[count] = value
            positions[count] = position
            count += 1
    return count, batch


def sort_keys(
    hashes: cython.ulonglong[::1],
    positions: cython.ulonglong[::1],
    count: cython.Py_ssize_t,
    spare_hashes: cython.ulonglong[::1],
    spare_positions: cython.ulonglong[::1],
) -> None:
    """Sort by hash, keeping the order of equal ones: a radix sort, a byte at a time."""
    shift: cython.Py_ssize_t
    i: cython.Py_ssize_t
    digit: cython.Py_ssize_t
    total: cython.Py_ssize_t
    here: cython.Py_ssize_t
    counts: cython.longlong[::1] = array("q", bytes(8 * 256))
    if (
        count < 0
        or count > len(hashes)
        or count > len(positions)
        or count > len(spare_hashes)
        or count > len(spare_positions)
    ):
        raise IndexError("more entries than there is room")
    with cython.nogil:
        for shift in range(0, 64, 8):
            for digit in range(256):
                counts[digit] = 0
            for i in range(count):
                counts[cython.cast(cython.Py_ssize_t, (hashes[i] >> shift) & 0xFF)] += 1
            total = 0
            for digit in range(256):
                here = counts[digit]
                counts[digit] = total
                total += here
            for i in range(count):
                digit = cython.cast(cython.Py_ssize_t, (hashes[i] >> shift) & 0xFF)
                here = counts[digit]
                counts[digit] = here + 1
                spare_hashes[here] = hashes[i]
                spare_positions[here] = positions[i]
            # After an even number of turns everything is back where it started.
            hashes, spare_hashes = spare_hashes, hashes
            positions, spare_positions = spare_positions, positions


def put_entries(
    hashes: cython.ulonglong[::1],
    positions: cython.ulonglong[::1],
    count: cython.Py_ssize_t,
    out: cython.uchar[::1],
) -> cython.Py_ssize_t:
    """Encode sorted notes as entries, each pair of hash and position once; return how many."""
    i: cython.Py_ssize_t
    byte: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    if count > len(hashes) or count > len(positions) or count * _ENTRY_SIZE > len(out):
        raise IndexError("more entries than there is room")
    with cython.nogil:
        for i in range(count):
            if i > 0 and hashes[i] == hashes[i - 1] and positions[i] == positions[i - 1]:
                continue
            for byte in range(8):
                out[at + byte] = cython.cast(cython.uchar, (hashes[i] >> (56 - 8 * byte)) & 0xFF)
            for byte in range(4):
                out[at + 8 + byte] = cython.cast(
                    cython.uchar, (positions[i] >> (24 - 8 * byte)) & 0xFF
                )
            at += _ENTRY_SIZE
    return at // _ENTRY_SIZE


def first_entry_at(
    entries: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    value: cython.ulonglong,
) -> cython.Py_ssize_t:
    """Of `count` sorted entries from byte `start` on, the first whose hash is `value` or more."""
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = count
    middle: cython.Py_ssize_t
    byte: cython.Py_ssize_t
    found: cython.ulonglong
    if start < 0 or count < 0 or start + count * _ENTRY_SIZE > len(entries):
        raise IndexError("entries outside the input")
    while low < high:
        middle = (low + high) // 2
        found = 0
        for byte in range(8):
            found = (found << 8) | entries[start + middle * _ENTRY_SIZE + byte]
        if found < value:
            low = middle + 1
        else:
            high = middle
    return low


def last_note_of(
    hashes: cython.ulonglong[::1], count: cython.Py_ssize_t, value: cython.ulonglong
) -> cython.Py_ssize_t:
    """Of the first `count` hashes, in any order, the index of the last that is `value`; or -1."""
    i: cython.Py_ssize_t = count - 1
    if count > len(hashes):
        raise IndexError("more entries than there is room")
    with cython.nogil:
        while i >= 0 and hashes[i] != value:
            i -= 1
    return i

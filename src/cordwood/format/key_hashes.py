# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The key index: hash the keys of parsed records, sort the hashes, encode and search entries.

See `batch_scan.py` for the rules of kernels and for the tables.

The hash of a key is FNV-1a with 64 bits, then the finaliser of MurmurHash3, which spreads the few
bits that differ between short keys over all 64:

    hash = 0xcbf29ce484222325
    for each byte:  hash = ((hash xor byte) * 0x100000001b3) mod 2^64
    hash ^= hash >> 33;  hash = hash * 0xff51afd7ed558ccd mod 2^64
    hash ^= hash >> 33;  hash = hash * 0xc4ceb9fe1a85ec53 mod 2^64
    hash ^= hash >> 33
"""

from __future__ import annotations

from array import array

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.format import kernel_tables as tables  # type: ignore
    from cython.cimports.cordwood.primitives import put_int32, put_int64  # type: ignore
else:
    from cordwood.format import kernel_tables as tables
    from cordwood.primitives import put_int32, put_int64

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
    """The hash of a key in the index."""
    return _hash(key, 0, len(key))


def collect_keys(
    run: object,
    rows: cython.longlong[::1],
    first_batch: cython.Py_ssize_t,
    batch_count: cython.Py_ssize_t,
    chunk_position: cython.longlong,
    low: cython.ulonglong,
    high: cython.ulonglong,
    notes: object,
) -> tuple:
    """Add the hash and the batch position of each keyed record of `run` to `notes`.

    Hashes outside [low, high], both ends included, are left out. The batches of the records are
    among `rows`, from `first_batch` on. `notes` has `hashes` and `positions`, whose first `count`
    items are in use. A key that repeats within a batch, with no other between, is noted once.
    Returns (new count, batch of the last record); the count is -1 if there was no room.
    """
    data: cython.const[cython.uchar][::1] = run.data
    table: cython.longlong[::1] = run.table
    start_row: cython.Py_ssize_t = run.start
    end_row: cython.Py_ssize_t = run.end
    hashes: cython.ulonglong[::1] = notes.hashes
    positions: cython.ulonglong[::1] = notes.positions
    count: cython.Py_ssize_t = notes.count
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
        or end_row * tables.RECORD_ROW > len(table)
        or first_batch < 0
        or batch_count * tables.BATCH_ROW > len(rows)
        or count < 0
    ):
        raise IndexError("rows outside the table")
    with cython.nogil:
        for row in range(start_row, end_row):
            size = table[row * tables.RECORD_ROW + tables.R_KEY_SIZE]
            at = table[row * tables.RECORD_ROW + tables.R_KEY_POSITION]
            if size < 0 or at < 0 or size > length - at:
                continue
            while (
                batch < batch_count
                and rows[batch * tables.BATCH_ROW + tables.B_NEXT_OFFSET]
                <= table[row * tables.RECORD_ROW + tables.R_OFFSET]
            ):
                batch += 1
            if batch >= batch_count:
                break
            value = _hash(data, at, at + size)
            if value < low or value > high:
                continue
            position = chunk_position + rows[batch * tables.BATCH_ROW + tables.B_POSITION]
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
    """Sort by hash, keeping the order of equal hashes: a radix sort, one byte at a time."""
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
        raise IndexError("more entries than the buffers hold")
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
            # After an even number of passes the result is in `hashes` and `positions`.
            hashes, spare_hashes = spare_hashes, hashes
            positions, spare_positions = spare_positions, positions


def put_entries(
    hashes: cython.ulonglong[::1],
    positions: cython.ulonglong[::1],
    count: cython.Py_ssize_t,
    out: cython.uchar[::1],
) -> cython.Py_ssize_t:
    """Encode sorted notes as entries, without repeated pairs; return the number of entries."""
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    if count > len(hashes) or count > len(positions) or count * _ENTRY_SIZE > len(out):
        raise IndexError("more entries than the buffers hold")
    with cython.nogil:
        for i in range(count):
            if i > 0 and hashes[i] == hashes[i - 1] and positions[i] == positions[i - 1]:
                continue
            put_int64(out, at, cython.cast(cython.longlong, hashes[i]))
            put_int32(out, at + 8, cython.cast(cython.longlong, positions[i]))
            at += _ENTRY_SIZE
    return at // _ENTRY_SIZE


def first_entry_at(
    entries: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    value: cython.ulonglong,
) -> cython.Py_ssize_t:
    """The first of `count` sorted entries, from byte `start` on, whose hash is `value` or more."""
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
    """The index of the last of the first `count` hashes that equals `value`, or -1."""
    i: cython.Py_ssize_t = count - 1
    if count > len(hashes):
        raise IndexError("more entries than the buffers hold")
    with cython.nogil:
        while i >= 0 and hashes[i] != value:
            i -= 1
    return i

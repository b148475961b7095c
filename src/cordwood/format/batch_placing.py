# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Batches that are written together get their offsets, and their stretches of the index.

A kernel: see `batch_scan.py` for the rules of kernels. The batches are `UnplacedBatch` tuples, in
the order in which they lie in one buffer. Nothing else may be in the list: a compiled kernel takes
each item for such a tuple without a look.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.primitives import put_int32, put_int64  # type: ignore
else:
    from cordwood.primitives import put_int32, put_int64

COMPILED = cython.compiled

_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_EPOCH_AT = cython.declare(cython.Py_ssize_t, 12)
_NO_TIMESTAMP = cython.declare(cython.longlong, -1)
_NO_PRODUCER_ID = cython.declare(cython.longlong, -1)


def place_batches(
    data: cython.uchar[::1],
    batches: list,
    base_offset: cython.longlong,
    leader_epoch: cython.longlong,
) -> tuple:
    """Stamp each batch with its base offset and the leader epoch.

    Returns (base offsets, size of all, end offset, newest timestamp, whether one has a producer).
    Raises IndexError if they do not fit the data.
    """
    position: cython.Py_ssize_t = 0
    end: cython.longlong = base_offset
    newest: cython.longlong = _NO_TIMESTAMP
    is_numbered: cython.bint = False
    size: cython.Py_ssize_t
    timestamp: cython.longlong
    bases: list = []
    batch: tuple
    for unplaced in batches:
        batch = cython.cast(tuple, unplaced)
        size = batch[0]
        if size < _HEADER_SIZE or size > len(data) - position:
            raise IndexError("batch outside the data")
        put_int64(data, position, end)
        put_int32(data, position + _EPOCH_AT, leader_epoch)
        bases.append(end)
        position += size
        end += cython.cast(cython.longlong, batch[1])
        timestamp = batch[2]
        if timestamp > newest:
            newest = timestamp
        if cython.cast(cython.longlong, batch[3]) != _NO_PRODUCER_ID:
            is_numbered = True
    return bases, position, end, newest, is_numbered


def index_stretches(
    batches: list,
    base_offset: cython.longlong,
    first_bytes_max: cython.longlong,
    bytes_max: cython.longlong,
) -> list:
    """Batches that share an index entry: each stretch ends with the batch that fills it.

    The first stretch is full with `first_bytes_max`, the others with `bytes_max`. Returns for each
    (size, end offset, newest timestamp, record count, last offset of the batch that has it, end
    offset and newest timestamp of its first batch).
    """
    found: list = []
    end: cython.longlong = base_offset
    size: cython.longlong = 0
    count: cython.longlong = 0
    newest: cython.longlong = _NO_TIMESTAMP
    newest_offset: cython.longlong = base_offset
    first_end: cython.longlong = base_offset
    first_timestamp: cython.longlong = _NO_TIMESTAMP
    limit: cython.longlong = first_bytes_max
    record_count: cython.longlong
    timestamp: cython.longlong
    batch: tuple
    for unplaced in batches:
        batch = cython.cast(tuple, unplaced)
        record_count = batch[1]
        timestamp = batch[2]
        end += record_count
        if size == 0:
            first_end = end
            first_timestamp = timestamp
        size += cython.cast(cython.longlong, batch[0])
        count += record_count
        if timestamp > newest:
            newest = timestamp
            newest_offset = end - 1
        if size >= limit:
            found.append((size, end, newest, count, newest_offset, first_end, first_timestamp))
            size = 0
            count = 0
            newest = _NO_TIMESTAMP
            limit = bytes_max
    if size:
        found.append((size, end, newest, count, newest_offset, first_end, first_timestamp))
    return found

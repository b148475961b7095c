# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The usual produce request, for one partition and without a transaction, read in one pass.

A kernel: see `format/batch_scan.py` for the rules of kernels. An unusual or malformed request
comes back as None; `produce_request` then reads it again, slowly, and says what is wrong.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.primitives import int16, int32, unsigned_varint  # type: ignore
else:
    from cordwood.primitives import int16, int32, unsigned_varint

COMPILED = cython.compiled

_PRODUCE = cython.declare(cython.longlong, 0)
_FIRST_VERSION = cython.declare(cython.longlong, 3)
_FIRST_FLEXIBLE = cython.declare(cython.longlong, 9)
_FIRST_WITH_TOPIC_ID = cython.declare(cython.longlong, 13)
_LAST_VERSION = cython.declare(cython.longlong, 13)
_VARINT_SIZE_MAX = cython.declare(cython.Py_ssize_t, 5)
_TOPIC_ID_SIZE = cython.declare(cython.longlong, 16)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.Py_ssize_t))
def _size(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    width: cython.int,
):
    """A size of `width` bytes, or a varint of size + 1 for width 0; position -1 if truncated."""
    raw: cython.ulonglong
    following: cython.Py_ssize_t
    if end - at < width:
        return 0, -1
    if width == 2:
        return int16(data, at), at + 2
    if width == 4:
        return int32(data, at), at + 4
    raw, following = unsigned_varint(data, at, end)
    if following < 0 or following - at > _VARINT_SIZE_MAX:
        return 0, -1
    return cython.cast(cython.longlong, raw) - 1, following


def find_sole_produce(
    data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple | None:
    """The parts of the produce request in the frame ``data[start:end]``, if it is a usual one.

    Returns (api version, correlation id, acks, timeout, start and end of the topic's name or id,
    partition, start and end of the records).
    """
    at: cython.Py_ssize_t = start
    size: cython.longlong
    version: cython.longlong
    flexible: cython.bint
    if start < 0 or end > len(data) or end - start < 10 or int16(data, at) != _PRODUCE:
        return None
    version = int16(data, at + 2)
    if version < _FIRST_VERSION or version > _LAST_VERSION:
        return None
    correlation_id: cython.longlong = int32(data, at + 4)
    flexible = version >= _FIRST_FLEXIBLE
    of_string: cython.int = 0 if flexible else 2
    of_array: cython.int = 0 if flexible else 4
    size, at = _size(data, at + 8, end, 2)  # client id
    if size > 0:
        if size > end - at:
            return None
        at += cython.cast(cython.Py_ssize_t, size)
    if flexible:
        if at >= end or data[at] != 0:  # tagged fields of the header
            return None
        at += 1
    size, at = _size(data, at, end, of_string)  # transactional id
    if at < 0 or size != -1 or end - at < 6:
        return None
    acks: cython.longlong = int16(data, at)
    timeout_ms: cython.longlong = int32(data, at + 2)
    size, at = _size(data, at + 6, end, of_array)  # topics
    if at < 0 or size != 1:
        return None
    if version >= _FIRST_WITH_TOPIC_ID:
        size = _TOPIC_ID_SIZE
    else:
        size, at = _size(data, at, end, of_string)
    if at < 0 or size < 1 or size > end - at:
        return None
    name_start: cython.Py_ssize_t = at
    name_end: cython.Py_ssize_t = at + cython.cast(cython.Py_ssize_t, size)
    size, at = _size(data, name_end, end, of_array)  # partitions
    if at < 0 or size != 1 or end - at < 4:
        return None
    partition: cython.longlong = int32(data, at)
    size, at = _size(data, at + 4, end, of_array)  # records
    if at < 0 or size < 1 or size > end - at:
        return None
    records_end: cython.Py_ssize_t = at + cython.cast(cython.Py_ssize_t, size)
    if flexible:  # no tagged fields of partition, topic and request
        if end - records_end != 3:
            return None
        if data[records_end] != 0 or data[records_end + 1] != 0 or data[records_end + 2] != 0:
            return None
    elif records_end != end:
        return None
    return (
        version,
        correlation_id,
        acks,
        timeout_ms,
        name_start,
        name_end,
        partition,
        at,
        records_end,
    )

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The fetch of a consumer of one partition, without a session, read in one pass.

A kernel: see `format/batch_scan.py` for the rules of kernels. An unusual or malformed request
comes back as None; `fetch_request` then reads it again, slowly, and says what is wrong. So does a
client id beyond ASCII: it may not be UTF-8, and a request that was found here is read again when it
leaves the short way, where nothing may be wrong with it any more.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.primitives import (  # type: ignore
        int16,
        int32,
        int64,
        is_ascii,
        size_at,
    )
else:
    from cordwood.primitives import int16, int32, int64, is_ascii, size_at

COMPILED = cython.compiled

_FETCH = cython.declare(cython.longlong, 1)
_FIRST_VERSION = cython.declare(cython.longlong, 4)
_FIRST_WITH_LOG_START = cython.declare(cython.longlong, 5)
_FIRST_WITH_SESSION = cython.declare(cython.longlong, 7)
_FIRST_WITH_LEADER_EPOCH = cython.declare(cython.longlong, 9)
_FIRST_WITH_RACK = cython.declare(cython.longlong, 11)
_FIRST_FLEXIBLE = cython.declare(cython.longlong, 12)
_FIRST_WITH_TOPIC_ID = cython.declare(cython.longlong, 13)
_FIRST_WITH_REPLICA_TAG = cython.declare(cython.longlong, 15)
_LAST_VERSION = cython.declare(cython.longlong, 18)
_TOPIC_ID_SIZE = cython.declare(cython.longlong, 16)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
def _partition_size(version: cython.longlong):
    """Bytes of the fields of a partition."""
    size: cython.Py_ssize_t = 16
    if version >= _FIRST_WITH_LOG_START:
        size += 8
    if version >= _FIRST_WITH_LEADER_EPOCH:
        size += 4
    if version >= _FIRST_FLEXIBLE:
        size += 4
    return size


def find_sole_fetch(
    data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple | None:
    """The parts of the fetch request in the frame ``data[start:end]``, if it is a usual one.

    As most are: of a consumer, for one partition, without session, rack and tagged fields.

    Returns (api version, correlation id, longest wait, least bytes, most bytes, isolation level,
    start and end of the topic's name or id, partition, leader epoch, offset, last fetched epoch,
    most bytes of the partition).
    """
    at: cython.Py_ssize_t = start
    size: cython.longlong
    version: cython.longlong
    flexible: cython.bint
    leader_epoch: cython.longlong = -1
    last_fetched_epoch: cython.longlong = -1
    if start < 0 or end > len(data) or end - start < 10 or int16(data, at) != _FETCH:
        return None
    version = int16(data, at + 2)
    if version < _FIRST_VERSION or version > _LAST_VERSION:
        return None
    correlation_id: cython.longlong = int32(data, at + 4)
    flexible = version >= _FIRST_FLEXIBLE
    of_string: cython.int = 0 if flexible else 2
    of_array: cython.int = 0 if flexible else 4
    size, at = size_at(data, at + 8, end, 2)  # client id
    if size < -1 or size > end - at:
        return None
    if size > 0:
        if not is_ascii(data, at, at + cython.cast(cython.Py_ssize_t, size)):
            return None
        at += cython.cast(cython.Py_ssize_t, size)
    if flexible:
        if at >= end or data[at] != 0:  # tagged fields of the header
            return None
        at += 1
    if version < _FIRST_WITH_REPLICA_TAG:
        if end - at < 4 or int32(data, at) != -1:
            return None
        at += 4
    if end - at < 13:
        return None
    max_wait_ms: cython.longlong = int32(data, at)
    min_bytes: cython.longlong = int32(data, at + 4)
    max_bytes: cython.longlong = int32(data, at + 8)
    isolation_level: cython.longlong = data[at + 12]
    at += 13
    if version >= _FIRST_WITH_SESSION:
        if end - at < 8 or int32(data, at) != 0 or int32(data, at + 4) != -1:
            return None
        at += 8
    size, at = size_at(data, at, end, of_array)  # topics
    if at < 0 or size != 1:
        return None
    if version >= _FIRST_WITH_TOPIC_ID:
        size = _TOPIC_ID_SIZE
    else:
        size, at = size_at(data, at, end, of_string)
    if at < 0 or size < 1 or size > end - at:
        return None
    name_start: cython.Py_ssize_t = at
    name_end: cython.Py_ssize_t = at + cython.cast(cython.Py_ssize_t, size)
    size, at = size_at(data, name_end, end, of_array)  # partitions
    if at < 0 or size != 1 or end - at < _partition_size(version):
        return None
    partition: cython.longlong = int32(data, at)
    at += 4
    if version >= _FIRST_WITH_LEADER_EPOCH:
        leader_epoch = int32(data, at)
        at += 4
    offset: cython.longlong = int64(data, at)
    at += 8
    if flexible:
        last_fetched_epoch = int32(data, at)
        at += 4
    if version >= _FIRST_WITH_LOG_START:
        at += 8
    partition_max_bytes: cython.longlong = int32(data, at)
    at += 4
    if flexible:  # no tagged fields of partition and topic
        if end - at < 2 or data[at] != 0 or data[at + 1] != 0:
            return None
        at += 2
    if version >= _FIRST_WITH_SESSION:
        size, at = size_at(data, at, end, of_array)  # forgotten topics
        if at < 0 or size != 0:
            return None
    if version >= _FIRST_WITH_RACK:
        size, at = size_at(data, at, end, of_string)
        if at < 0 or size != 0:
            return None
    if flexible:
        if end - at != 1 or data[at] != 0:
            return None
    elif at != end:
        return None
    return (
        version,
        correlation_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        name_start,
        name_end,
        partition,
        leader_epoch,
        offset,
        last_fetched_epoch,
        partition_max_bytes,
    )

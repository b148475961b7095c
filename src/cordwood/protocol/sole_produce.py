# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The usual produce request, for one partition, read in one pass; and the answers to several.

A kernel: see `format/batch_scan.py` for the rules of kernels. An unusual or malformed request
comes back as None, or as a run of its own; `produce_request` then reads it again, slowly, and says
what is wrong. A client id or transactional id beyond ASCII is unusual: it may not be UTF-8.
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
        is_ascii,
        put_int32,
        put_int64,
        size_at,
    )
else:
    from cordwood.primitives import int16, int32, is_ascii, put_int32, put_int64, size_at

COMPILED = cython.compiled

_PRODUCE = cython.declare(cython.longlong, 0)
_FIRST_VERSION = cython.declare(cython.longlong, 3)
_FIRST_FLEXIBLE = cython.declare(cython.longlong, 9)
_FIRST_WITH_TOPIC_ID = cython.declare(cython.longlong, 13)
_LAST_VERSION = cython.declare(cython.longlong, 13)
_TOPIC_ID_SIZE = cython.declare(cython.longlong, 16)
_PREFIX = cython.declare(cython.Py_ssize_t, 4)  # the size of a frame, before it
_CORRELATION_ID_AT = cython.declare(cython.Py_ssize_t, 4)  # in an answer, behind its size
_OFFSET_SIZE = cython.declare(cython.Py_ssize_t, 8)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(
    (
        cython.longlong,
        cython.longlong,
        cython.longlong,
        cython.longlong,
        cython.Py_ssize_t,
        cython.Py_ssize_t,
        cython.longlong,
        cython.Py_ssize_t,
        cython.Py_ssize_t,
        cython.Py_ssize_t,
        cython.Py_ssize_t,
    )
)
def _read(data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t):
    """As `find_sole_produce`; version -1 if it is not a usual one."""
    at: cython.Py_ssize_t = start
    size: cython.longlong
    version: cython.longlong
    flexible: cython.bint
    if start < 0 or end > len(data) or end - start < 10 or int16(data, at) != _PRODUCE:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    version = int16(data, at + 2)
    if version < _FIRST_VERSION or version > _LAST_VERSION:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    correlation_id: cython.longlong = int32(data, at + 4)
    flexible = version >= _FIRST_FLEXIBLE
    of_string: cython.int = 0 if flexible else 2
    of_array: cython.int = 0 if flexible else 4
    size, at = size_at(data, at + 8, end, 2)  # client id
    if size < -1 or size > end - at:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if size > 0:
        if not is_ascii(data, at, at + cython.cast(cython.Py_ssize_t, size)):
            return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        at += cython.cast(cython.Py_ssize_t, size)
    if flexible:
        if at >= end or data[at] != 0:  # tagged fields of the header
            return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        at += 1
    size, at = size_at(data, at, end, of_string)  # transactional id
    id_start: cython.Py_ssize_t = -1
    id_end: cython.Py_ssize_t = -1
    if at < 0 or size < -1 or size > end - at:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if size >= 0:
        id_start = at
        at += cython.cast(cython.Py_ssize_t, size)
        id_end = at
        if not is_ascii(data, id_start, id_end):
            return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if end - at < 6:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    acks: cython.longlong = int16(data, at)
    timeout_ms: cython.longlong = int32(data, at + 2)
    size, at = size_at(data, at + 6, end, of_array)  # topics
    if at < 0 or size != 1:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if version >= _FIRST_WITH_TOPIC_ID:
        size = _TOPIC_ID_SIZE
    else:
        size, at = size_at(data, at, end, of_string)
    if at < 0 or size < 1 or size > end - at:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    name_start: cython.Py_ssize_t = at
    name_end: cython.Py_ssize_t = at + cython.cast(cython.Py_ssize_t, size)
    size, at = size_at(data, name_end, end, of_array)  # partitions
    if at < 0 or size != 1 or end - at < 4:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    partition: cython.longlong = int32(data, at)
    size, at = size_at(data, at + 4, end, of_array)  # records
    if at < 0 or size < 1 or size > end - at:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    records_end: cython.Py_ssize_t = at + cython.cast(cython.Py_ssize_t, size)
    if flexible:  # no tagged fields of partition, topic and request
        if end - records_end != 3:
            return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        if data[records_end] != 0 or data[records_end + 1] != 0 or data[records_end + 2] != 0:
            return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    elif records_end != end:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
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
        id_start,
        id_end,
    )


def find_sole_produce(
    data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple | None:
    """The parts of the produce request in the frame ``data[start:end]``, if it is a usual one.

    Returns (api version, correlation id, acks, timeout, start and end of the topic's name or id,
    partition, start and end of the records, start and end of the transactional id). Without a
    transactional id, both are -1.
    """
    found = _read(data, start, end)
    return found if found[0] >= 0 else None


def find_sole_produces(data: cython.const[cython.uchar][::1], ends: list) -> list:
    """Frames that lie one behind the other in `data`, as runs of produce requests.

    `ends` has the end of each frame; its size comes before it. Usual requests that follow each
    other and differ only in their clients and records make a run: (api version, acks, timeout,
    the topic's name or id, partition, indexes of the frames, correlation ids, starts and ends of
    the records). Any other frame, also one with a transactional id, is a run of its own, of version
    -1, with nothing but its index.
    """
    runs: list = []
    indexes: list = []
    ids: list = []
    spans: list = []
    start: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    index: cython.Py_ssize_t
    version: cython.longlong
    correlation_id: cython.longlong
    acks: cython.longlong
    timeout_ms: cython.longlong
    name_at: cython.Py_ssize_t
    name_end: cython.Py_ssize_t
    partition: cython.longlong
    at: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    id_at: cython.Py_ssize_t = -1
    # Of the last run.
    run_version: cython.longlong = -1
    run_acks: cython.longlong = 0
    run_timeout_ms: cython.longlong = 0
    run_partition: cython.longlong = 0
    run_name_at: cython.Py_ssize_t = 0
    run_name_end: cython.Py_ssize_t = 0
    for index in range(len(ends)):
        end = ends[index]
        version = -1
        if (
            0 <= start < end - _PREFIX
            and end <= len(data)
            and int32(data, start) == end - start - _PREFIX
        ):
            (
                version,
                correlation_id,
                acks,
                timeout_ms,
                name_at,
                name_end,
                partition,
                at,
                stop,
                id_at,
                _,
            ) = _read(data, start + _PREFIX, end)
        start = end
        if version < 0 or id_at >= 0:
            run_version = -1
            runs.append((-1, 0, 0, b"", 0, [index], [], []))
            continue
        if (
            version != run_version
            or acks != run_acks
            or timeout_ms != run_timeout_ms
            or partition != run_partition
            or not _are_equal(data, name_at, name_end, run_name_at, run_name_end)
        ):
            run_version, run_acks, run_timeout_ms = version, acks, timeout_ms
            run_partition, run_name_at, run_name_end = partition, name_at, name_end
            indexes, ids, spans = [], [], []
            name = bytes(data[name_at:name_end])
            runs.append((version, acks, timeout_ms, name, partition, indexes, ids, spans))
        indexes.append(index)
        ids.append(correlation_id)
        spans.append(at)
        spans.append(stop)
    return runs


def repeat_answer(
    answer: bytes, correlation_ids: list, base_offsets: list, offset_at: cython.Py_ssize_t
) -> bytearray:
    """The same answer for several requests, one behind the other, each with its own two numbers.

    The base offset is at `offset_at`. Raises IndexError if that lies outside.
    """
    size: cython.Py_ssize_t = len(answer)
    count: cython.Py_ssize_t = len(correlation_ids)
    at: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    number: cython.longlong
    if (
        size < _CORRELATION_ID_AT + 4
        or offset_at < 0
        or offset_at > size - _OFFSET_SIZE
        or len(base_offsets) != count
    ):
        raise IndexError("a number outside the answer")
    frames: bytearray = bytearray(answer * count)
    if not count:
        return frames
    out: cython.uchar[::1] = frames
    for index in range(count):
        number = correlation_ids[index]
        put_int32(out, at + _CORRELATION_ID_AT, number)
        number = base_offsets[index]
        put_int64(out, at + offset_at, number)
        at += size
    return frames


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _are_equal(
    data: cython.const[cython.uchar][::1],
    first: cython.Py_ssize_t,
    first_end: cython.Py_ssize_t,
    second: cython.Py_ssize_t,
    second_end: cython.Py_ssize_t,
) -> cython.bint:
    if first_end - first != second_end - second:
        return False
    while first < first_end:
        if data[first] != data[second]:
            return False
        first += 1
        second += 1
    return True

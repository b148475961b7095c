# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Python objects into the bytes of records: survey them, choose partitions by key, encode.

See `batch_scan.py` for the rules of kernels.
"""

from __future__ import annotations

import operator
from array import array

from cordwood.primitives import CRC32C_TABLE

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.format.python_api import PyByteArray_FromStringAndSize  # type: ignore
    from cython.cimports.cordwood.format.small_checksums import small_crc32c, small_size_max  # type: ignore
    from cython.cimports.cordwood.primitives import (  # type: ignore
        murmur2_of,
        put_int32,
        put_int64,
        put_varint,
        varint_size,
        zigzag,
    )
    from cython.cimports.libc.string import memcpy  # type: ignore

    _CRC_WORDS = cython.declare(cython.const[cython.uint][::1], CRC32C_TABLE)
else:
    from cordwood.format.small_checksums import small_crc32c, small_size_max
    from cordwood.primitives import (
        murmur2_of,
        put_int32,
        put_int64,
        put_varint,
        varint_size,
        zigzag,
    )

    _CRC_WORDS = CRC32C_TABLE

COMPILED = cython.compiled

_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
# Up to this size, calling the package for the checksum costs more.
_SMALL_BATCH = cython.declare(cython.Py_ssize_t, small_size_max(2048))

_RECORDS_IN_A_ROW = cython.declare(cython.Py_ssize_t, 4096)  # one millisecond

_INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)


@cython.cfunc
@cython.inline
def _put_bytes(
    out: cython.uchar[::1], at: cython.Py_ssize_t, source: bytes, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    if size > 0:
        if cython.compiled:
            memcpy(
                cython.address(out[at]),
                cython.cast(cython.p_char, source),
                cython.cast(cython.size_t, size),
            )
        else:
            out[at : at + size] = source
    return at + size


@cython.cfunc
def _as_bytes(value: object, what: str) -> object:
    """`value` as bytes or None; text is refused, because guessing its encoding loses data."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{what} must be bytes or None, not {type(value).__name__}")


@cython.cfunc
def _check_word(value: object) -> object:
    """Refuse a number that is not a 64-bit integer, as compiled code does by itself."""
    if not -_INT64_MAX - 1 <= operator.index(value) <= _INT64_MAX:
        raise OverflowError(f"{value} does not fit 64 bits")
    return value


@cython.cfunc
def _encode_headers(headers: object) -> bytes:
    """The header count and the headers, encoded as at the end of a record."""
    out = bytearray()
    count = 0
    for name, value in headers:
        if isinstance(name, str):
            name = name.encode("utf-8")
        elif not isinstance(name, bytes):
            raise TypeError(f"header name must be text, not {type(name).__name__}")
        value = _as_bytes(value, "header value")
        _extend_varint(out, len(name))
        out += name
        if value is None:
            _extend_varint(out, -1)
        else:
            _extend_varint(out, len(value))
            out += value
        count += 1
    front = bytearray()
    _extend_varint(front, count)
    return bytes(front + out)


@cython.cfunc
def _extend_varint(out: bytearray, value: cython.longlong) -> None:
    raw: cython.ulonglong = zigzag(value)
    while raw >= 0x80:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


@cython.cfunc
@cython.inline
def _body_size(
    key_size: cython.Py_ssize_t,
    value_size: cython.Py_ssize_t,
    headers_size: cython.Py_ssize_t,
    time_delta: cython.longlong,
    offset_delta: cython.longlong,
) -> cython.Py_ssize_t:
    """Bytes of a record after its length. A size of -1 is a null."""
    size: cython.Py_ssize_t = 1 + varint_size(time_delta) + varint_size(offset_delta)
    size += varint_size(key_size) + varint_size(value_size) + headers_size
    if key_size > 0:
        size += key_size
    if value_size > 0:
        size += value_size
    return size


@cython.cfunc
@cython.inline
def _put_record(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    key: object,
    key_size: cython.Py_ssize_t,
    value: object,
    value_size: cython.Py_ssize_t,
    encoded_headers: bytes,
    time_delta: cython.longlong,
    offset_delta: cython.longlong,
) -> cython.Py_ssize_t:
    """Write a record of `_body_size` `size`; return the position after it. There is room for it."""
    at = put_varint(out, at, size)
    out[at] = 0
    at = put_varint(out, at + 1, time_delta)
    at = put_varint(out, at, offset_delta)
    at = put_varint(out, at, key_size)
    if key_size > 0:
        at = _put_bytes(out, at, cython.cast(bytes, key), key_size)
    at = put_varint(out, at, value_size)
    if value_size > 0:
        at = _put_bytes(out, at, cython.cast(bytes, value), value_size)
    return _put_bytes(out, at, encoded_headers, len(encoded_headers))


@cython.cfunc
@cython.inline
def _new_buffer(size: cython.Py_ssize_t) -> bytearray:
    """Bytes that are all written next; only the compiled form leaves them as they are."""
    if cython.compiled:
        return PyByteArray_FromStringAndSize(cython.NULL, size)
    else:
        return bytearray(size)


def encode_sole(
    value: object,
    key: object,
    headers: object,
    timestamp: cython.longlong,
    max_timestamp: cython.longlong,
    attributes: cython.longlong,
    size_max: cython.longlong,
    hardware_crc: object,
) -> object:
    """A whole batch of one record, with its checksum, base offset 0 and no leader epoch.

    `max_timestamp` is the one in the header. `hardware_crc` is called for a large batch. If the
    batch would have more than `size_max` bytes, the result is its size and nothing is built.
    """
    key_size: cython.Py_ssize_t
    value_size: cython.Py_ssize_t
    size: cython.Py_ssize_t
    total: cython.Py_ssize_t
    crc: cython.longlong
    encoded_headers: bytes = b"\x00"
    if type(key) is not bytes and key is not None:
        key = _as_bytes(key, "key of record 0")
    if type(value) is not bytes and value is not None:
        value = _as_bytes(value, "value of record 0")
    if not cython.compiled:
        _check_word(timestamp)
    if timestamp < -1:
        raise ValueError(f"timestamp of record 0 is {timestamp}, must be -1 or more")
    if headers:
        encoded_headers = _encode_headers(headers)
    key_size = -1 if key is None else len(cython.cast(bytes, key))
    value_size = -1 if value is None else len(cython.cast(bytes, value))
    size = _body_size(key_size, value_size, len(encoded_headers), 0, 0)
    total = _HEADER_SIZE + varint_size(size) + size
    if total > size_max:
        return total
    batch: bytearray = _new_buffer(total)
    out: cython.uchar[::1] = batch
    put_int64(out, 0, 0)
    put_int32(out, 8, total - 12)
    put_int32(out, 12, -1)
    out[16] = 2
    out[21] = cython.cast(cython.uchar, (attributes >> 8) & 0xFF)
    out[22] = cython.cast(cython.uchar, attributes & 0xFF)
    put_int32(out, 23, 0)
    put_int64(out, 27, timestamp)
    put_int64(out, 35, max_timestamp)
    put_int64(out, 43, -1)  # producer id, and from 51 on its epoch and sequence: none
    put_int32(out, 51, -1)
    put_int32(out, 53, -1)
    put_int32(out, 57, 1)
    _put_record(out, _HEADER_SIZE, size, key, key_size, value, value_size, encoded_headers, 0, 0)
    if total <= _SMALL_BATCH:
        crc = small_crc32c(out, 21, total, _CRC_WORDS)
    else:
        crc = hardware_crc(memoryview(batch)[21:])
    put_int32(out, 17, crc)
    return batch


def survey_records(records: list, record_type: type) -> tuple:
    """The timestamps and keys of records, to check before any is written.

    Returns (smallest and largest timestamp, both None if no record has one; index of the first
    record without a key, or -1). Raises TypeError for an item that is not a record.
    """
    index: cython.Py_ssize_t
    keyless: cython.Py_ssize_t = -1
    is_dated: cython.bint = False
    smallest: cython.longlong = 0
    largest: cython.longlong = 0
    timestamp: cython.longlong
    for index in range(len(records)):
        item = records[index]
        if type(item) is record_type:
            if item[1] is None and keyless < 0:
                keyless = index
            if item[3] is not None:
                timestamp = item[3] if type(item[3]) is int else operator.index(item[3])
                if not cython.compiled:
                    _check_word(timestamp)
                if not is_dated or timestamp < smallest:
                    smallest = timestamp
                if not is_dated or timestamp > largest:
                    largest = timestamp
                is_dated = True
        elif isinstance(item, (tuple, list)) and len(item) == 2:
            if item[0] is None and keyless < 0:
                keyless = index
        else:
            raise TypeError(
                f"record {index} must be a Record or a (key, value) pair, not {type(item).__name__}"
            )
    if is_dated:
        return smallest, largest, keyless
    return None, None, keyless


def encode_records(
    records: list,
    first: cython.Py_ssize_t,
    now_ms: cython.longlong,
    record_type: type,
    out: cython.uchar[::1],
    start: cython.Py_ssize_t,
) -> tuple:
    """Encode ``records[first:]`` into `out` from `start` on, as many as fit.

    An item is a `Record` or a (key, value) pair. Returns (index of the first record not encoded,
    position after the last byte, time of the first record, largest time, bytes that the record
    which did not fit needs). If nothing fitted, the index is `first`.
    """
    index: cython.Py_ssize_t = first
    total: cython.Py_ssize_t = len(records)
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = len(out)
    base_timestamp: cython.longlong = -1
    max_timestamp: cython.longlong = -1
    timestamp: cython.longlong
    key_size: cython.Py_ssize_t
    value_size: cython.Py_ssize_t
    size: cython.Py_ssize_t
    needed: cython.Py_ssize_t = 0
    offset_delta: cython.longlong
    key: object
    value: object
    headers: object
    when: object
    encoded_headers: bytes
    if start < 0 or first < 0:
        raise IndexError("range outside the buffer")
    while index < total:
        item = records[index]
        when = None
        headers = None
        if type(item) is record_type:
            value, key, headers, when = item[0], item[1], item[2], item[3]
        elif isinstance(item, (tuple, list)) and len(item) == 2:
            key, value = item[0], item[1]
        else:
            raise TypeError(
                f"record {index} must be a Record or a (key, value) pair, not {type(item).__name__}"
            )
        if type(key) is not bytes and key is not None:
            key = _as_bytes(key, f"key of record {index}")
        if type(value) is not bytes and value is not None:
            value = _as_bytes(value, f"value of record {index}")
        if type(when) is not int and when is not None:
            when = operator.index(when)
        timestamp = now_ms if when is None else when
        if not cython.compiled:
            _check_word(timestamp)
        if index == first:
            base_timestamp = timestamp
        key_size = -1 if key is None else len(cython.cast(bytes, key))
        value_size = -1 if value is None else len(cython.cast(bytes, value))
        offset_delta = index - first
        if timestamp < -1:
            raise ValueError(f"timestamp of record {index} is {timestamp}, must be -1 or more")
        encoded_headers = _encode_headers(headers) if headers else b"\x00"
        size = _body_size(
            key_size, value_size, len(encoded_headers), timestamp - base_timestamp, offset_delta
        )
        needed = size + varint_size(size)
        if needed > end - at:
            break
        needed = 0
        at = _put_record(
            out,
            at,
            size,
            key,
            key_size,
            value,
            value_size,
            encoded_headers,
            timestamp - base_timestamp,
            offset_delta,
        )
        max_timestamp = max(max_timestamp, timestamp)
        index += 1
        if index % _RECORDS_IN_A_ROW == 0:
            with cython.nogil:
                pass  # other threads take their turn; they may have shortened the list
            total = min(total, len(records))
    return index, at, base_timestamp, max_timestamp, needed


def murmur2(data: cython.const[cython.uchar][::1]) -> int:
    """Kafka's hash of a key, as an unsigned 32-bit integer."""
    return murmur2_of(data, 0, len(data))


def split_by_key(
    records: list, record_type: type, partitions: cython.int, keyless: cython.int
) -> tuple:
    """Split records into one list per partition, in order; also return the partition of each.

    The hash of the key decides, as in Java's clients; records without a key go to `keyless`.
    """
    lists: list = [[] for _ in range(partitions)]
    chosen = array("i", bytes(4 * len(records)))
    view: cython.int[::1] = chosen
    index: cython.Py_ssize_t
    partition: cython.int
    for index in range(len(records)):
        item = records[index]
        if type(item) is record_type:
            key = item[1]
        elif isinstance(item, (tuple, list)) and len(item) == 2:
            key = item[0]
        else:
            raise TypeError(
                f"record {index} must be a Record or a (key, value) pair, not {type(item).__name__}"
            )
        if key is None:
            partition = keyless
        else:
            key = _as_bytes(key, f"key of record {index}")
            partition = (murmur2(key) & _INT32_MAX) % partitions
        view[index] = partition
        lists[partition].append(item)
    return lists, chosen

"""Kafka's primitive types, for the messages that are read and written by hand.

Reading takes a buffer and a position and returns the value and the position behind it. A value
that is incomplete or has a negative size is a `FormatError`. A claimed size allocates nothing.
"""

import struct
from functools import lru_cache
from typing import Any, Final, Literal
from uuid import UUID

from cordwood.errors import FormatError, LimitExceededError, TruncatedInputError

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
FLOAT64: Final = struct.Struct(">d")
_UUID_SIZE: Final = 16
_UUIDS_KEPT: Final = 4096
_VARINT_BYTES_MAX: Final = 5
# The most tagged fields of one structure. Kafka defines five at most. They cost a client two bytes
# each and are passed over one by one.
_TAGS_MAX: Final = 100
# The most partitions in one produce or fetch. They are handled in the thread of all records, some
# microseconds each.
PARTS_MAX: Final = 10_000


def read_int16(data: memoryview, position: int) -> tuple[int, int]:
    return _unpack(INT16, data, position)


def read_int32(data: memoryview, position: int) -> tuple[int, int]:
    return _unpack(INT32, data, position)


def read_int64(data: memoryview, position: int) -> tuple[int, int]:
    return _unpack(INT64, data, position)


def read_float64(data: memoryview, position: int) -> tuple[float, int]:
    """Any float, also one that is not a number: the receiver has to check it."""
    return _unpack(FLOAT64, data, position)


def _unpack(kind: struct.Struct, data: memoryview, position: int) -> tuple[Any, int]:
    try:
        return kind.unpack_from(data, position)[0], position + kind.size
    except struct.error:
        raise _too_short("number", kind.size, data, position) from None


def read_fields(
    layout: struct.Struct, data: memoryview, position: int
) -> tuple[tuple[int, ...], int]:
    """Consecutive integers, in one call."""
    try:
        return layout.unpack_from(data, position), position + layout.size
    except struct.error:
        raise _too_short("integers", layout.size, data, position) from None


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes."""
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if position >= len(data):
            raise _too_short("varint", 1, data, position)
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise FormatError("varint longer than five bytes", position=position)


def read_uuid(data: memoryview, position: int) -> tuple[UUID, int]:
    raw, position = read_exactly(data, position, _UUID_SIZE, "uuid")
    return _uuid(bytes(raw)), position


@lru_cache(maxsize=_UUIDS_KEPT)
def _uuid(raw: bytes) -> UUID:
    """Ids of topics and directories come again and again, and making one takes a microsecond."""
    return UUID(bytes=raw)


def read_exactly(data: memoryview, position: int, size: int, what: str) -> tuple[memoryview, int]:
    end = position + size
    if end > len(data):
        raise _too_short(what, size, data, position)
    return data[position:end], end


def read_size(
    data: memoryview, position: int, *, is_flexible: bool, width: Literal[2, 4] = 4
) -> tuple[int, int]:
    """The size of a string, of bytes or of an array; -1 stands for null."""
    if is_flexible:
        size, position = read_varint(data, position)
        return size - 1, position
    size, position = (read_int32 if width == 4 else read_int16)(data, position)
    if size < -1:
        raise FormatError(f"size of {size}", position=position - width)
    return size, position


def read_count(
    data: memoryview, position: int, *, is_flexible: bool, item_bytes_min: int = 1
) -> tuple[int, int]:
    """The size of an array; null counts as empty. Its items must fit the rest of `data`."""
    count, position = read_size(data, position, is_flexible=is_flexible)
    check_items_fit(count, item_bytes_min, data, position)
    return max(count, 0), position


def check_items_fit(count: int, item_bytes_min: int, data: memoryview, position: int) -> None:
    """Refuse an array whose items cannot all follow at `position`."""
    left = len(data) - position
    if count * item_bytes_min > left:
        raise FormatError(f"array of {count} items in {left} bytes", position=position)


def check_part_count(count: int, position: int) -> None:
    """Refuse a produce or fetch with too many partitions."""
    if count > PARTS_MAX:
        raise LimitExceededError(
            "number of partitions", size=count, limit=PARTS_MAX, position=position
        )


def read_tag_count(data: memoryview, position: int) -> tuple[int, int]:
    """How many tagged fields follow."""
    count, position = read_varint(data, position)
    if count > _TAGS_MAX:
        raise LimitExceededError(
            "number of tagged fields", size=count, limit=_TAGS_MAX, position=position
        )
    return count, position


def read_string(data: memoryview, position: int, *, is_flexible: bool) -> tuple[str | None, int]:
    size, position = read_size(data, position, is_flexible=is_flexible, width=2)
    if size < 0:
        return None, position
    raw, end = read_exactly(data, position, size, "string")
    try:
        return str(raw, "utf-8"), end
    except UnicodeDecodeError as error:
        raise FormatError("string is not UTF-8", position=position) from error


def read_name(data: memoryview, position: int, *, is_flexible: bool) -> tuple[str, int]:
    """A string that must not be null."""
    name, end = read_string(data, position, is_flexible=is_flexible)
    if name is None:
        raise FormatError("null where a name is needed", position=position)
    return name, end


def skip_tagged_fields(data: memoryview, position: int) -> int:
    count, position = read_tag_count(data, position)
    for _ in range(count):
        _, position = read_varint(data, position)
        size, position = read_varint(data, position)
        _, position = read_exactly(data, position, size, "tagged field")
    return position


def encode_varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_count(count: int, *, is_flexible: bool) -> bytes:
    return encode_varint(count + 1) if is_flexible else INT32.pack(count)


def encode_string(text: str | None, *, is_flexible: bool) -> bytes:
    if text is None:
        return b"\0" if is_flexible else b"\xff\xff"
    raw = text.encode()
    return (encode_varint(len(raw) + 1) if is_flexible else INT16.pack(len(raw))) + raw


def _too_short(what: str, needed: int, data: memoryview, position: int) -> TruncatedInputError:
    got = max(len(data) - position, 0)
    return TruncatedInputError(what, needed=needed, got=got, position=position)

"""The frame that serializers of a schema registry put before a value.

position  size  field
0         1     magic byte, always 0
1         4     id of the schema, big-endian
5               the value; for Protobuf, the path of the message in its file comes first:
                the number of indexes and the indexes, as zigzag varints; a single 0 means [0]
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from cordwood.spark.decoding.decoded_values import MisfitError

FRAME_SIZE: Final = 5
NOT_FRAMED: Final = "the value does not begin with a schema id (byte 0, then 4 bytes)"
_INDEXES_MAX: Final = 64


def schema_ids(values: "pa.Array[Any]") -> "np.ndarray[Any, Any]":
    """The id of each value; -1 if it has none."""
    count = len(values)
    buffers: Any = values.buffers()
    _, offsets_buffer, data_buffer = buffers
    if not count or data_buffer is None:
        return np.full(count, -1, np.int64)
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + count + 1]
    data = np.frombuffer(data_buffer, np.uint8)
    starts = offsets[:-1].astype(np.int64)
    is_framed = (np.diff(offsets) >= FRAME_SIZE) & np.asarray(values.is_valid())
    at = np.where(is_framed, starts, 0)
    if len(data) < FRAME_SIZE:
        return np.full(count, -1, np.int64)
    at = np.minimum(at, len(data) - FRAME_SIZE)
    ids = np.zeros(count, np.int64)
    for position in range(1, FRAME_SIZE):
        ids = (ids << 8) | data[at + position]
    return np.where(is_framed & (data[at] == 0), ids, -1)


def message_indexes(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The path of a Protobuf message, and the position after it. Raises `MisfitError`."""
    count, at = _varint(value, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        raise MisfitError(f"the value claims a path of {count} messages")
    indexes = []
    for _ in range(count):
        index, at = _varint(value, at)
        indexes.append(index)
    return tuple(indexes), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(value) or shift > 28:
            raise MisfitError("the path of the message is cut, or too long")
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7

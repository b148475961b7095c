"""Control records: their keys, and the values of transaction markers.

Key of every control record:

    position  size  field
    0         2     version     0 is the only one written
    2         2     type        see `ControlType`

Value of ABORT and COMMIT:

    position  size  field
    0         2     version     0 is the only one written
    2         4     coordinator_epoch

Later versions may add fields at the end of both. A reader of a newer version reads the fields it
knows and ignores the rest; an unknown type is `UNKNOWN` and is skipped.
"""

import struct
from enum import IntEnum
from typing import Final

from cordwood.errors import FormatError, TruncatedInputError, UnsupportedFormatError
from cordwood.value_class import dataclass

BytesLike = bytes | bytearray | memoryview

CONTROL_KEY_SIZE: Final = 4
MARKER_VALUE_SIZE: Final = 6

_VERSION: Final = 0
_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")
assert _KEY.size == CONTROL_KEY_SIZE
assert _MARKER_VALUE.size == MARKER_VALUE_SIZE


class ControlType(IntEnum):
    """The type of a control record. `UNKNOWN` is any type added after these."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_TYPES: Final = {int(kind): kind for kind in ControlType if kind is not ControlType.UNKNOWN}
_MARKER_TYPES: Final = (ControlType.ABORT, ControlType.COMMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlKey:
    """The key of a control record; `version` is the one found, even if it is newer than ours."""

    version: int
    type: ControlType


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionMarker:
    """The end of one producer's transaction in one partition. `type` is ABORT or COMMIT."""

    type: ControlType
    coordinator_epoch: int

    def __post_init__(self) -> None:
        assert self.type in _MARKER_TYPES, self


def decode_control_key(key: BytesLike) -> ControlKey:
    """Read the key of a record in a control batch."""
    if len(key) < CONTROL_KEY_SIZE:
        raise TruncatedInputError("control record key", needed=CONTROL_KEY_SIZE, got=len(key))
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise UnsupportedFormatError("control record key version", version)
    return ControlKey(version=version, type=_TYPES.get(type_id, ControlType.UNKNOWN))


def control_type_of(key: BytesLike) -> ControlType:
    """The type of a control record; UNKNOWN if its key cannot be read."""
    try:
        return decode_control_key(key).type
    except FormatError:
        return ControlType.UNKNOWN


def encode_control_key(control_type: ControlType) -> bytes:
    """The key of a control record of this type, which must be a known one."""
    assert control_type is not ControlType.UNKNOWN, control_type
    return _KEY.pack(_VERSION, control_type)


def decode_marker(key: BytesLike, value: BytesLike) -> EndTransactionMarker:
    """Read a transaction marker; a control record of any other type is a FormatError."""
    control_key = decode_control_key(key)
    if control_key.type not in _MARKER_TYPES:
        raise FormatError(f"{control_key.type.name} is not a transaction marker", position=2)
    if len(value) < MARKER_VALUE_SIZE:
        raise TruncatedInputError(
            "transaction marker value", needed=MARKER_VALUE_SIZE, got=len(value)
        )
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    if version < 0:
        raise UnsupportedFormatError("transaction marker version", version)
    return EndTransactionMarker(type=control_key.type, coordinator_epoch=coordinator_epoch)


def encode_marker(marker: EndTransactionMarker) -> tuple[bytes, bytes]:
    """The key and the value of the record that ends a transaction."""
    return encode_control_key(marker.type), _MARKER_VALUE.pack(_VERSION, marker.coordinator_epoch)

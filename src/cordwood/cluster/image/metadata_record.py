"""Records of the metadata log as values.

    frame version   varint   always 1
    type            varint   see `RecordType`
    version         varint   of the type
    fields          ...      see `record_schemas`, always flexible

A reader that does not know a type or a version cannot know what the cluster is, so it must not go
on: both are an `UnsupportedFormatError`.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from cordwood.cluster.image.record_schemas import RECORD_SCHEMAS, RecordType
from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.protocol.message_codec import Fields, StructPlan
from cordwood.protocol.message_schema import structure_schema
from cordwood.protocol.wire_values import encode_varint, read_varint

FRAME_VERSION: Final = 1


class MetadataRecord(NamedTuple):
    """One record. `fields` has the fields of all versions of its type."""

    type: RecordType
    version: int
    fields: Fields


def decode_record(value: bytes | memoryview | None) -> MetadataRecord:
    """Raises `FormatError`; `UnsupportedFormatError` if a newer Kafka wrote the record."""
    if value is None:
        raise FormatError("a metadata record has no value")
    view = memoryview(value)
    if len(view) >= 3 and view[0] == FRAME_VERSION and view[1] < 0x80 and view[2] < 0x80:
        number, version, at = view[1], view[2], 3
    else:
        frame, at = read_varint(view, 0)
        number, at = read_varint(view, at)
        version, at = read_varint(view, at)
        if frame != FRAME_VERSION:
            raise UnsupportedFormatError("frame version of a metadata record", frame)
    kind, plan = _plan(number, version)
    return MetadataRecord(kind, version, plan.decode(view[at:]))


def encode_record(kind: RecordType, version: int, fields: Mapping[str, Any]) -> bytes:
    """The value of a record, as a controller writes it."""
    out = bytearray()
    out += encode_varint(FRAME_VERSION) + encode_varint(kind) + encode_varint(version)
    _plan(kind, version)[1].write(out, fields)
    return bytes(out)


@cache
def _plan(number: int, version: int) -> tuple[RecordType, StructPlan]:
    try:
        kind = RecordType(number)
    except ValueError:
        raise UnsupportedFormatError(
            "type of metadata record",
            f"{number}; the controllers are newer than this broker, so upgrade the broker first",
        ) from None
    versions, fields = structure_schema(RECORD_SCHEMAS[kind])
    if version not in versions:
        raise UnsupportedFormatError(
            f"version of the metadata record {kind.name}",
            f"{version}; known are {versions.start} to {versions.stop - 1}. The metadata.version "
            "of the cluster is newer than this broker knows, so upgrade the broker first",
        )
    return kind, StructPlan(fields, version, is_flexible=True)

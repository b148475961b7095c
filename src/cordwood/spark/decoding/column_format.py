"""How the bytes of one column are decoded, as a value: for the settings of a table, and for tasks.

Holding a `ColumnFormat` means that it can be opened. A table keeps it, so that a later run decodes
as the one before, whatever it is told.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pyarrow as pa

from cordwood.errors import ConfigError, FormatError
from cordwood.spark.decoding.decoded_values import DecodedValues, Decoder, no_reasons
from cordwood.spark.decoding.schema_registry import RegisteredSchema
from cordwood.spark.decoding.time_limits import TimeLimits, has_times
from cordwood.spark.decoding.type_casting import optional
from cordwood.spark.decoding.type_text import parse_schema, render_schema
from cordwood.value_class import dataclass, field, replace


class Encoding(StrEnum):
    """How a column is written in the log."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFormat:
    """A column's encoding and type.

    schema      the type of the column, as `type_text` renders it; None until it is known
    writer      the one schema of all values: Avro's JSON, or Protobuf's descriptors in base64
    message     the full name of the Protobuf message; None for the only one
    is_framed   each value begins with the id of its schema
    writers     schemas by id
    unknown     ids that the registry does not know; a table keeps them, so that a repeated run
                comes to the same result
    """

    encoding: Encoding = Encoding.BYTES
    schema: str | None = None
    writer: str | None = None
    message: str | None = None
    is_framed: bool = False
    writers: Mapping[int, RegisteredSchema] = field(default_factory=dict)
    unknown: frozenset[int] = field(default_factory=frozenset)

    @property
    def type(self) -> pa.DataType:
        """The type of the column in tables. Raises `ConfigError` if it is not known yet."""
        match self.encoding:
            case Encoding.BYTES:
                return pa.binary()
            case Encoding.TEXT:
                return pa.string()
            case _:
                if self.schema is None:
                    rule = f"no schema in {self.encoding} is known; does the registry have it?"
                    raise ConfigError("value schema", "", rule)
                return optional(parse_schema(self.schema))

    @property
    def is_typed(self) -> bool:
        return self.encoding is not Encoding.BYTES

    def with_type(self, kind: pa.DataType) -> "ColumnFormat":
        return replace(self, schema=render_schema(kind))

    def open(self, *, looks_for_more: bool = False) -> Decoder:
        """The decoder."""
        match self.encoding:
            case Encoding.BYTES:
                return _Bytes()
            case Encoding.TEXT:
                return _Text()
            case Encoding.JSON:
                decoder = self._open_json(looks_for_more)
            case _:
                decoder = self._open_framed() if self.is_framed else self._open_single()
        return TimeLimits(decoder) if has_times(decoder.type) else decoder

    def _open_json(self, looks_for_more: bool) -> Decoder:
        from cordwood.spark.decoding.framed_decoder import FramedJsonDecoder
        from cordwood.spark.decoding.json_decoder import JsonDecoder

        assert self.schema is not None, "a JSON column has a schema before it is decoded"
        decoder = JsonDecoder(parse_schema(self.schema), looks_for_more=looks_for_more)
        return FramedJsonDecoder(decoder) if self.is_framed else decoder

    def _open_single(self) -> Decoder:
        from cordwood.spark.decoding.framed_decoder import (
            AvroReader,
            ProtobufReader,
            Reader,
            SingleDecoder,
        )

        assert self.writer is not None, "a column without a registry has one schema"
        reader: Reader
        if self.encoding is Encoding.AVRO:
            reader = AvroReader(self.writer, (), self.type, at=0)
        else:
            reader = ProtobufReader(self.writer, self.message, self.type, is_framed=False)
        return SingleDecoder(reader, self.type)

    def _open_framed(self) -> Decoder:
        from cordwood.spark.decoding.framed_decoder import (
            AvroReader,
            ProtobufReader,
            Reader,
            RegistryDecoder,
            UnreadableReader,
        )
        from cordwood.spark.decoding.wire_format import FRAME_SIZE

        # Without a schema there is no type yet, and every id is missing.
        kind = pa.struct([pa.field("_empty", pa.bool_())]) if self.schema is None else self.type
        readers: dict[int, Reader] = {}
        for number, found in self.writers.items():
            try:
                if self.encoding is Encoding.AVRO:
                    readers[number] = AvroReader(found.text, found.references, kind, at=FRAME_SIZE)
                else:
                    readers[number] = ProtobufReader(found.text, self.message, kind, is_framed=True)
            except ConfigError as error:
                readers[number] = UnreadableReader(error)
        return RegistryDecoder(readers, kind, unknown=self.unknown)

    # --- as text ---------------------------------------------------------------------------------

    def settings(self, name: str) -> dict[str, str]:
        """What a table keeps of it: of a registry's schemas only the ids."""
        if self.encoding is Encoding.BYTES:
            return {}
        kept: dict[str, Any] = {
            f"{name}_format": self.encoding.value,
            f"{name}_schema": self.schema,
            f"{name}_writer": self.writer,
            f"{name}_message": self.message,
            f"{name}_framed": "true" if self.is_framed else None,
            f"{name}_ids": json.dumps(sorted(self.writers)) if self.is_framed else None,
            f"{name}_unknown_ids": json.dumps(sorted(self.unknown)) if self.unknown else None,
        }
        return {key: value for key, value in kept.items() if value is not None}

    @classmethod
    def from_settings(cls, name: str, settings: Mapping[str, str]) -> "ColumnFormat":
        """The format that a table keeps; `known_ids` are to be fetched again."""
        schema = settings.get(f"{name}_schema")
        default = Encoding.BYTES if schema is None else Encoding.JSON  # of tables made before 0.9
        try:
            return cls(
                encoding=Encoding(settings.get(f"{name}_format", default)),
                schema=schema,
                writer=settings.get(f"{name}_writer"),
                message=settings.get(f"{name}_message"),
                is_framed=settings.get(f"{name}_framed") == "true",
                unknown=frozenset(json.loads(settings.get(f"{name}_unknown_ids", "[]"))),
            )
        except (ValueError, TypeError) as error:
            raise FormatError(
                f"the settings stored in the table cannot be read: {error}"
            ) from error


def known_ids(name: str, settings: Mapping[str, str]) -> list[int]:
    """The ids of a registry's schemas that a table has met."""
    try:
        return [int(number) for number in json.loads(settings.get(f"{name}_ids", "[]"))]
    except (ValueError, TypeError) as error:
        raise FormatError(f"the ids stored in the table cannot be read: {error}") from error


class _Bytes:
    type: pa.DataType = pa.binary()

    def decode(self, values: "pa.Array[Any]") -> DecodedValues:
        return DecodedValues(values=values, reasons=no_reasons(len(values)))


class _Text:
    """UTF-8."""

    type: pa.DataType = pa.string()

    def decode(self, values: "pa.Array[Any]") -> DecodedValues:
        try:
            return DecodedValues(values=values.cast(pa.string()), reasons=no_reasons(len(values)))
        except pa.ArrowInvalid:
            texts: list[str | None] = []
            reasons: list[str | None] = []
            for value in values.to_pylist():
                try:
                    texts.append(None if value is None else value.decode())
                    reasons.append(None)
                except UnicodeDecodeError:
                    texts.append(None)
                    reasons.append("it is not UTF-8")
            return DecodedValues(
                values=pa.array(texts, pa.string()), reasons=pa.array(reasons, pa.string())
            )

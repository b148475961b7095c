"""Protobuf messages as a struct column, field by field; the parser is protobuf's own."""

from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from cordwood.spark.decoding.decoded_values import MisfitError
from cordwood.spark.decoding.protobuf_schemas import (
    AS_JSON,
    DURATION_NAME,
    TIMESTAMP_NAME,
    WRAPPERS,
    is_map,
    is_repeated,
    message_type,
)
from cordwood.spark.decoding.type_casting import conformed
from cordwood.spark.decoding.type_text import fields_of


class ProtobufMessages:
    """Reads messages of one type. For one thread."""

    def __init__(self, descriptor: Any) -> None:
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        self.type: Any = message_type(descriptor)
        self._descriptor = descriptor
        self._class: Any = GetMessageClass(descriptor)
        self._failure: type[Exception] = DecodeError

    def message(self, value: bytes, at: int) -> Any:
        """The message that a value holds from position `at` on. Raises `MisfitError`."""
        try:
            return self._class.FromString(value[at:])
        except self._failure as error:
            raise MisfitError(f"the value is not a {self._descriptor.full_name}") from error

    def column(self, messages: Sequence[Any], kind: pa.DataType) -> "pa.Array[Any]":
        """Messages as `kind`. Raises `MisfitError`."""
        try:
            return conformed(_message_column(messages, self._descriptor, self.type), kind)
        except self._failure as error:
            raise MisfitError("the value does not fit: an Any holds a damaged message") from error
        except (pa.ArrowException, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise MisfitError(f"the value does not fit: {error}") from error


def _message_column(messages: Sequence[Any], descriptor: Any, kind: Any) -> "pa.Array[Any]":
    """A struct for each message; null for None."""
    fields = {field.name: field for field in descriptor.fields}
    columns = [
        _field_column(messages, fields[each.name], each.type)
        if each.name in fields
        else pa.nulls(len(messages), each.type)
        for each in fields_of(kind)
    ]
    mask = pa.array([message is None for message in messages], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=fields_of(kind), mask=mask)


def _field_column(messages: Sequence[Any], field: Any, kind: Any) -> Any:
    name = field.name
    if is_map(field):
        maps = [None if m is None else getattr(m, name) for m in messages]
        entry = field.message_type.fields_by_name
        # A map of messages is asked by key: what a loop over its items returns may be moved.
        keys = _scalar_column(list(chain(*(m or () for m in maps))), entry["key"], kind.key_type)
        found = [m[key] for m in maps if m is not None for key in m]
        items = _one_column(found, entry["value"], kind.item_type)
        pairs = pa.StructArray.from_arrays([keys, items], fields=fields_of(kind.field(0).type))
        return _of_lengths([None if m is None else len(m) for m in maps], kind, pairs)
    if is_repeated(field):
        lists = [None if m is None else getattr(m, name) for m in messages]
        items = _one_column(list(chain(*(m or () for m in lists))), field, kind.value_type)
        return _of_lengths([None if m is None else len(m) for m in lists], kind, items)
    if field.has_presence:
        found = [getattr(m, name) if m is not None and m.HasField(name) else None for m in messages]
    else:
        found = [None if m is None else getattr(m, name) for m in messages]
    return _one_column(found, field, kind)


def _of_lengths(lengths: list[int | None], kind: Any, values: Any) -> "pa.Array[Any]":
    offsets = pa.array([0, *accumulate(length or 0 for length in lengths)], pa.int32())
    valid = pa.array([length is not None for length in lengths], pa.bool_())
    buffers = [valid.buffers()[1], offsets.buffers()[1]]
    return pa.Array.from_buffers(kind, len(lengths), buffers, children=[values])


def _one_column(found: list[Any], field: Any, kind: Any) -> Any:
    if field.message_type is None:
        return _scalar_column(found, field, kind)
    name = field.message_type.full_name
    if name in {TIMESTAMP_NAME, DURATION_NAME}:
        micros = [None if m is None else m.seconds * 1_000_000 + m.nanos // 1000 for m in found]
        return pa.array(micros, pa.int64()).cast(kind)
    if name in WRAPPERS:
        values = [None if m is None else m.value for m in found]
        return _scalar_column(values, field.message_type.fields_by_name["value"], kind)
    if name in AS_JSON:
        from google.protobuf.json_format import MessageToJson

        pool = field.containing_type.file.pool  # an Any holds a message of the same schema
        texts = [
            None if m is None else MessageToJson(m, indent=None, descriptor_pool=pool)
            for m in found
        ]
        return pa.array(texts, pa.string())
    return _message_column(found, field.message_type, kind)


def _scalar_column(found: list[Any], field: Any, kind: Any) -> Any:
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        texts = [None if n is None else names.get(n, str(n)) for n in found]
        return pa.array(texts, pa.string())
    if pa.types.is_decimal(kind):
        return pa.array([None if n is None else Decimal(n) for n in found], kind)
    return pa.array(found, kind)

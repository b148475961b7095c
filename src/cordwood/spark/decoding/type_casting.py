"""Columns of one type as another: fields by their names, missing ones null, the rest left out."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cordwood.spark.decoding.type_text import fields_of, list_of, struct_of


def optional(kind: Any) -> pa.DataType:
    """The type with every field nullable: what is required is checked, and not told to tables."""
    if pa.types.is_struct(kind):
        return struct_of([pa.field(f.name, optional(f.type)) for f in fields_of(kind)])
    if pa.types.is_list(kind):
        return list_of(optional(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, optional(kind.item_type))
    return kind  # type: ignore[no-any-return]


def conformed(array: Any, kind: Any) -> "pa.Array[Any]":
    """The array as `kind`. Raises `pa.ArrowInvalid` if a value does not fit."""
    if array.type == kind:
        return array  # type: ignore[no-any-return]
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        columns = []
        for field in fields_of(kind):
            number = array.type.get_field_index(field.name)
            if number < 0:
                columns.append(pa.nulls(len(array), field.type))
            else:
                columns.append(conformed(array.field(number), field.type))
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(columns, fields=fields_of(kind), mask=mask)
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        return with_values(array, kind, conformed(array.values, kind.value_type))
    if pa.types.is_map(kind) and (pa.types.is_map(array.type) or pa.types.is_list(array.type)):
        entries = array.values
        keys = conformed(entries.field(0), kind.key_type)
        items = conformed(entries.field(1), kind.item_type)
        pairs = pa.StructArray.from_arrays([keys, items], fields=fields_of(kind.field(0).type))
        return with_values(array, kind, pairs)
    if pa.types.is_timestamp(kind) and array.type in (
        pa.timestamp("ns"),
        pa.timestamp("ns", "UTC"),
    ):
        array = pc.floor_temporal(array, unit="microsecond")  # finer than any table's times
    return array.cast(kind)  # type: ignore[no-any-return]


def with_values(array: Any, kind: pa.DataType, values: "pa.Array[Any]") -> "pa.Array[Any]":
    """A list or map with the lengths of `array`, and other values."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(array), [validity, offsets], offset=array.offset, children=[values]
    )

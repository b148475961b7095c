"""The type of JSON values, from the values.

Numbers without a fraction are BIGINT, others DOUBLE; texts are STRING, also those that look like
times. If a field has values of different kinds, it is STRING, which takes any JSON.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from cordwood.spark.decoding.type_merging import merge_types
from cordwood.spark.decoding.type_text import fields_of, list_of, struct_of

_DEPTH_MAX: Final = 32
_NOTHING: Final = struct_of([])
_INT64: Final = range(-(2**63), 2**63)


def infer_type(values: Iterable[bytes | None]) -> pa.StructType:
    """The type of the objects among the values; without fields if there are none."""
    found: Any = _NOTHING
    for value in values:
        try:
            content = None if value is None else json.loads(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(content, dict):
            found = join_types(found, type_of(content))
    return known_fields(found)


def known_fields(kind: pa.DataType) -> pa.StructType:
    """The fields that a table can have: those whose type is known and whose name is accepted."""
    return merge_types(_NOTHING, kind).type  # type: ignore[return-value]


def type_of(content: Any, depth: int = 0) -> pa.DataType:
    """The type of one value of JSON."""
    match content:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if content in _INT64 else pa.string()
        case float():
            return pa.float64()
        case list() if depth < _DEPTH_MAX:
            item: Any = pa.null()
            for each in content:
                item = join_types(item, type_of(each, depth + 1))
            return list_of(item)
        case dict() if depth < _DEPTH_MAX:
            return struct_of(
                [pa.field(name, type_of(each, depth + 1)) for name, each in content.items()]
            )
        case _:
            return pa.string()


def join_types(one: Any, other: Any) -> pa.DataType:
    """A type that holds both."""
    if one == other or pa.types.is_null(other):
        return one  # type: ignore[no-any-return]
    if pa.types.is_null(one):
        return other  # type: ignore[no-any-return]
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {child.name: child.type for child in fields_of(one)}
        for child in fields_of(other):
            fields[child.name] = join_types(fields.get(child.name, pa.null()), child.type)
        return struct_of([pa.field(name, kind) for name, kind in fields.items()])
    if pa.types.is_list(one) and pa.types.is_list(other):
        return list_of(join_types(one.value_type, other.value_type))
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return pa.string()

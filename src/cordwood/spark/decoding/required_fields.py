"""Fields that a schema requires and a value lacks."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cordwood.spark.decoding.type_text import fields_of


def missing_fields(values: Any, kind: Any) -> "pa.Array[Any] | None":
    """For each value the first required field that is null, as a reason; None if none can be.

    Fields of objects in lists are not looked at.
    """
    reasons: Any = None
    for mask, path in _faults(values, kind, ""):
        if not pc.any(mask).as_py():
            continue
        told = pa.scalar(f"{path} is missing or null, and is required")
        found = pc.if_else(mask, told, pa.scalar(None, pa.string()))
        reasons = found if reasons is None else pc.coalesce(reasons, found)
    return reasons  # type: ignore[no-any-return]


def _faults(values: Any, kind: Any, path: str) -> "list[tuple[Any, str]]":
    found: list[tuple[Any, str]] = []
    for number, child in enumerate(fields_of(kind)):
        name = f"{path}.{child.name}" if path else child.name
        if child.nullable and not pa.types.is_struct(child.type):
            continue
        column = pc.struct_field(values, [number])
        if not child.nullable:
            found.append((pc.and_(values.is_valid(), column.is_null()), name))
        if pa.types.is_struct(child.type):
            found += _faults(column, child.type, name)
    return found

"""Debezium's envelope: a change of a row in a database, as Kafka Connect writes it.

    {"before": row, "after": row, "op": "c", "ts_ms": …, "source": {…}}

JSON may have it inside `payload`, beside `schema`. `op` is c (created), u (updated), d (deleted),
r (read in a snapshot). t (the table was emptied) and m (a message) are no changes of a row and do
not fit. A tombstone, which follows a deletion, is null as everywhere.
"""

import functools
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cordwood.spark.decoding.json_inference import join_types
from cordwood.spark.decoding.time_limits import DAYS, OUTSIDE
from cordwood.spark.decoding.type_casting import conformed
from cordwood.spark.decoding.type_text import TIMESTAMP, fields_of, struct_of
from cordwood.value_class import dataclass

OPERATIONS: Final = ("c", "u", "d", "r")
NOT_ENVELOPE: Final = "the value is not a change in Debezium's envelope: it has no op"
_PAYLOAD: Final = "payload"
_MILLIS: Final = (DAYS[0] * 86_400_000, (DAYS[1] + 1) * 86_400_000 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedEnvelopes:
    """The parts of a column of envelopes; null where the value is null."""

    op: Any
    before: Any
    after: Any
    changed_at: Any
    reasons: Any


def envelope_type(row: pa.DataType) -> pa.DataType:
    """What JSON values are decoded as, for rows of that type."""
    change = [
        pa.field("before", row),
        pa.field("after", row),
        pa.field("op", pa.string()),
        pa.field("ts_ms", pa.int64()),
    ]
    return struct_of([*change, pa.field(_PAYLOAD, struct_of(change))])


def row_type(envelope: Any) -> pa.DataType | None:
    """The type of the rows in envelopes of a type; None if they are no envelopes.

    It has the fields of all rows: those before and after the change, with and without `payload`.
    """
    kinds = {field.name: field.type for field in fields_of(envelope)}
    structs = {name: kind for name, kind in kinds.items() if pa.types.is_struct(kind)}
    rows: list[pa.DataType] = [structs[name] for name in ("after", "before") if name in structs]
    inside = row_type(structs[_PAYLOAD]) if _PAYLOAD in structs else None
    if inside is not None:
        rows.append(inside)
    return functools.reduce(join_types, rows) if rows else None


def open_envelope(values: Any, row: pa.DataType) -> OpenedEnvelopes:
    """The parts of values that were decoded as envelopes, whatever further fields these have."""
    inner = _field(values, _PAYLOAD)
    outer_op = _text(_field(values, "op"), len(values))
    inner_op = _text(_field(inner, "op"), len(values))
    op: Any = pc.coalesce(outer_op, inner_op)
    is_inner = outer_op.is_null()

    def part(name: str, kind: Any) -> Any:
        outside, inside = _field(values, name), _field(inner, name)
        nothing = pa.nulls(len(values), kind)
        first = nothing if outside is None else conformed(outside, kind)
        second = nothing if inside is None else conformed(inside, kind)
        return pc.if_else(is_inner, second, first)

    millis = part("ts_ms", pa.int64())
    low, high = (pa.scalar(limit, pa.int64()) for limit in _MILLIS)
    is_time: Any = pc.and_(pc.greater_equal(millis, low), pc.less_equal(millis, high))
    is_outside = pc.invert(is_time).fill_null(False)
    millis = pc.if_else(is_outside, pa.scalar(None, pa.int64()), millis)
    is_known = pc.is_in(op, value_set=pa.array(OPERATIONS))
    is_wrong: Any = pc.and_(values.is_valid(), pc.invert(is_known))
    told: Any = pc.if_else(
        op.is_null(),
        pa.scalar(NOT_ENVELOPE),
        pc.binary_join_element_wise("the op", op, "is not a change of one row", " "),
    )
    reasons: Any = pc.if_else(is_wrong, told, pa.scalar(None, pa.string()))
    late = pc.if_else(is_outside, pa.scalar(f"ts_ms {OUTSIDE}"), pa.scalar(None, pa.string()))
    return OpenedEnvelopes(
        op=op,
        before=part("before", row),
        after=part("after", row),
        changed_at=millis.cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP, safe=False),
        reasons=pc.coalesce(reasons, late),
    )


def _field(values: Any, name: str) -> Any:
    """A field of a struct column; None if there is none."""
    if values is None or not pa.types.is_struct(values.type):
        return None
    number = values.type.get_field_index(name)
    return None if number < 0 else pc.struct_field(values, [number])


def _text(column: Any, count: int) -> Any:
    if column is None:
        return pa.nulls(count, pa.string())
    return column.cast(pa.string())

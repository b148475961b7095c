"""Which records of an Arrow batch match a search. Work is per batch, not per record.

Only conditions on fields of JSON look at single records, and only at those that contain the name of
the field.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cordwood.console.decoding.decoded import UndecodableError
from cordwood.console.decoding.value_decoders import parse_json
from cordwood.console.finding.query_tree import (
    ANY,
    HEADER,
    KEY,
    OFFSET,
    PARTITION,
    TIME,
    VALUE,
    And,
    Not,
    Or,
    PathMatch,
    Query,
    RangeMatch,
    TextMatch,
)
from cordwood.format.record import Record

Mask = Any  # a boolean array of Arrow without nulls
_SIZE_TYPE: Final = pa.int64()
_PLAIN_NUMBER_MAX: Final = 10_000_000  # Java writes larger ones with an exponent
_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_-]+")


def columns_of(query: Query) -> tuple[str, ...]:
    """The columns that a search needs; always the offset."""
    wanted = {"offset", *_needed(query)}
    return tuple(
        name for name in ("offset", "timestamp", "key", "value", "headers") if name in wanted
    )


def _needed(query: Query) -> set[str]:
    match query:
        case And(items=items) | Or(items=items):
            return {name for item in items for name in _needed(item)}
        case Not(item=item):
            return _needed(item)
        case PathMatch():
            return {"value"}
        case RangeMatch(field=field):
            return {TIME: {"timestamp"}, "size": {"key", "value"}}.get(field, set())
        case TextMatch(field=field):
            return {ANY: {"key", "value"}, KEY: {"key"}, VALUE: {"value"}}.get(field, {"headers"})


def matching(query: Query, batch: pa.RecordBatch, partition: int) -> list[int]:
    """The rows of the batch that match."""
    return _rows(_mask(query, batch, partition))


def _rows(mask: Mask) -> list[int]:
    found: list[int] = pc.indices_nonzero(mask).to_numpy().tolist()
    return found


def _mask(query: Query, batch: pa.RecordBatch, partition: int) -> Mask:
    match query:
        case And(items=items):
            found = _mask(items[0], batch, partition)
            for item in items[1:]:
                if not pc.any(found).as_py():
                    return found
                found = pc.and_(found, _mask(item, batch, partition))
            return found
        case Or(items=items):
            found = _mask(items[0], batch, partition)
            for item in items[1:]:
                found = pc.or_(found, _mask(item, batch, partition))
            return found
        case Not(item=item):
            return pc.invert(_mask(item, batch, partition))
        case RangeMatch():
            return _in_range(query, batch, partition)
        case PathMatch():
            return _at_path(query, batch)
        case TextMatch():
            return _with_text(query, batch)


def _constant(value: bool, count: int) -> Mask:
    return pa.repeat(pa.scalar(value), count)


def _in_range(query: RangeMatch, batch: pa.RecordBatch, partition: int) -> Mask:
    if query.field == PARTITION:
        is_in = (query.low or 0) <= partition and (query.high is None or partition < query.high)
        return _constant(is_in, len(batch))
    if query.field == OFFSET:
        column = batch.column("offset")
    elif query.field == TIME:
        column = batch.column("timestamp").cast(pa.int64())
    else:
        column = pc.add(_sizes(batch.column("key")), _sizes(batch.column("value")))
    mask = _constant(True, len(batch))
    if query.low is not None:
        mask = pc.and_(mask, pc.greater_equal(column, pa.scalar(query.low, _SIZE_TYPE)))
    if query.high is not None:
        mask = pc.and_(mask, pc.less(column, pa.scalar(query.high, _SIZE_TYPE)))
    return pc.fill_null(mask, False)


def _sizes(column: Any) -> Any:
    return pc.fill_null(pc.binary_length(column), 0).cast(_SIZE_TYPE)


def _with_text(query: TextMatch, batch: pa.RecordBatch) -> Mask:
    if query.field == HEADER:
        return _with_header(query, batch.column("headers"), len(batch))
    names = ("key", "value") if query.field == ANY else (query.field,)
    mask = _contains(query, batch.column(names[0]))
    for name in names[1:]:
        mask = pc.or_(mask, _contains(query, batch.column(name)))
    return mask


def _contains(query: TextMatch, column: Any) -> Mask:
    if query.is_regex:
        found = pc.match_substring_regex(column, query.text)
    elif query.is_whole:
        found = pc.equal(column, pa.scalar(query.text.encode(), column.type))
    else:
        found = _with_bytes(column, query.text)
    return pc.fill_null(found, False)


def _with_bytes(column: Any, text: str) -> Any:
    """Which values contain the text. Arrow takes bytes, too, but its types do not say so."""
    return pc.match_substring(column, text.encode())  # type: ignore[call-overload]


def _with_header(query: TextMatch, column: Any, count: int) -> Mask:
    items = pc.list_flatten(column)
    if not len(items):
        return _constant(False, count)
    parents = pc.list_parent_indices(column)
    is_named = pc.equal(pc.struct_field(items, "key"), pa.scalar(query.header, pa.string()))
    is_match = pc.and_(is_named, _contains(query, pc.struct_field(items, "value")))
    rows = pc.unique(parents.filter(is_match))
    numbers = pa.array(range(count), parents.type)
    return pc.is_in(numbers, value_set=rows)


def _at_path(query: PathMatch, batch: pa.RecordBatch) -> Mask:
    values = batch.column("value")
    # The name stands in the text, unless it is written with escapes, which nobody does.
    mask = pc.fill_null(_with_bytes(values, f'"{query.path[-1]}"'), False)
    literal = _literal_in_text(query)
    if literal is not None and pc.any(mask).as_py():
        mask = pc.and_(mask, pc.fill_null(_with_bytes(values, literal), False))
    candidates = _rows(mask)
    rows = [row for row in candidates if _has_at_path(query, values[row].as_py())]
    found = [False] * len(batch)
    for row in rows:
        found[row] = True
    return pa.array(found, pa.bool_())


def _literal_in_text(query: PathMatch) -> str | None:
    """What a value that matches contains, as it is written; None if that cannot be known.

    Encoders write small whole numbers with all their digits, and plain words as they are. Larger
    numbers may have an exponent, other texts may have escapes.
    """
    literal = query.literal
    if query.operator != "=":
        return None
    if isinstance(literal, float) and literal.is_integer() and abs(literal) < _PLAIN_NUMBER_MAX:
        return str(int(literal))
    is_word = isinstance(literal, str) and bool(_PLAIN_WORD.fullmatch(literal))
    return str(literal) if is_word else None


def _has_at_path(query: PathMatch, value: bytes) -> bool:
    try:
        content = parse_json(value)
    except UndecodableError:
        return False
    return any(_compared(found, query) for found in _at(content, query.path))


def _at(content: object, path: Sequence[str]) -> list[object]:
    """The values at a path. Lists are looked into, by number or all of them."""
    found = [content]
    for name in path:
        following: list[object] = []
        for item in found:
            if isinstance(item, dict) and name in item:
                following.append(item[name])
            elif isinstance(item, list) and name.isdigit() and int(name) < len(item):
                following.append(item[int(name)])
            elif isinstance(item, list):
                following += [i[name] for i in item if isinstance(i, dict) and name in i]
        found = following
    return found


def _compared(found: object, query: PathMatch) -> bool:
    literal, operator = query.literal, query.operator
    if operator == "~":
        return isinstance(found, str) and str(_as_text(literal)) in found
    if (
        isinstance(literal, float)
        and isinstance(found, (int, float))
        and not isinstance(found, bool)
    ):
        return _ordered(found, literal, operator)
    if isinstance(found, str):
        return _ordered(found, _as_text(literal), operator)
    if operator == "=":
        return found is literal
    return operator == "!=" and found is not literal


def _as_text(literal: str | float | bool | None) -> str:
    return f"{literal:g}" if isinstance(literal, float) else str(literal)


def _ordered(found: Any, literal: Any, operator: str) -> bool:
    match operator:
        case "=":
            return bool(found == literal)
        case "!=":
            return bool(found != literal)
        case "<":
            return bool(found < literal)
        case "<=":
            return bool(found <= literal)
        case ">":
            return bool(found > literal)
        case _:
            return bool(found >= literal)


def as_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """Records as a batch of all columns, to match those that masking rules have changed."""
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.RecordBatch.from_arrays(
        [
            pa.array([r.offset for r in records], pa.int64()),
            pa.array([r.timestamp_ms for r in records], pa.int64()).cast(pa.timestamp("ms", "UTC")),
            pa.array([r.key for r in records], pa.binary()),
            pa.array([r.value for r in records], pa.binary()),
            pa.array(
                [[{"key": k, "value": v} for k, v in r.headers] for r in records],
                pa.list_(header),
            ),
        ],
        names=["offset", "timestamp", "key", "value", "headers"],
    )

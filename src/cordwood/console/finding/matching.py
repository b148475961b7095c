"""Which records of an Arrow batch match a search. Work is per batch, not per record."""

from collections.abc import Sequence
from string import ascii_letters, digits
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cordwood.console.finding.json_fields import Rows, rows_at_path
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

_PLAIN_BYTES: Final = (ascii_letters + digits).encode()
_COSTS: Final[dict[type, int]] = {RangeMatch: 0, TextMatch: 1, PathMatch: 3}


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
    every = np.ones(len(batch), np.bool_)
    found: list[int] = np.flatnonzero(_found(query, batch, partition, every)).tolist()
    return found


def _found(query: Query, batch: pa.RecordBatch, partition: int, among: Rows) -> Rows:
    """The rows that match and are `among` the given ones: others need not be looked at."""
    match query:
        case And(items=items):
            for item in sorted(items, key=_cost):
                if not among.any():
                    break
                among = _found(item, batch, partition, among)
            return among
        case Or(items=items):
            found: Rows = np.zeros(len(batch), np.bool_)
            for item in sorted(items, key=_cost):
                left = among & ~found
                if not left.any():
                    break
                found = found | _found(item, batch, partition, left)
            return found
        case Not(item=item):
            return among & ~_found(item, batch, partition, among)
        case RangeMatch():
            return among & _in_range(query, batch, partition)
        case PathMatch():
            return rows_at_path(query, batch.column("value"), among)
        case TextMatch():
            return among & _with_text(query, batch)


def _cost(query: Query) -> int:
    """Cheap conditions come first: they leave fewer rows for the others."""
    match query:
        case And(items=items) | Or(items=items):
            return max(_cost(item) for item in items)
        case Not(item=item):
            return _cost(item)
        case TextMatch(is_regex=True):
            return 2
        case _:
            return _COSTS[type(query)]


def _constant(value: bool, count: int) -> Rows:
    return np.full(count, value, np.bool_)


def _in_range(query: RangeMatch, batch: pa.RecordBatch, partition: int) -> Rows:
    if query.field == PARTITION:
        is_in = (query.low or 0) <= partition and (query.high is None or partition < query.high)
        return _constant(is_in, len(batch))
    if query.field == OFFSET:
        numbers = batch.column("offset").to_numpy()
    elif query.field == TIME:
        numbers = batch.column("timestamp").cast(pa.int64()).to_numpy()
    else:
        numbers = _sizes(batch.column("key")) + _sizes(batch.column("value"))
    found = _constant(True, len(batch))
    if query.low is not None:
        found &= numbers >= query.low
    if query.high is not None:
        found &= numbers < query.high
    return found


def _sizes(column: Any) -> Any:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64()).to_numpy()


def _with_text(query: TextMatch, batch: pa.RecordBatch) -> Rows:
    if query.field == HEADER:
        return _with_header(query, batch.column("headers"), len(batch))
    names = ("key", "value") if query.field == ANY else (query.field,)
    found = _contains(query, batch.column(names[0]))
    for name in names[1:]:
        found = found | _contains(query, batch.column(name))
    return found


def _contains(query: TextMatch, column: Any) -> Rows:
    if query.is_regex:
        found = pc.match_substring_regex(column, query.text)
    elif query.is_whole:
        found = pc.equal(column, pa.scalar(query.text.encode(), column.type))
    else:
        found = pc.match_substring_regex(column, _as_pattern(query.text.encode()))
    rows: Rows = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return rows


def _as_pattern(text: bytes) -> str:
    """A regular expression that matches these bytes: Arrow's search for texts is slower.

    Columns are binary, so `\\xc3` is a byte.
    """
    return "".join(chr(b) if b in _PLAIN_BYTES else f"\\x{b:02x}" for b in text)


def _with_header(query: TextMatch, column: Any, count: int) -> Rows:
    found = _constant(False, count)
    items = pc.list_flatten(column)
    if not len(items):
        return found
    names = pc.struct_field(items, "key")
    is_named = pc.equal(names, pa.scalar(query.header, pa.string())).to_numpy(zero_copy_only=False)
    is_match = is_named & _contains(query, pc.struct_field(items, "value"))
    found[pc.list_parent_indices(column).to_numpy()[is_match]] = True
    return found


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

"""A condition on rows, and what can be concluded from it without reading any.

A condition is a tree of values:

    AllOf, AnyOf      AND and OR of any number of terms
    Comparison        a column compared with a value
    Membership        a column that is, or is not, one of some values
    KeyNullness       a key that is, or is not, null

The tree has no NOT: `negated` turns comparisons round instead. A term is false for a null key, as
in SQL, where it would be null; without NOT the rows are the same.

Timestamps are microseconds since 1970 and keys are bytes, as in the rows. Conclusions are
conservative: a row that matches is never outside of them.
"""

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, Literal

from cordwood.quantities import INT64_MAX
from cordwood.value_class import dataclass

Column = Literal["partition", "offset", "timestamp", "key"]
Operator = Literal["=", "!=", "<", "<=", ">", ">="]
OffsetSpan = tuple[int, int]  # [start, stop)

COLUMNS: Final[tuple[Column, ...]] = ("partition", "offset", "timestamp", "key")
COMPARE: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# More spans of one partition are joined: each costs a task.
SPANS_MAX: Final = 32

_NEGATED: Final[dict[Operator, Operator]] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}
_EVERYWHERE: Final[tuple[OffsetSpan, ...]] = ((0, INT64_MAX),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`column operator value`."""

    column: Column
    operator: Operator
    value: int | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """`column IN values`, or NOT IN. The values are sorted, each once."""

    column: Column
    values: tuple[int, ...] | tuple[bytes, ...]
    is_in: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyNullness:
    """`key IS NULL`, or IS NOT NULL."""

    is_null: bool


@dataclass(frozen=True, slots=True)
class AllOf:
    """True if every term is; without terms it is always true."""

    terms: "tuple[Condition, ...]" = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True if one of the terms is; without terms it is never true."""

    terms: "tuple[Condition, ...]" = ()


Condition = Comparison | Membership | KeyNullness | AllOf | AnyOf

ALWAYS: Final = AllOf()
NEVER: Final = AnyOf()


def negated(condition: Condition) -> Condition:
    """The condition that is true where this one is false."""
    match condition:
        case AllOf(terms=terms):
            return AnyOf(tuple(negated(term) for term in terms))
        case AnyOf(terms=terms):
            return AllOf(tuple(negated(term) for term in terms))
        case Comparison(column=column, operator=found, value=value):
            return Comparison(column=column, operator=_NEGATED[found], value=value)
        case Membership(column=column, values=values, is_in=is_in):
            return Membership(column=column, values=values, is_in=not is_in)
        case KeyNullness(is_null=is_null):
            return KeyNullness(is_null=not is_null)


def within_partition(condition: Condition, partition: int) -> Condition:
    """What remains of the condition for the rows of one partition; simplified."""
    match condition:
        case AllOf(terms=terms):
            return _joined(AllOf, [within_partition(term, partition) for term in terms])
        case AnyOf(terms=terms):
            return _joined(AnyOf, [within_partition(term, partition) for term in terms])
        case Comparison(column="partition", operator=found, value=value):
            return ALWAYS if COMPARE[found](partition, value) else NEVER
        case Membership(column="partition", values=values, is_in=is_in):
            return ALWAYS if (partition in values) == is_in else NEVER
        case _:
            return condition


def _joined(kind: type[AllOf] | type[AnyOf], terms: Sequence[Condition]) -> Condition:
    """AND or OR of terms. One that decides the result is the result; neutral ones are left out."""
    decides, is_neutral = (NEVER, ALWAYS) if kind is AllOf else (ALWAYS, NEVER)
    left: list[Condition] = []
    for term in terms:
        if term == decides:
            return decides
        if term != is_neutral:
            left.append(term)
    return left[0] if len(left) == 1 else kind(tuple(left))


def needs_rows(condition: Condition) -> bool:
    """Whether rows must be looked at: whether more than offsets and partitions matter."""
    match condition:
        case AllOf(terms=terms) | AnyOf(terms=terms):
            return any(needs_rows(term) for term in terms)
        case Comparison(column=column) | Membership(column=column):
            return column in ("timestamp", "key")
        case _:
            return True


def spans_suffice(condition: Condition) -> bool:
    """Whether a scan of its spans, made fewer, reads no row that does not match."""
    return not needs_rows(condition) and len(offset_spans(condition)) <= SPANS_MAX


# --- offsets ------------------------------------------------------------------------------------


def offset_spans(condition: Condition) -> list[OffsetSpan]:
    """The offsets that matching rows may have: spans in order that do not touch.

    Exact for a condition that needs no rows.
    """
    return _spans(condition)


def _spans(condition: Condition) -> list[OffsetSpan]:
    match condition:
        case AllOf(terms=terms):
            found = list(_EVERYWHERE)
            for term in terms:
                found = _intersection(found, _spans(term))
            return found
        case AnyOf(terms=terms):
            return _union([span for term in terms for span in _spans(term)])
        case Comparison(column="offset", operator=found_operator, value=int(value)):
            return _compared(found_operator, value)
        case Membership(column="offset", values=values, is_in=is_in):
            inside = _union([(int(v), int(v) + 1) for v in values if 0 <= int(v) < INT64_MAX])
            return inside if is_in else _complement(inside)
        case _:
            return list(_EVERYWHERE)


def _compared(found: Operator, value: int) -> list[OffsetSpan]:
    match found:
        case "=":
            spans = [(value, value + 1)]
        case "!=":
            spans = [(0, value), (value + 1, INT64_MAX)]
        case "<":
            spans = [(0, value)]
        case "<=":
            spans = [(0, value + 1)]
        case ">":
            spans = [(value + 1, INT64_MAX)]
        case ">=":
            spans = [(value, INT64_MAX)]
    return _union(_intersection(_union(spans), list(_EVERYWHERE)))


def _union(spans: Sequence[OffsetSpan]) -> list[OffsetSpan]:
    joined: list[OffsetSpan] = []
    for start, stop in sorted(span for span in spans if span[0] < span[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((start, stop))
    return joined


def _intersection(one: Sequence[OffsetSpan], other: Sequence[OffsetSpan]) -> list[OffsetSpan]:
    found: list[OffsetSpan] = []
    at, behind = 0, 0
    while at < len(one) and behind < len(other):
        start = max(one[at][0], other[behind][0])
        stop = min(one[at][1], other[behind][1])
        if start < stop:
            found.append((start, stop))
        if one[at][1] <= other[behind][1]:
            at += 1
        else:
            behind += 1
    return found


def _complement(spans: Sequence[OffsetSpan]) -> list[OffsetSpan]:
    edges = [0, *(edge for span in spans for edge in span), INT64_MAX]
    return _union(list(zip(edges[::2], edges[1::2], strict=True)))


def fewer_spans(spans: Sequence[OffsetSpan], count_max: int = SPANS_MAX) -> list[OffsetSpan]:
    """The same offsets and some between them, in at most `count_max` spans.

    The smallest gaps are closed.
    """
    if len(spans) <= count_max:
        return list(spans)
    gaps = sorted(
        ((after[0] - before[1], index) for index, (before, after) in enumerate(pairwise(spans))),
        reverse=True,
    )
    cuts = sorted(index for _, index in gaps[: count_max - 1])
    firsts = [0, *(index + 1 for index in cuts)]
    lasts = [*cuts, len(spans) - 1]
    return [(spans[a][0], spans[b][1]) for a, b in zip(firsts, lasts, strict=True)]


# --- timestamps and keys ------------------------------------------------------------------------


def earliest_us(condition: Condition) -> int | None:
    """A time before which no matching row can be; None if there is no such time."""
    match condition:
        case AllOf(terms=terms):
            known = [found for term in terms if (found := earliest_us(term)) is not None]
            return max(known, default=None)
        case AnyOf(terms=terms):
            each = [earliest_us(term) for term in terms]
            times = [found for found in each if found is not None]
            return min(times) if times and len(times) == len(each) else None
        case Comparison(column="timestamp", operator="=" | ">" | ">=", value=int(value)):
            return value
        case Membership(column="timestamp", values=values, is_in=True):
            return int(min(values, default=0))
        case _:
            return None


def only_key(condition: Condition) -> bytes | None:
    """The key that every matching row has; None if several are possible."""
    match condition:
        case AllOf(terms=terms):
            return next((key for term in terms if (key := only_key(term)) is not None), None)
        case AnyOf(terms=terms):
            keys = {only_key(term) for term in terms}
            return next(iter(keys)) if len(keys) == 1 else None
        case Comparison(column="key", operator="=", value=bytes(value)):
            return value
        case Membership(column="key", values=values, is_in=True) if len(values) == 1:
            only = values[0]
            return only if isinstance(only, bytes) else None
        case _:
            return None

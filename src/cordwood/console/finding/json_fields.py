"""Conditions on a field of JSON values: the exact answer, by parsing, and for whole columns.

`has_at_path` says what a condition means. `rows_at_path` gives the same answers for a column at the
speed of a scan: the kernel `json_paths` answers from the bytes, and only values about which it says
`MAYBE` are parsed.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cordwood.console.decoding.decoded import PARSED_BYTES_MAX, UndecodableError
from cordwood.console.decoding.value_decoders import parse_json
from cordwood.console.finding import json_paths
from cordwood.console.finding.query_tree import PathMatch
from cordwood.format.column_batches import Spans
from cordwood.value_class import dataclass

Rows = np.ndarray[tuple[int], np.dtype[np.bool_]]


class Operator(IntEnum):
    """The kernel has the same numbers."""

    EQUAL = 0
    NOT_EQUAL = 1
    LESS = 2
    NOT_GREATER = 3
    GREATER = 4
    NOT_LESS = 5
    CONTAINS = 6


class Kind(IntEnum):
    """What a field is compared with. The kernel has the same numbers."""

    TEXT = 0
    NUMBER = 1
    WIDE_NUMBER = 2  # a double does not hold it, so the kernel does not compare it
    TRUE = 3
    FALSE = 4
    NULL = 5


_OPERATORS: Final = {
    "=": Operator.EQUAL,
    "!=": Operator.NOT_EQUAL,
    "<": Operator.LESS,
    "<=": Operator.NOT_GREATER,
    ">": Operator.GREATER,
    ">=": Operator.NOT_LESS,
    "~": Operator.CONTAINS,
}
_WORDS: Final = {True: Kind.TRUE, False: Kind.FALSE, None: Kind.NULL}
_EXACT_MAX: Final = 1 << 53  # a double holds every whole number to here
_INDEX_DIGITS_MAX: Final = 9


# --- one value -------------------------------------------------------------------------------


def has_at_path(query: PathMatch, value: bytes | None) -> bool:
    """Whether a value is JSON and has a field that compares as the query says."""
    if value is None:
        return False
    try:
        content = parse_json(value)
    except UndecodableError:
        return False
    return any(_compares(found, query) for found in _at(content, query.path))


def _at(content: object, path: Sequence[str]) -> list[object]:
    """The values at a path. Lists are looked into, by number or all of them."""
    found = [content]
    for name in path:
        following: list[object] = []
        for item in found:
            if isinstance(item, dict):
                if name in item:
                    following.append(item[name])
            elif isinstance(item, list):
                index = _index(name)
                if index is not None and index < len(item):
                    following.append(item[index])
                else:
                    following += [i[name] for i in item if isinstance(i, dict) and name in i]
        found = following
    return found


def _index(name: str) -> int | None:
    is_number = name.isascii() and name.isdigit() and len(name) <= _INDEX_DIGITS_MAX
    return int(name) if is_number else None


def _compares(found: object, query: PathMatch) -> bool:
    literal, operator = query.literal, query.operator
    if isinstance(found, str):
        return query.text in found if operator == "~" else _ordered(found, query.text, operator)
    if _is_number(found) and _is_number(literal):
        return _ordered(found, literal, operator)
    if operator == "=":
        return found is literal
    return operator == "!=" and found is not literal


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
        case ">=":
            return bool(found >= literal)
        case _:
            return False


# --- many values -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCondition:
    """A `PathMatch` as the kernel reads it. `name_ends` says where each name ends in `names`."""

    names: bytes
    name_ends: array[int]
    operator: Operator
    kind: Kind
    number: float
    text: bytes

    @classmethod
    def of(cls, query: PathMatch) -> PathCondition:
        names = [name.encode() for name in query.path]
        ends = array("i")
        for name in names:
            ends.append((ends[-1] if ends else 0) + len(name))
        kind, number = _kind(query.literal)
        return cls(
            names=b"".join(names),
            name_ends=ends,
            operator=_OPERATORS[query.operator],
            kind=kind,
            number=number,
            text=query.text.encode(),
        )


def _kind(literal: str | float | bool | None) -> tuple[Kind, float]:
    if isinstance(literal, str):
        return Kind.TEXT, 0.0
    if literal is None or isinstance(literal, bool):
        return _WORDS[literal], 0.0
    if isinstance(literal, int) and abs(literal) >= _EXACT_MAX:
        return Kind.WIDE_NUMBER, 0.0
    return Kind.NUMBER, float(literal)


def rows_at_path(query: PathMatch, values: pa.Array[Any], among: Rows) -> Rows:
    """Which rows of a column satisfy the condition. Rows that are not `among` do not."""
    answers = among.astype(np.uint8)
    spans = Spans.of(values)
    json_paths.answer_rows(
        spans.words,
        spans.data,
        PathCondition.of(query),
        PARSED_BYTES_MAX,
        array("i", bytes(4 * json_paths.DEPTH_MAX)),
        memoryview(answers),  # type: ignore[arg-type]  # numpy's types do not say that it is one
    )
    found: Rows = answers == json_paths.YES
    for row in np.flatnonzero(answers == json_paths.MAYBE).tolist():
        found[row] = has_at_path(query, values[row].as_py())
    return found

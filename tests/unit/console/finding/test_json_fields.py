"""A condition on a field of JSON: the fast answer for a column is the answer of the parser."""

import importlib.util
import json
from array import array
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.console.decoding.decoded import PARSED_BYTES_MAX
from cordwood.console.finding import json_paths
from cordwood.console.finding.json_fields import PathCondition, has_at_path, rows_at_path
from cordwood.console.finding.query_syntax import parse_query
from cordwood.console.finding.query_tree import PathMatch
from cordwood.format.column_batches import Spans

NAMES = ("a", "b", "é", "0", "12", "a\\", 'a"', "[")
TEXTS = ("", "a", "ab", "é", "true", "null", "1", "1.5", "10", "\n", "{[", "日本", "\U0001f600")
NUMBERS = (0, 1, -1, 10, 1.5, 0.1, 1e300, 2**53, 2**53 + 1, 10**45, 1e-7, 123456789012345.678)

names = st.sampled_from(NAMES)
scalars = st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(TEXTS)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """A value as a producer may write it: also with escapes, doubled, damaged, in UTF-16."""
    document = draw(documents)
    text = json.dumps(
        document,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, None, 1])),
        separators=draw(st.sampled_from([None, (",", ":")])),
    )
    match draw(st.integers(0, 9)):
        case 0:
            text = text.replace('"a"', draw(st.sampled_from(['"\\u0061"', '"b"', '"a": 1, "a"'])))
        case 1:
            text = text.replace("1", draw(st.sampled_from(["1e0", "01", "1.0", "NaN", "1E+0"])))
        case 2:
            text = draw(st.sampled_from([" ", "\ufeff", "\n", "[", "//"])) + text
        case _:
            pass
    data = text.encode(draw(st.sampled_from(["utf-8"] * 8 + ["utf-16", "utf-16-be", "utf-32"])))
    if data and draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(data) - 1))
        piece = draw(st.binary(max_size=2) | st.sampled_from([b",", b'"', b"}", b"\xed\xa0\x80"]))
        data = data[:at] + piece + data[at + draw(st.integers(0, 2)) :]
    return data


literals = (st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(TEXTS)).map(
    lambda literal: (literal, literal if isinstance(literal, str) else json.dumps(literal))
)


@st.composite
def queries(draw: st.DrawFn) -> PathMatch:
    literal, text = draw(literals)
    return PathMatch(
        path=tuple(draw(st.lists(names, min_size=1, max_size=3))),
        operator=draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "~"])),
        literal=literal,
        text=text,
    )


@given(queries(), st.lists(st.none() | written(), max_size=8), st.data())
def test_a_column_is_answered_as_its_values_are(
    query: PathMatch, values: list[bytes | None], data: st.DataObject
) -> None:
    among = np.array([data.draw(st.booleans()) for _ in values], np.bool_)

    found = rows_at_path(query, pa.array(values, pa.binary()), among)

    expected = [
        bool(wanted) and has_at_path(query, value)
        for wanted, value in zip(among, values, strict=True)
    ]
    assert found.tolist() == expected


@given(queries(), documents)
def test_what_is_usual_is_answered_without_a_parser(query: PathMatch, document: object) -> None:
    """No escapes, no exponents, no lists by number: the kernel decides alone."""
    text = json.dumps(document, ensure_ascii=False)
    is_usual = not any(mark in text for mark in ("\\", "e+", "e-", "E")) and not any(
        name.isdigit() or "\\" in name or '"' in name for name in query.path
    )
    is_narrow = all(str(wide) not in text for wide in (2**53, 2**53 + 1, 10**45, 12345678901234))
    is_wide = isinstance(query.literal, int) and abs(query.literal) >= 2**53
    if is_usual and is_narrow and not is_wide:
        assert answers_of(json_paths, query, [text.encode()]) == [
            json_paths.YES if has_at_path(query, text.encode()) else json_paths.NO
        ]


def plain_kernel() -> ModuleType:
    path = Path(json_paths.__file__).parent / "json_paths.py"
    spec = importlib.util.spec_from_file_location("plain_json_paths", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = plain_kernel()


def answers_of(kernel: ModuleType, query: PathMatch, values: list[bytes | None]) -> list[int]:
    spans = Spans.of(pa.array(values, pa.binary()))
    answers = bytearray(b"\x01" * len(values))
    levels = array("i", bytes(4 * json_paths.DEPTH_MAX))
    kernel.answer_rows(
        spans.words, spans.data, PathCondition.of(query), PARSED_BYTES_MAX, levels, answers
    )
    return list(answers)


@given(queries(), st.lists(st.none() | written() | st.binary(max_size=20), max_size=6))
def test_both_forms_of_the_kernel_agree(query: PathMatch, values: list[bytes | None]) -> None:
    assert answers_of(json_paths, query, values) == answers_of(PLAIN, query, values)


@pytest.mark.parametrize(
    ("text", "value", "is_found"),
    [
        ("value.items.0 = x", '{"items": ["x", "y"]}', True),
        ("value.items.1 = x", '{"items": ["x", "y"]}', False),
        ("value.items.sku = x", '{"items": [{"sku": "y"}, {"sku": "x"}]}', True),
        ("value.id = 1234567", '{"id": "1234567"}', True),
        ("value.zip = 00123", '{"zip": "00123"}', True),
        ("value.ok = true", '{"ok": "true"}', True),
        ("value.ok = true", '{"ok": "True"}', False),
        ("value.none = null", '{"none": null}', True),
        ("value.none = null", '{"none": "None"}', False),
        ("value.none = null", '{"other": 1}', False),
        ("value.id = 9007199254740993", '{"id": 9007199254740992}', False),
        ("value.id = 9007199254740993", '{"id": 9007199254740993}', True),
        ("value.id = 42", '{"id": 4.2e1}', True),
        ("value.id = 42", '{"\\u0069d": 42}', True),
        ("value.id = 42", '{"id": 42, "id": 41}', False),
        ("value.id = 42", '{"id": 42,}', False),
        ("value.name = Zoé", '{"name": "Zo\\u00e9"}', True),
        ("value.name ~ oé", '{"name": "Zoé"}', True),
        ("value.² = 1", "[1, 2]", False),
        ("value.99999999999999999999 = 1", "[1, 2]", False),
        ("value.a.a = 1", '{"a": ' * 63 + "1" + "}" * 63, False),
        ("value.a != 1", '{"a": {"b": 1}}', True),
        ("value.a ~ 1", '{"a": ' + "1" * 50 + "}", True),
    ],
)
def test_a_field_is_found_however_it_is_written(text: str, value: str, is_found: bool) -> None:
    query = parse_query(text)
    assert isinstance(query, PathMatch)

    assert has_at_path(query, value.encode()) is is_found
    column = pa.array([value.encode()], pa.binary())
    assert rows_at_path(query, column, np.ones(1, np.bool_)).tolist() == [is_found]


def test_rows_outside_of_the_buffers_are_refused() -> None:
    condition = PathCondition.of(PathMatch(path=("a",), operator="=", literal=1, text="1"))
    levels = array("i", bytes(4 * json_paths.DEPTH_MAX))
    spans = memoryview(array("q", [2, 5]))

    with pytest.raises(IndexError):
        json_paths.answer_rows(spans, b"{}", condition, 100, levels, bytearray(b"\x01"))
    with pytest.raises(IndexError):
        json_paths.answer_rows(spans, b"{}      ", condition, 100, levels, bytearray(b"\x01\x01"))
    with pytest.raises(IndexError):
        json_paths.answer_rows(spans, b"{}     ", condition, 100, levels[:3], bytearray(b"\x01"))

"""The kernel that guesses which values Arrow's parser takes."""

from __future__ import annotations

import importlib.util
import json
from array import array
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cordwood
from cordwood.spark.decoding import json_fit
from cordwood.spark.decoding.json_shape import JsonShape
from cordwood.spark.decoding.type_text import parse_schema

SCHEMA = (
    "id BIGINT, small TINYINT, name STRING, is_new BOOLEAN, amount DOUBLE, rate FLOAT, "
    "price DECIMAL(5, 2), day DATE, at TIMESTAMP, data BINARY, tags ARRAY<STRING>, "
    "lines ARRAY<STRUCT<n: INT, tags: ARRAY<ARRAY<INT>>>>, place STRUCT<x: INT, id: STRING>"
)


def load_plain() -> ModuleType:
    path = Path(cordwood.__file__).parent / "spark" / "decoding" / "json_fit.py"
    spec = importlib.util.spec_from_file_location("plain_json_fit", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.COMPILED
    return module


plain: Any = load_plain()


def fitting(*values: bytes) -> list[bool]:
    found = JsonShape(parse_schema(SCHEMA)).fitting(pa.array(values, pa.binary()))
    return found.tolist()


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b' \t{ "id" : 1 , "name":"a" }\r\n',
        b'{"id": -9223372036854775808, "small": -128}',
        b'{"id": 9223372036854775807, "small": 127}',
        b'{"id": null, "name": null, "tags": null, "place": null, "lines": [null, {}]}',
        b'{"name": "\\ud83d\\ude00 \\u00e4\\n\\"", "other": {"a": [1, true, [{}]], "a": 2}}',
        '{"name": "ä€😀"}'.encode(),
        b'{"is_new": false, "amount": -1.5e10, "rate": 0.5, "price": -999.99}',
        b'{"price": "12.5", "day": "2024-02-29", "data": "aGk=", "at": "2026-01-31"}',
        b'{"at": "2026-01-31T12:00:00.123456+01:00"}',
        b'{"at": "2026-01-31 12:00Z"}',
        b'{"tags": [], "lines": [{"n": 1, "tags": [[1, 2], []]}, {"n": 2}]}',
        b'{"place": {"x": 1, "id": "text"}, "id": 5}',
    ],
)
def test_what_the_parser_takes_fits(value: bytes) -> None:
    assert fitting(value) == [True]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"{",
        b"}",
        b"[]",
        b"1",
        b"null",
        b"nonsense",
        b"{}{}",
        b"{} x",
        b'{"id": 1,}',
        b'{"id" 1}',
        b'{"id": }',
        b'{"id": 01}',
        b'{"id": 1.}',
        b'{"id": 1e}',
        b'{"id": -}',
        b"{id: 1}",
        b'{"id": 1',
        b'{"name": "a}',
        b'{"name": "\\x"}',
        b'{"name": "\\ud800"}',
        b'{"name": "\\udc00"}',
        b'{"name": "\xff"}',
        b'{"name": "\xed\xa0\x80"}',
        b'{"name": "\n"}',
        b'{"other": tru}',
        b'{"other": [1 2]}',
        b'{"other": [1}',
        b'{"other": NaN}',
        b'{"id": "1"}',
        b'{"id": 1.5}',
        b'{"id": 1e2}',
        b'{"id": 9223372036854775808}',
        b'{"id": -9223372036854775809}',
        b'{"id": 99999999999999999999}',
        b'{"small": 128}',
        b'{"small": -129}',
        b'{"name": 1}',
        b'{"name": {}}',
        b'{"is_new": 1}',
        b'{"amount": "1"}',
        b'{"amount": 1e309}',
        b'{"rate": 1e39}',
        b'{"price": 1000}',
        b'{"price": "x"}',
        b'{"price": 1.234}',
        b'{"price": true}',
        b'{"day": "2026-02-29"}',
        b'{"day": "2026-01-31Z"}',
        b'{"at": "yesterday"}',
        b'{"at": "2026-01-31T25:00:00"}',
        b'{"at": "2026-01-31T12:00:00x"}',
        b'{"at": "2026-01-31T12:00:00.1234567"}',
        b'{"at": 5}',
        b'{"data": "a"}',
        b'{"data": "?==="}',
        b'{"tags": "a"}',
        b'{"tags": {}}',
        b'{"tags": [1]}',
        b'{"lines": [[]]}',
        b'{"place": []}',
        b'{"lines": [{"n": "x"}]}',
        b'{"place": {"x": 2147483648}}',
        b'{"id": 1, "id": 2}',
        b'{"place": {"x": 1, "x": 1}}',
        b'{"\\u0069d": 1}',
        b'{"other": ' + b"[" * 70 + b"]" * 70 + b"}",
    ],
)
def test_what_must_be_looked_at_does_not_fit(value: bytes) -> None:
    assert fitting(b'{"id": 1}', value, b'{"id": 2}') == [True, False, True]


def test_values_of_a_slice_are_those_of_the_slice() -> None:
    values = pa.array([b"{", b"{}", b'{"id": 1}', b"x", b"{}"], pa.binary()).slice(1, 3)

    assert JsonShape(parse_schema(SCHEMA)).fitting(values).tolist() == [True, True, False]


def test_many_names_in_any_order_are_found() -> None:
    names = [f"field{n}" for n in range(200)]
    shape = JsonShape(parse_schema(", ".join(f"{name} INT" for name in names)))
    good = json.dumps(dict.fromkeys(reversed(names), 1)).encode()
    bad = json.dumps({**dict.fromkeys(reversed(names), 1), "field7": "x"}).encode()

    assert shape.fitting(pa.array([good, bad, good], pa.binary())).tolist() == [True, False, True]


def test_offsets_outside_of_the_bytes_are_refused() -> None:
    shape = JsonShape(parse_schema("id INT"))
    levels = array("q", bytes(8 * json_fit.DEPTH_MAX * json_fit.LEVEL_WORDS))

    for form in (json_fit, plain):
        for offsets in ([0, 5], [-1, 2], [2, 1], [0]):
            with pytest.raises(IndexError):
                form.mark_fitting(array("i", offsets), b"{}", shape, levels, bytearray(1))


_pieces = st.sampled_from(
    [
        b'{"id":',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"id"',
        b'"tags"',
        b'"lines"',
        b'"n"',
        b"1",
        b"-",
        b"0",
        b".5",
        b"e9",
        b'"',
        b"\\",
        b"\\u",
        b"d83d",
        b"\\ude00",
        b"null",
        b"true",
        b" ",
        b"\xc3\xa4",
        b"\xff",
        b'"2026-01-31"',
        b'"at"',
        b'"at":"2026-01-31T12:00:00.5+01:00"',
    ]
)


@given(st.lists(st.lists(_pieces, max_size=14).map(b"".join) | st.binary(max_size=9), max_size=9))
def test_the_compiled_kernel_answers_as_the_plain_one(values: list[bytes]) -> None:
    shape = JsonShape(parse_schema(SCHEMA))
    levels = array("q", bytes(8 * json_fit.DEPTH_MAX * json_fit.LEVEL_WORDS))
    ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
    answers = []
    for form in (json_fit, plain):
        found = bytearray(len(values))
        form.mark_fitting(ends.data, b"".join(values), shape, levels, found)
        answers.append(bytes(found))

    assert answers[0] == answers[1]

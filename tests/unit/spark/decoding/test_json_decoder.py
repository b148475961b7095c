"""JSON values as columns: each value by itself, whatever the values around it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.spark.decoding import json_decoder
from cordwood.spark.decoding.json_decoder import JsonDecoder
from cordwood.spark.decoding.json_repair import repair_value
from cordwood.spark.decoding.type_text import parse_schema

SCHEMA = "id BIGINT, name STRING, amount DOUBLE, tags ARRAY<STRING>, place STRUCT<x: INT, y: INT>"


def decoded(schema: str, *values: bytes | None) -> list[tuple[Any, str | None]]:
    found = JsonDecoder(parse_schema(schema)).decode(pa.array(values, pa.binary()))
    return list(zip(found.values.to_pylist(), found.reasons.to_pylist(), strict=True))


def test_every_type_is_read() -> None:
    value = {
        "b": True, "i": -5, "l": 2**40, "f": 1.5, "s": "ä", "d": "2026-01-31",
        "t": "2026-01-31T12:00:00.123456789+01:00", "n": "2026-01-31T12:00:00",
        "e": 12.25, "y": "aGk=", "m": {"k": 1}, "a": [{"x": 1}, None], "o": {"p": {"q": [1]}},
    }  # fmt: skip
    schema = (
        "b BOOLEAN, i INT, l BIGINT, f DOUBLE, s STRING, d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, "
        "e DECIMAL(6, 2), y BINARY, m MAP<STRING, INT>, a ARRAY<STRUCT<x: INT>>, "
        "o STRUCT<p: STRUCT<q: ARRAY<SMALLINT>>>"
    )

    [(row, reason)] = decoded(schema, json.dumps(value).encode())

    assert reason is None
    assert row == {
        "b": True, "i": -5, "l": 2**40, "f": 1.5, "s": "ä", "d": date(2026, 1, 31),
        "t": datetime(2026, 1, 31, 11, 0, 0, 123456, UTC), "n": datetime(2026, 1, 31, 12),
        "e": Decimal("12.25"), "y": b"hi", "m": [("k", 1)], "a": [{"x": 1}, None],
        "o": {"p": {"q": [1]}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"nonsense", "the value is not JSON"),
        (b"", "the value is not JSON"),
        (b'{"id": 1} {"id": 2}', "the value is not JSON"),
        (b'{"id": 1', "the value is not JSON"),
        (b'{"id": 1,}', "the value is not JSON"),
        (b"[1]", "the value is not a JSON object"),
        (b"7", "the value is not a JSON object"),
        (b'{"name": "\xff"}', "the value is not UTF-8"),
        (b'{"id": "one"}', 'id is "one", not of type int64'),
        (b'{"id": 1.5}', "id is 1.5, not of type int64"),
        (b'{"id": 9223372036854775808}', "id is 9223372036854775808, not of type int64"),
        (b'{"place": {"x": 3000000000}}', "place.x is 3000000000, not of type int32"),
        (b'{"tags": "a"}', 'tags is "a", not a list'),
        (b'{"place": []}', "place is [], not an object"),
        (b'{"name": "\\ud800"}', "name has half a character"),
    ],
)
def test_a_value_that_does_not_fit_gets_a_reason_and_its_neighbours_are_read(
    value: bytes, reason: str
) -> None:
    good = b'{"id": 1, "name": "a"}'

    rows = decoded(SCHEMA, good, value, None, good)

    assert [row and row["id"] for row, _ in rows] == [1, None, None, 1]
    assert rows[1][1] is not None
    assert rows[1][1].startswith(reason)
    assert [rows[n][1] for n in (0, 2, 3)] == [None] * 3


def test_values_that_complete_each_other_are_not_taken_for_one() -> None:
    halves = [b'{"id":', b'{"id": 2}', b"}", b'{"id": 4}{"id": 5}{"id": 6}']

    rows = decoded("id BIGINT", *halves)

    assert [row and row["id"] for row, _ in rows] == [None, 2, None, None]


def test_a_text_field_takes_any_json() -> None:
    rows = decoded("s STRING", b'{"s": 1.50}', b'{"s": {"a": [1, true]}}', b'{"s": "x"}')

    assert [row["s"] for row, _ in rows] == ["1.50", '{"a":[1,true]}', "x"]


def test_of_a_field_that_is_there_twice_the_last_counts() -> None:
    assert decoded("id BIGINT", b'{"id": 1, "id": 2}') == [({"id": 2}, None)]


def test_a_required_field_must_be_there() -> None:
    schema = "id BIGINT NOT NULL, place STRUCT<x: INT NOT NULL>"

    rows = decoded(schema, b'{"id": 1}', b"{}", b'{"id": null}', b'{"id": 2, "place": {}}')

    assert [reason for _, reason in rows] == [
        None,
        "id is missing or null, and is required",
        "id is missing or null, and is required",
        "place.x is missing or null, and is required",
    ]
    assert [row for row, _ in rows][1:] == [None, None, None]


def test_fields_that_the_schema_lacks_are_reported_if_asked_for() -> None:
    decoder = JsonDecoder(parse_schema("id BIGINT, place STRUCT<x: INT>"), looks_for_more=True)
    values = [b'{"id": 1, "new": "a"}', b'{"id": 2, "place": {"x": 1, "z": 1.5}}', b'{"new": 3}']

    found: Any = decoder.decode(pa.array(values, pa.binary()))

    assert [row["id"] for row in found.values.to_pylist()] == [1, 2, None]
    assert found.found.field("new").type == pa.string()
    assert found.found.field("place").type.field("z").type == pa.float64()


def test_a_batch_without_new_fields_reports_none() -> None:
    decoder = JsonDecoder(parse_schema("id BIGINT"), looks_for_more=True)

    assert decoder.decode(pa.array([b'{"id": 1}', None], pa.binary())).found is None


_fields = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.text() | st.none(),
        "name": st.text() | st.integers() | st.none(),
        "amount": st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        "tags": st.lists(st.text() | st.integers() | st.none(), max_size=3),
        "place": st.fixed_dictionaries({}, optional={"x": st.integers(-(2**33), 2**33)}),
        "other": st.lists(st.integers()) | st.text(),
    },
)
_values = st.one_of(
    _fields.map(lambda fields: json.dumps(fields).encode()),
    st.sampled_from([b"{}", b"", b"{", b"}", b'{"id":', b"{}{}", b"[", b'"', b"null", b"\xff"]),
    st.binary(max_size=6),
)


@given(st.lists(_values, min_size=1, max_size=80))
def test_a_value_decodes_alike_alone_and_in_company(values: list[bytes]) -> None:
    together = decoded(SCHEMA, *values)

    assert together == [decoded(SCHEMA, value)[0] for value in values]


_KINDS = (
    "b BOOLEAN, t TINYINT, f FLOAT, d DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, e DECIMAL(5, 2), "
    "y BINARY, inner STRUCT<at: ARRAY<TIMESTAMP>, t: SMALLINT>"
)
_times = st.one_of(
    st.datetimes().map(str),
    st.datetimes(timezones=st.timezones()).map(lambda time: time.isoformat()),
    st.dates().map(str),
    st.sampled_from(
        [
            "2026-02-29", "2024-02-29T01:02", "2026-01-31T24:00:00", "0001-02-28", "12:00:00",
            "2026-01-31T12:00:00.1234567Z", "2026-01-31T12", "2026-01-31T120000", "2026-1-31",
            "2026-01-31T12:00:00+25:00", "2026-01-31T12:00:00+0130", "2026-01-31T12:00:00 Z",
            "2026-13-01", "2026-04-31", "2026-01-31 ", "yesterday", "",
        ]
    ),
)  # fmt: skip
_numbers = st.one_of(
    st.integers(-(2**17), 2**17),
    st.floats(allow_nan=False),
    st.decimals(-(10**6), 10**6, places=3).map(str),
    st.sampled_from(["1e400", "NaN", "-0", "007", "999.99", "1000", "99.999", "1e3", "-", "+1"]),
)
_any = st.one_of(st.booleans(), st.none(), _times, _numbers, st.text(max_size=3))
_typed = st.fixed_dictionaries(
    {},
    optional={
        "b": st.booleans() | _any,
        "t": st.integers(-129, 128) | _any,
        "f": _numbers | _any,
        "d": _times | _any,
        "at": _times | _any,
        "wall": _times | _any,
        "e": _numbers | _any,
        "y": st.binary(max_size=4).map(lambda b: base64.b64encode(b).decode()) | _any,
        "inner": st.fixed_dictionaries({}, optional={"at": st.lists(_times), "t": _any}) | _any,
    },
)


@given(st.lists(_typed.map(lambda each: json.dumps(each).encode()), min_size=33, max_size=60))
def test_the_reason_of_a_value_does_not_depend_on_its_company(values: list[bytes]) -> None:
    together = decoded(_KINDS, *values)

    assert together == [decoded(_KINDS, value)[0] for value in values]


def test_only_misfits_of_a_large_batch_are_looked_at_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bytes] = []

    def watched(value: bytes, kind: pa.DataType) -> str:
        seen.append(value)
        return repair_value(value, kind)

    monkeypatch.setattr(json_decoder, "repair_value", watched)
    bad = {7: b'{"id": "x"}', 300: b"", 301: b'{"id": 1', 999: b'{"tags": 1}', 1500: b"[]"}
    values = [bad.get(n, b'{"id": %d, "name": "\xc3\xa4\\ud83d\\ude00"}' % n) for n in range(2000)]

    rows = decoded(SCHEMA, *values)

    assert [n for n, (_, reason) in enumerate(rows) if reason is not None] == sorted(bad)
    assert [row["id"] for row, _ in rows if row is not None] == [
        n for n in range(2000) if n not in bad
    ]
    assert sorted(seen) == sorted(bad.values())


@given(st.lists(_fields.filter(lambda f: not isinstance(f.get("id"), str)), max_size=20))
def test_what_fits_is_what_python_reads(objects: list[dict[str, Any]]) -> None:
    rows = decoded(SCHEMA, *(json.dumps(each).encode() for each in objects))

    for each, (row, reason) in zip(objects, rows, strict=True):
        if reason is None:
            assert row["id"] == each.get("id")
            if isinstance(each.get("name"), str):
                assert row["name"] == each["name"]


@pytest.mark.parametrize("number", [b"123456789.1", b'"123456789.1"', b"100000000", b"1e9"])
@pytest.mark.parametrize("shape", ["%s", "[%s]", '{"k": %s}'])
def test_a_decimal_with_more_digits_than_its_type_is_rejected(number: bytes, shape: str) -> None:
    inside = {"%s": "%s", "[%s]": "ARRAY<%s>", '{"k": %s}': "MAP<STRING, %s>"}[shape]
    schema = f"a {inside % 'DECIMAL(10, 2)'}, b INT"
    bad, good = ((b'{"a": %s}' % shape.encode()) % text for text in (number, b"99999999.99"))

    [(row, reason), (neighbour, none)] = decoded(schema, bad, good)

    where = {"%s": "a", "[%s]": "a[0]", '{"k": %s}': "a.k"}[shape]
    told = f"{where} is {number.decode()}, not of type decimal128(10, 2)"
    assert (row, reason) == (None, told)
    assert neighbour is not None
    assert none is None


def test_a_number_that_is_too_large_for_a_float_is_rejected_and_not_infinite() -> None:
    values = (b'{"f": 1e39}', b'{"f": 3.4028235e38}', b'{"d": 1e309}', b'{"f": Infinity}')

    large, largest, double, infinite = decoded("f FLOAT, d DOUBLE", *values)

    assert large == (None, "f is 1e39, not of type float")
    assert largest == ({"f": 3.4028234663852886e38, "d": None}, None)
    assert double == (None, "d is 1e309, not of type double")
    assert infinite == ({"f": float("inf"), "d": None}, None)

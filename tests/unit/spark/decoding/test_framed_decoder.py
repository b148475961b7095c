"""Avro and Protobuf: with one schema, and with ids of a registry."""

from __future__ import annotations

import base64
import io
import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import ConfigError
from cordwood.spark.decoding.avro_schemas import parse_avro
from cordwood.spark.decoding.column_format import ColumnFormat, Encoding
from cordwood.spark.decoding.protobuf_schemas import MessageTypes, compile_proto, message_type
from cordwood.spark.decoding.schema_registry import RegisteredSchema
from cordwood.spark.decoding.type_text import parse_schema, render_schema

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal",
                                   "precision": 9, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}}},
        {"name": "other", "type": ["null", "string", "Line"], "default": None},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}  # fmt: skip
VALUE = {
    "id": 7, "name": "ada", "at": datetime(2026, 1, 31, 12, 0, 0, 5000, UTC),
    "day": date(2026, 1, 31), "price": Decimal("12.50"), "state": "PAID", "tags": {"a": 1},
    "lines": [{"n": 1}, {"n": 2}], "other": {"n": 9}, "time": 1000, "key": "k",
}  # fmt: skip


def avro(schema: Any, value: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return data.getvalue()


def written(value: dict[str, Any]) -> bytes:
    plain = json.loads(json.dumps(ORDER).replace('"time-millis"', '"x"').replace('"uuid"', '"x"'))
    return avro(plain, value)


def single(text: str, encoding: Encoding = Encoding.AVRO, **rest: Any) -> ColumnFormat:
    kind = parse_avro(text).type
    return ColumnFormat(encoding=encoding, schema=render_schema(kind), writer=text, **rest)


def rows(form: ColumnFormat, *values: bytes | None) -> list[tuple[Any, str | None]]:
    found = form.open().decode(pa.array(values, pa.binary()))
    return list(zip(found.values.to_pylist(), found.reasons.to_pylist(), strict=True))


def test_avro_types_become_columns() -> None:
    [(row, reason), (nothing, no_reason)] = rows(single(json.dumps(ORDER)), written(VALUE), None)

    assert reason is None
    assert row == {**VALUE, "tags": [("a", 1)], "other": '{"n": 9}'}
    assert (nothing, no_reason) == (None, None)


@pytest.mark.parametrize("cut", [0, 1, 5, -1])
def test_avro_that_is_cut_does_not_fit(cut: int) -> None:
    [(row, reason), (after, _)] = rows(
        single(json.dumps(ORDER)), written(VALUE)[:cut], written(VALUE)
    )

    assert row is None
    assert reason is not None
    assert after["id"] == 7


def test_avro_with_bytes_after_the_record_does_not_fit() -> None:
    [(_, reason)] = rows(single(json.dumps(ORDER)), written(VALUE) + b"x")

    assert reason is not None
    assert "ends at byte" in reason


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    [(row, reason)] = rows(single(json.dumps(ORDER)), value)

    assert (row is None) == (reason is not None)


_DECIMAL = {**VALUE, "price": Decimal("99999.99")}
_avro_values = st.one_of(
    st.sampled_from([written(VALUE), written({**VALUE, "name": None}), written(_DECIMAL)]),
    st.sampled_from([b"", b"x", written(VALUE)[:9], written(VALUE) + b"x"]),
    st.builds(
        lambda at, byte: written(VALUE)[:at] + bytes([byte]) + written(VALUE)[at + 1 :],
        st.integers(0, len(written(VALUE)) - 1),
        st.integers(0, 255),
    ),
)


@given(st.lists(_avro_values, max_size=12))
def test_avro_is_read_alike_alone_and_in_company(values: list[bytes]) -> None:
    form = single(json.dumps(ORDER))

    assert rows(form, *values) == [rows(form, value)[0] for value in values]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('"string"', "must be a record"),
        ("{", "is not an Avro schema"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "B"}]}', "unknown type"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]}',
         "recursive"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": {"type": "array", '
         '"items": "null"}}]}', "take no bytes"),
        ('{"type": "record", "name": "A", "fields": []}', "take no bytes"),
    ],
)  # fmt: skip
def test_a_schema_that_no_table_can_hold_is_refused(schema: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_avro(schema)


# --- ids ---------------------------------------------------------------------------------------

ONE = '{"type": "record", "name": "U", "fields": [{"name": "id", "type": "int"}]}'
TWO = (
    '{"type": "record", "name": "U", "fields": [{"name": "id", "type": "long"}, '
    '{"name": "name", "type": "string"}]}'
)
WRONG = '{"type": "record", "name": "U", "fields": [{"name": "id", "type": "string"}]}'


def framed(number: int, value: bytes) -> bytes:
    return b"\x00" + struct.pack(">i", number) + value


def with_ids(schema: str, **writers: str) -> ColumnFormat:
    return ColumnFormat(
        encoding=Encoding.AVRO,
        schema=render_schema(parse_schema(schema)),
        is_framed=True,
        writers={
            int(name[1:]): RegisteredSchema(kind="AVRO", text=text)
            for name, text in writers.items()
        },
        unknown=frozenset({99}),
    )


def test_each_value_is_read_with_its_own_schema() -> None:
    form = with_ids("id BIGINT, name STRING", i1=ONE, i2=TWO, i3=WRONG)
    values = [
        framed(1, avro(json.loads(ONE), {"id": 1})),
        framed(2, avro(json.loads(TWO), {"id": 2, "name": "b"})),
        framed(3, avro(json.loads(WRONG), {"id": "x"})),
        framed(99, b"x"),
        b"\x01not framed",
        b"",
        None,
        framed(1, avro(json.loads(ONE), {"id": 3})),
    ]

    found = rows(form, *values)

    assert [row for row, _ in found] == [
        {"id": 1, "name": None}, {"id": 2, "name": "b"}, None, None, None, None, None,
        {"id": 3, "name": None},
    ]  # fmt: skip
    reasons = [reason for _, reason in found]
    assert reasons[2] == "its schema contradicts the table: id is int64, not string"
    assert reasons[3] == "the schema id 99 is unknown to the registry"
    assert reasons[4] == reasons[5]
    assert "does not begin with a schema id" in str(reasons[4])
    assert [reasons[n] for n in (0, 1, 6, 7)] == [None] * 4


def test_an_id_that_nobody_has_asked_for_is_missing() -> None:
    form = with_ids("id BIGINT", i1=ONE)

    found = form.open().decode(pa.array([framed(5, b""), framed(99, b"")], pa.binary()))

    assert found.missing == {5}


@given(st.lists(st.binary(max_size=12) | st.none(), max_size=20), st.integers(0, 3))
def test_ids_are_read_from_any_slice_of_any_bytes(values: list[bytes | None], skip: int) -> None:
    from cordwood.spark.decoding.wire_format import schema_ids

    there = pa.array([b"\x00\x00\x00\x00\x07tail"] * skip + values, pa.binary()).slice(skip)

    assert schema_ids(there).tolist() == [
        int.from_bytes(v[1:5], "big") if v is not None and len(v) >= 5 and v[0] == 0 else -1
        for v in values
    ]


# --- Protobuf ----------------------------------------------------------------------------------

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Other { string x = 1; }
message Order {
  enum State { NEW = 0; PAID = 1; }
  message Line { int32 n = 1; repeated string tags = 2; }
  int64 id = 1;
  optional string name = 2;
  State state = 3;
  repeated Line lines = 4;
  map<string, Line> by_name = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Int32Value size = 7;
  oneof payment { string card = 8; bytes cash = 9; }
  uint64 large = 10;
  repeated double prices = 11 [packed = true];
  Line first = 12;
}
"""


@pytest.fixture(scope="module")
def descriptors() -> str:
    return compile_proto(PROTO)


def order(descriptors: str) -> tuple[Any, Any]:
    from google.protobuf.message_factory import GetMessageClass

    found = MessageTypes(descriptors).named("shop.Order")
    return found, GetMessageClass(found)


def test_protobuf_types_become_columns(descriptors: str) -> None:
    descriptor, make = order(descriptors)
    message = make(id=5, state=1, card="4711", large=2**64 - 1, prices=[1.5, 2.5])
    message.lines.add(n=1, tags=["a", "b"])
    message.lines.add(n=2)
    message.by_name["k"].n = 3
    message.at.FromMilliseconds(1_700_000_000_123)
    message.size.value = 0
    form = ColumnFormat(
        encoding=Encoding.PROTOBUF,
        schema=render_schema(message_type(descriptor)),
        writer=descriptors,
        message="shop.Order",
    )

    found = rows(form, message.SerializeToString(), b"", b"\xff\xff", None)

    assert found[0][0] == {
        "id": 5, "name": None, "state": "PAID",
        "lines": [{"n": 1, "tags": ["a", "b"]}, {"n": 2, "tags": []}],
        "by_name": [("k", {"n": 3, "tags": []})],
        "at": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC), "size": 0, "card": "4711",
        "cash": None, "large": Decimal(2**64 - 1), "prices": [1.5, 2.5], "first": None,
    }  # fmt: skip
    assert found[1][0]["state"] == "NEW"
    assert found[1][0]["name"] is None
    assert found[2] == (None, "the value is not a shop.Order")
    assert found[3] == (None, None)


def test_a_framed_message_says_which_of_its_file_it_is(descriptors: str) -> None:
    descriptor, make = order(descriptors)
    form = ColumnFormat(
        encoding=Encoding.PROTOBUF,
        schema=render_schema(message_type(descriptor)),
        message="shop.Order",
        is_framed=True,
        writers={1: RegisteredSchema(kind="PROTOBUF", text=descriptors)},
    )
    body = make(id=9).SerializeToString()

    found = rows(
        form,
        framed(1, b"\x02\x02" + body),  # one index, 1
        framed(1, b"\x00" + body),  # the first message: Other
        framed(1, b"\x02\x14" + body),
        framed(1, b"\x80"),
    )

    assert found[0][0]["id"] == 9
    assert found[1][1] == "the value is a shop.Other, not a shop.Order"
    assert found[2][1] == "its schema has no message at [10]"
    assert "cut" in str(found[3][1])


def test_a_recursive_message_is_refused() -> None:
    text = 'syntax = "proto3"; message Node { Node next = 1; }'

    with pytest.raises(ConfigError, match="recursive"):
        message_type(MessageTypes(compile_proto(text)).named(None))


def test_a_text_that_is_no_protobuf_schema_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a Protobuf schema"):
        compile_proto("message {")
    with pytest.raises(ConfigError, match="cannot be read"):
        MessageTypes(base64.b64encode(b"\xff\xff").decode())
    with pytest.raises(ConfigError, match="not the name of an imported file"):
        compile_proto('syntax = "proto3";', (("../evil.proto", ""),))

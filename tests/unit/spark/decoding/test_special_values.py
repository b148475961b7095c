"""Values of Avro and Protobuf that are rare, and that a table must hold or reject."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import fastavro
import pytest
from google.protobuf.message_factory import GetMessageClass

from cordwood.spark.decoding.avro_decoder import AvroRecords
from cordwood.spark.decoding.avro_schemas import parse_avro
from cordwood.spark.decoding.decoded_values import MisfitError
from cordwood.spark.decoding.protobuf_decoder import ProtobufMessages
from cordwood.spark.decoding.protobuf_schemas import MessageTypes, compile_proto, message_type

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
message Event { google.protobuf.Any content = 1; string name = 2; }
"""


@pytest.mark.parametrize(
    ("nanos", "time"),
    [
        (1_000_000_000_000_001_999, datetime(2001, 9, 9, 1, 46, 40, 1, UTC)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    ],
)
def test_nanoseconds_of_avro_are_cut_to_microseconds(nanos: int, time: datetime) -> None:
    kind = {"type": "long", "logicalType": "timestamp-nanos"}
    record: Any = {"type": "record", "name": "R", "fields": [{"name": "at", "type": kind}]}
    plain: Any = {"type": "record", "name": "R", "fields": [{"name": "at", "type": "long"}]}
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(plain), {"at": nanos})
    schema = parse_avro(json.dumps(record))

    decoder = AvroRecords(schema)

    records, refused = decoder.records([data.getvalue()], 0)
    column = decoder.column(records, schema.type)

    assert not refused
    assert column.to_pylist() == [{"at": time}]


def event(kind: str, content: bytes) -> tuple[ProtobufMessages, Any, bytes]:
    descriptor = MessageTypes(compile_proto(PROTO)).named("shop.Event")
    message: Any = GetMessageClass(descriptor)()
    message.content.type_url = f"type.googleapis.com/{kind}"
    message.content.value = content
    return ProtobufMessages(descriptor), message_type(descriptor), message.SerializeToString()


def test_an_any_with_a_message_of_the_schema_is_json() -> None:
    decoder, kind, value = event("shop.Event", b"\x12\x01x")

    rows: Any = decoder.column([decoder.message(value, 0)], kind).to_pylist()

    assert json.loads(rows[0]["content"]) == {
        "@type": "type.googleapis.com/shop.Event",
        "name": "x",
    }


@pytest.mark.parametrize("kind", ["shop.Event", "shop.Unknown"])
def test_an_any_that_cannot_be_read_does_not_fit(kind: str) -> None:
    decoder, column, value = event(kind, b"\xff\xff")

    with pytest.raises(MisfitError, match="the value does not fit"):
        decoder.column([decoder.message(value, 0)], column)

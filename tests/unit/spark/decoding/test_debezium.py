"""Debezium's envelope: which rows it holds."""

import json
from typing import Any

import pyarrow as pa

from cordwood.spark.decoding.column_format import ColumnFormat, Encoding
from cordwood.spark.decoding.debezium import envelope_type, row_type
from cordwood.spark.decoding.json_inference import infer_type
from cordwood.spark.decoding.row_decoding import RowDecoder, RowFormat
from cordwood.spark.decoding.type_text import render_schema, struct_of

ROW = struct_of([pa.field("id", pa.int64())])
WIDER = struct_of([pa.field("id", pa.int64()), pa.field("city", pa.string())])


def change(**fields: Any) -> dict[str, Any]:
    return {"before": None, "after": None, "op": "c", "ts_ms": 1, **fields}


def test_the_type_of_rows_is_that_of_the_envelope() -> None:
    assert row_type(envelope_type(ROW)) == ROW


def test_values_that_are_no_envelopes_have_no_rows() -> None:
    assert row_type(ROW) is None
    assert row_type(struct_of([pa.field("payload", ROW)])) is None


def test_rows_have_the_fields_of_all_envelopes_with_and_without_payload() -> None:
    values = [
        {"schema": {}, "payload": change(after={"id": 1})},
        change(after={"id": 2, "city": "Turin"}),
        change(op="d", before={"id": 2, "zip": 5}),
    ]

    found = row_type(infer_type([json.dumps(value).encode() for value in values]))

    assert found is not None
    assert {field.name for field in found} == {"id", "city", "zip"}  # type: ignore[attr-defined]


def test_a_decoder_that_looks_for_more_finds_new_fields_of_rows() -> None:
    column = ColumnFormat(encoding=Encoding.JSON, schema=render_schema(ROW))
    decoder = RowDecoder(RowFormat(value=column, is_debezium=True, looks_for_more=True))
    inside, outside = change(after={"id": 1, "zip": 5}), change(after={"id": 2, "city": "Turin"})

    for value, name in (({"payload": inside}, "zip"), (outside, "city")):
        batch = pa.record_batch({"value": pa.array([json.dumps(value).encode()])})
        found = decoder.decode(batch).found

        assert found is not None
        assert name in {field.name for field in found}  # type: ignore[attr-defined]

"""Times that tables cannot have."""

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest

from cordwood.spark.decoding.column_format import ColumnFormat, Encoding
from cordwood.spark.decoding.debezium import envelope_type, open_envelope
from cordwood.spark.decoding.decoded_values import DecodedValues
from cordwood.spark.decoding.time_limits import TimeLimits, has_times
from cordwood.spark.decoding.type_text import parse_schema, render_schema

DAY = pa.date32()
TIME = pa.timestamp("us", tz="UTC")


class Ready:
    """A decoder of values that are decoded already."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind

    def decode(self, values: "pa.Array[Any]") -> DecodedValues:
        return DecodedValues(values=values, reasons=pa.nulls(len(values), pa.string()))


def limited(values: list[Any], kind: pa.DataType) -> DecodedValues:
    found = TimeLimits(Ready(kind)).decode(pa.array([None, *values], kind).slice(1))
    assert len(found.values) == len(values)
    return found


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("0000-12-31T23:59:59.999999Z", False),
        ("0001-01-01T00:00:00Z", True),
        ("9999-12-31T23:59:59.999999Z", True),
        ("9999-12-31T23:59:59-01:00", False),
        ("0001-01-01T00:00:00+01:00", False),
    ],
)
def test_times_of_json_are_those_that_every_reader_takes(text: str, fits: bool) -> None:
    schema = render_schema(parse_schema("at TIMESTAMP"))
    decoder = ColumnFormat(encoding=Encoding.JSON, schema=schema).open()

    found = decoder.decode(pa.array([json.dumps({"at": text}).encode()]))

    assert found.reasons.is_null()[0].as_py() == fits
    assert (found.values[0].as_py() is not None) == fits


def test_a_time_is_found_wherever_it_is() -> None:
    inside = pa.list_(pa.struct([("at", TIME), ("days", pa.map_(pa.string(), DAY))]))
    kind = pa.struct([("n", pa.int64()), ("list", inside)])
    good, bad, far = 0, 2**62, 3_000_000
    values = [
        {"n": 1, "list": [{"at": good, "days": []}, {"at": bad, "days": None}]},
        {"n": 2, "list": None},
        {"n": 3, "list": [{"at": good, "days": [("a", 5)]}, None]},
        None,
        {"n": 4, "list": [{"at": None, "days": [("a", 5), ("b", far)]}]},
    ]

    found = limited(values, kind)

    assert [str(reason).split(" ")[0] for reason in found.reasons.to_pylist()] == [
        "list.at", "None", "None", "None", "list.days",
    ]  # fmt: skip
    kept = [value and value["n"] for value in found.values.to_pylist()]
    assert kept == [None, 2, 3, None, None]


def test_values_with_good_times_stay_as_they_are() -> None:
    found = limited([datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)], DAY)

    assert found.reasons.null_count == 3
    assert found.values.null_count == 1


def test_only_types_with_times_are_looked_at() -> None:
    assert not has_times(pa.struct([("a", pa.list_(pa.string()))]))
    assert has_times(pa.map_(pa.string(), pa.list_(DAY)))


def test_the_time_of_a_change_has_the_same_limits() -> None:
    row = pa.struct([("id", pa.int64())])
    changes = [
        {"op": "c", "ts_ms": ms, "after": {"id": 1}}
        for ms in (1, None, 2**63 - 1, -(2**63), 253_402_300_799_999)
    ]

    opened = open_envelope(pa.array(changes, envelope_type(row)), row)

    assert opened.reasons.is_null().to_pylist() == [True, True, False, False, True]
    assert opened.changed_at.is_valid().to_pylist() == [True, False, False, False, True]

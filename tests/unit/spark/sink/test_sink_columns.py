"""The columns of a DataFrame that is written: Kafka's names and types, and a timestamp."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cordwood.errors import ConfigError
from cordwood.spark.sink.sink_columns import SinkColumns


def headers(value: DataType) -> DataType:
    return ArrayType(StructType([StructField("key", StringType()), StructField("value", value)]))


KINDS: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "headers": headers(BinaryType()),
    "text-headers": headers(StringType()),
    "map": MapType(StringType(), BinaryType()),
}


def columns(described: str, topic: str | None = "orders") -> SinkColumns:
    """Of a schema written as names and kinds."""
    pairs = [part.split() for part in described.split(",")]
    schema = StructType([StructField(name, KINDS[kind]) for name, kind in pairs])
    return SinkColumns.of(schema, topic=topic)


def test_columns_are_found_wherever_they_are() -> None:
    found = columns(
        "headers headers, topic string, value binary, key string, partition int, "
        "timestamp timestamp",
        topic=None,
    )

    assert found == SinkColumns(headers=0, topic=1, value=2, key=3, partition=4, timestamp=5)


def test_a_value_is_enough_where_the_option_names_the_topic() -> None:
    assert columns("value string") == SinkColumns(value=0)


def test_other_columns_are_passed_over() -> None:
    found = columns("offset bigint, timestampType int, value binary")

    assert found == SinkColumns(value=2)


def test_names_are_taken_without_regard_to_case() -> None:
    assert columns("Value binary, KEY binary") == SinkColumns(value=0, key=1)


@pytest.mark.parametrize(
    ("described", "named"),
    [
        ("key binary", "value"),
        ("value int", "value int"),
        ("value binary, key bigint", "key bigint"),
        ("value binary, topic int", "topic int"),
        ("value binary, partition bigint", "partition bigint"),
        ("value binary, timestamp bigint", "timestamp bigint"),
        ("value binary, headers map", "headers"),
        ("value binary, headers text-headers", "headers"),
        ("value binary, VALUE binary", "VALUE"),
    ],
)
def test_what_cannot_be_written_is_named(described: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        columns(described)


def test_a_topic_must_come_from_somewhere() -> None:
    with pytest.raises(ConfigError, match="topic"):
        columns("value binary", topic=None)

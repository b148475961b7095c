"""Schemas as texts: DDL and Spark's JSON."""

import pyarrow as pa
import pytest

from cordwood.errors import ConfigError
from cordwood.spark.decoding.type_text import parse_schema, render_schema


def test_ddl_and_json_are_the_same_schema() -> None:
    ddl = (
        "id BIGINT NOT NULL COMMENT 'the id', `a name` VARCHAR(20), p DECIMAL(10,2), "
        "l ARRAY<STRUCT<x:INT,y:MAP<STRING,DATE>>>, t TIMESTAMP"
    )

    kind = parse_schema(ddl)

    assert parse_schema(render_schema(kind)) == kind
    assert [kind.field(n).name for n in range(5)] == ["id", "a name", "p", "l", "t"]
    assert not kind.field(0).nullable
    assert kind.field(2).type == pa.decimal128(10, 2)
    assert kind.field(4).type == pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    "text",
    [
        "", "INT", "id", "id WRONG", "id INT,", "id INT name STRING", "{}", '{"type": "struct"}',
        "a INT, A INT", "a ARRAY<INT", "a DECIMAL(99)", "a STRUCT<>", "a " + "ARRAY<" * 60 + "INT",
        "id INT NOT", "'x' INT", "{", '{"type": "struct", "fields": 7}',
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="value schema"):
        parse_schema(text)


def test_the_number_of_fields_is_limited() -> None:
    with pytest.raises(ConfigError, match="more than 2000 fields"):
        parse_schema(", ".join(f"f{n} INT" for n in range(2001)))

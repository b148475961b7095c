"""Rules of schema evolution."""

import pyarrow as pa
import pytest

from cordwood.spark.decoding.type_merging import merge_types
from cordwood.spark.decoding.type_text import parse_schema


def merged(held: str, found: str, **rest: bool) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    result = merge_types(parse_schema(held), parse_schema(found), **rest)
    return str(result.type), result.added, (*result.contradicted, *result.refused)


@pytest.mark.parametrize(
    ("held", "found", "after"),
    [
        ("a INT", "a INT, b STRING", "a INT, b STRING"),  # added
        ("a INT, b STRING", "a INT", "a INT, b STRING"),  # removed
        ("a INT", "b INT", "a INT, b INT"),  # renamed
        ("a INT, f FLOAT", "a BIGINT, f DOUBLE", "a BIGINT, f DOUBLE"),  # widened
        ("a BIGINT", "a INT", "a BIGINT"),  # narrowed: it still fits
        ("a DECIMAL(5,2)", "a DECIMAL(9,2)", "a DECIMAL(9,2)"),
        ("a INT", "a INT NOT NULL, b INT NOT NULL", "a INT, b INT"),  # nullable stays nullable
        ("s STRUCT<x: INT>", "s STRUCT<y: INT>", "s STRUCT<x: INT, y: INT>"),  # nested
        ("l ARRAY<STRUCT<x: INT>>", "l ARRAY<STRUCT<x: BIGINT, y: INT>>",
         "l ARRAY<STRUCT<x: BIGINT, y: INT>>"),
        ("m MAP<STRING, STRUCT<x: INT>>", "m MAP<STRING, STRUCT<y: INT>>",
         "m MAP<STRING, STRUCT<x: INT, y: INT>>"),
    ],
)  # fmt: skip
def test_a_table_grows_with_its_schemas(held: str, found: str, after: str) -> None:
    result = merge_types(parse_schema(held), parse_schema(found))

    assert result.type == parse_schema(after)
    assert not result.contradicted
    assert not result.refused


@pytest.mark.parametrize("found", ["a STRING", "a DOUBLE", "a STRUCT<x: INT>", "a ARRAY<INT>"])
def test_a_field_does_not_change_its_kind(found: str) -> None:
    result = merge_types(parse_schema("a INT"), parse_schema(found))

    assert result.type == parse_schema("a INT")
    assert len(result.contradicted) == 1


def test_nothing_is_widened_where_the_format_cannot() -> None:
    result = merge_types(parse_schema("a INT"), parse_schema("a BIGINT"), widens=False)

    assert result.type == parse_schema("a INT")
    assert result.contradicted == ("a is int32, not int64",)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("A", "only in case"),
        ("x y", "do not accept"),
        ("b=c", "do not accept"),
        ("n" * 300, "do not"),
    ],
)
def test_names_that_tables_do_not_accept_are_refused(name: str, reason: str) -> None:
    found = pa.struct([pa.field(name, pa.int32())])

    result = merge_types(parse_schema("a INT"), found)

    assert result.type == parse_schema("a INT")
    assert reason in result.refused[0]


def test_a_table_does_not_grow_for_ever() -> None:
    many = pa.struct([pa.field(f"f{n}", pa.int32()) for n in range(50)])

    result = merge_types(parse_schema("a INT"), many, columns_max=10)

    assert len(result.added) == 9
    assert "too many" in result.refused[0]

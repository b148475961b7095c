"""The option `where`: what it understands, and what it says of texts that it does not."""

import time

import pytest

from cordwood.errors import ConfigError
from cordwood.quantities import TimestampMs
from cordwood.spark.where.condition import (
    ALWAYS,
    NEVER,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    KeyNullness,
    Membership,
)
from cordwood.spark.where.condition_text import parse_condition

NOW = TimestampMs(1_700_000_000_000)


def parse(text: str) -> Condition:
    return parse_condition(text, now_ms=NOW)


def offset(operator: str, value: int) -> Comparison:
    return Comparison(column="offset", operator=operator, value=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("offset > 5", offset(">", 5)),
        ("5 < offset", offset(">", 5)),
        ("OFFSET==5", offset("=", 5)),
        ("`Offset` > 5", offset(">", 5)),
        ("offset <> 5", offset("!=", 5)),
        ("NOT offset > 5", offset("<=", 5)),
        ("offset > -1", offset(">", -1)),
        ("offset BETWEEN 2 AND 4", AllOf((offset(">=", 2), offset("<=", 4)))),
        ("offset NOT BETWEEN 2 AND 4", AnyOf((offset("<", 2), offset(">", 4)))),
        (
            "offset = 1 OR offset = 2 AND offset = 3",
            AnyOf((offset("=", 1), AllOf((offset("=", 2), offset("=", 3))))),
        ),
        (
            "NOT (offset = 1 OR offset = 2)",
            AllOf((offset("!=", 1), offset("!=", 2))),
        ),
        ("partition IN (3, 1, 3)", Membership(column="partition", values=(1, 3), is_in=True)),
        ("key NOT IN ('b', 'a')", Membership(column="key", values=(b"a", b"b"), is_in=False)),
        ("key = 'it''s'", Comparison(column="key", operator="=", value=b"it's")),
        ("key = X'00fF'", Comparison(column="key", operator="=", value=b"\x00\xff")),
        ("key = CAST('a' AS BINARY)", Comparison(column="key", operator="=", value=b"a")),
        ("key IS NULL", KeyNullness(is_null=True)),
        ("NOT key IS NULL", KeyNullness(is_null=False)),
        ("offset IS NULL", NEVER),
        ("offset IS NOT NULL", ALWAYS),
    ],
)
def test_a_condition_has_the_meaning_that_it_has_in_sql(text: str, expected: Condition) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("'1970-01-01T00:00:05Z'", 5_000_000),
        ("TIMESTAMP '1970-01-01 01:00:05.000001+01:00'", 5_000_001),
        ("timestamp_millis(5000)", 5_000_000),
        ("timestamp_millis(-1)", -1_000),
        ("5000", 5_000_000),
        ("'-10m'", 1000 * (NOW - 600_000)),
    ],
)
def test_a_time_has_many_forms(text: str, microseconds: int) -> None:
    expected = Comparison(column="timestamp", operator=">=", value=microseconds)

    assert parse(f"timestamp >= {text}") == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a value must stand here, at the end"),
        ("offset", "a comparison must stand here"),
        ("offset >", "a value must stand here, at the end (character 9)"),
        ("offset > 'a'", "offset is compared with a whole number, at \"'a'\" (character 10)"),
        ("offset > 5 AND", "a value must stand here"),
        ("offset > 5 offset", "AND, OR or the end must follow, at 'offset' (character 12)"),
        ("offset NOT 5", "IN or BETWEEN must follow NOT"),
        ("`value` = 'a'", "only partition, offset, timestamp and key prune"),
        ("offset > 5 `AND` offset < 7", "not understood, at '`AND` offset < 7'"),
        ("(offset = 5", ") is missing"),
        ("offset IN ()", "a value must stand here"),
        ("value = 'a'", "only partition, offset, timestamp and key prune"),
        ("5 = 5", "partition, offset, timestamp or key must stand here"),
        ("key = 5", "a key is compared with 'text'"),
        ("key = X'0'", "must be pairs of hexadecimal digits"),
        ("key = 'a", "a string without its end"),
        (r"key = 'a\'", "a string without its end"),
        (r"key = '\ud800'", "half a character"),
        (r"key = '\UFFFFFFFF'", "half a character"),
        ("offset = \N{FULLWIDTH DIGIT ONE}", "not understood"),
        ("offset ; 5", "not understood"),
        ("timestamp > '2026-01-31T12:00:00'", "the time zone is missing"),
        ("timestamp > 'yesterday'", "a time with its zone"),
        ("timestamp > X'00'", "a time with its zone"),
        ("timestamp > timestamp_millis('a')", "a number must stand here"),
        ("offset > 9223372036854775808", "the number is too large"),
        ("offset > " + "9" * 5000, "the number is too large"),
        ("(" * 60 + "offset = 1" + ")" * 60, "more than 50 levels"),
        ("NOT " * 60 + "offset = 1", "more than 50 levels"),
        ("offset IN (" + "1," * 10_000 + "1)", "more than 10,000 values"),
        ("offset = 1 " * 10_000, "at most 100,000 characters"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match="where = ") as refused:
        parse(text)

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("literal", "key"),
    [
        (r"'a\\b'", rb"a\b"),
        (r"'a\b'", b"a\b"),
        (r"'o\'brien'", b"o'brien"),
        (r"'o''brien'", b"o'brien"),
        (r"'a\nb\t\r\0\Z'", b"a\nb\t\r\0\x1a"),
        (r"'\u0061\U0001F600\141'", "a\N{GRINNING FACE}a".encode()),
        (r"'\%\_\q\"'", rb"\%\_q" + b'"'),
        (r"CAST('\\' AS BINARY)", b"\\"),
    ],
)
def test_a_backslash_in_a_string_means_what_it_means_in_spark(literal: str, key: bytes) -> None:
    assert parse(f"key = {literal}") == Comparison(column="key", operator="=", value=key)


def test_the_longest_text_is_read_in_a_moment() -> None:
    text = " OR ".join(f"offset={number}" for number in range(6_000))
    started_s = time.process_time()

    assert len(parse(text).terms) == 6_000  # type: ignore[union-attr]
    assert time.process_time() - started_s < 2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.console.finding.query_syntax import QuerySyntaxError, parse_query
from cordwood.console.finding.query_tree import (
    And,
    Not,
    Or,
    PathMatch,
    RangeMatch,
    TextMatch,
    bounds_of,
)
from fakes.hostile_texts import HOSTILE


def word(text: str) -> TextMatch:
    return TextMatch(field="any", text=text)


def test_words_are_joined_by_and() -> None:
    assert parse_query("order paid") == And(items=(word("order"), word("paid")))


def test_or_binds_less_than_and() -> None:
    assert parse_query("a b or not c") == Or(
        items=(And(items=(word("a"), word("b"))), Not(item=word("c")))
    )


def test_brackets_group() -> None:
    assert parse_query("a (b or c)") == And(items=(word("a"), Or(items=(word("b"), word("c")))))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a b"', word("a b")),
        (r'"say \"hi\""', word('say "hi"')),
        ("/a+b/", TextMatch(field="any", text="a+b", is_regex=True)),
        ("key:x", TextMatch(field="key", text="x")),
        ("key=x", TextMatch(field="key", text="x", is_whole=True)),
        ("header.trace:ab", TextMatch(field="header", text="ab", header="trace")),
        (
            "value.order.id = 42",
            PathMatch(path=("order", "id"), operator="=", literal=42, text="42"),
        ),
        ("value.x < 1.50", PathMatch(path=("x",), operator="<", literal=1.5, text="1.50")),
        ('value.name ~ "x y"', PathMatch(path=("name",), operator="~", literal="x y", text="x y")),
        ("value.ok=true", PathMatch(path=("ok",), operator="=", literal=True, text="true")),
        ("partition:3", RangeMatch(field="partition", low=3, high=4)),
        ("offset:100..200", RangeMatch(field="offset", low=100, high=200)),
        ("size:>1KiB", RangeMatch(field="size", low=1025)),
        ("time:..1793523600000", RangeMatch(field="time", high=1793523600000)),
        ("https://a.b/c?d=e", word("https://a.b/c?d=e")),
    ],
)
def test_a_condition_says_what_it_says(text: str, expected: object) -> None:
    assert parse_query(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it ends where"),
        ("(a", "no closing"),
        ("a)", "no opening"),
        ("not", "it ends"),
        ("a or", "it ends"),
        ('"a', "no closing"),
        ("/(/", "not a regular expression"),
        ("offset:x", "not a whole number"),
        ("offset:9223372036854775807", "not a whole number"),
        ("partition:-1", "not a whole number"),
        ("size:>99999999999999999999GiB", "not a size"),
        ("time:>99999-01-01", "not a time"),
        ("value.a < true", "needs a number or a text"),
        ("\ud800", "half a character"),
        ("time:yesterday", "not a time"),
        ("a " * 41, "more than 40"),
        ("x" * 1001, "1000 are allowed"),
        ("(" * 30 + "a" + ")" * 30, "too deep"),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(QuerySyntaxError, match=reason):
        parse_query(text)


@given(st.text(max_size=60) | st.sampled_from(HOSTILE))
def test_any_text_is_a_search_or_is_refused(text: str) -> None:
    try:
        parse_query(text)
    except QuerySyntaxError as error:
        assert str(error)


def test_ranges_joined_by_and_bound_what_is_read() -> None:
    bounds = bounds_of(parse_query("x partition:3 offset:>=10 offset:<50 time:>1793523600000"))

    assert bounds.has_partition(3)
    assert not bounds.has_partition(2)
    assert (bounds.offset_low, bounds.offset_high) == (10, 50)
    assert bounds.time_low_ms == 1793523600001


def test_ranges_in_or_bound_nothing() -> None:
    bounds = bounds_of(parse_query("partition:3 or offset:5"))

    assert bounds.has_partition(0)
    assert bounds.offset_high is None

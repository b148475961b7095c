"""Regular expressions for topics: RE2's syntax, and no pattern that takes for ever."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.broker.patterns.topic_pattern import TopicPattern
from cordwood.broker.patterns.topic_pattern_syntax import InvalidPatternError

NAMES = (
    "a", "A", "b", "ab", "aa", "aaa", "aaaa", "ba", "orders", "orders-1", "orders-22", "Orders",
    "eu.orders", "eu_orders", "eu.orders.v2", "x-y_z.0", "0", "9", "-", "_", ".", "a.b",
)  # fmt: skip


def matching(pattern: str) -> set[str]:
    compiled = TopicPattern(pattern)
    return {name for name in NAMES if compiled.matches(name)}


@pytest.mark.parametrize(
    "pattern",
    [
        "orders",
        "orders.*",
        ".*orders",
        "^orders$",
        "orders|a",
        "^(orders|eu[._]orders)$",
        r"orders-\d+",
        r"orders-\d{2}",
        r"orders-\d{1,2}",
        r"orders(-\d+)?",
        "a+",
        "a*",
        "a{2,}",
        "a{0}",
        "[a-c]+",
        "[^a-c]+",
        "[]a]+",
        "[a-]+",
        r"[\w.]+",
        r"[^\d]+",
        r"\w+",
        r"\W",
        r".*\borders\b.*",
        r".*\Borders.*",
        "(?i)ORDERS",
        "(?i:O)rders",
        "(?s)orders.*",
        "(?:a|b)+",
        "(?P<first>a)(b)?",
        "(a*)*",
        "(a|a)*",
        "(a|)+b?",
        "()",
        "",
        "|",
        "a.b",
        r"a\.b",
        "a+?",
        "a??b",
        r"\x61+",
        r"\141",
        "{",
        "a{,2}",
        r"\Aorders",
    ],
)
def test_what_re_matches_whole_is_matched(pattern: str) -> None:
    expected = {name for name in NAMES if re.fullmatch(pattern, name, re.ASCII)}
    if pattern == "a{,2}":
        expected = set()  # RE2 takes a brace without a first number for itself; `re` does not

    assert matching(pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "like"),
    [
        (r"\Qa.b\E", r"a\.b"),
        (r"\Qa.b", r"a\.b"),
        (r"\Aorders\z", "orders"),
        ("[[:alpha:]]+", "[a-zA-Z]+"),
        ("[[:^alpha:]]+", "[^a-zA-Z]+"),
        ("[[:digit:]_]", "[0-9_]"),
        (r"\pL+", "[a-zA-Z]+"),
        (r"\p{Lu}.*", "[A-Z].*"),
        (r"\PL", "[^a-zA-Z]"),
        (r"\p{^L}", "[^a-zA-Z]"),
        ("(?<name>a)b", "ab"),
        (r"\x{61}", "a"),
        ("(?i-i)Orders", "Orders"),
        ("(?U)a+", "a+"),
    ],
)
def test_what_only_re2_knows_is_known(pattern: str, like: str) -> None:
    assert matching(pattern) == {name for name in NAMES if re.fullmatch(like, name, re.ASCII)}


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "(a", "a)", "[a", "[", "*", "+a", "a**", "a+*", "(?=a)", "(?!a)", "(?<=a)b",
        r"\1", r"(a)\1", "[b-a]", "a{2,1}", "a{1001}", "\\", r"\y", r"\Z", "[[:nope:]]",
        r"\p{Nope}x", "(?P<1>a)", "(?x)a", "(?P<n", r"\x{110000}", r"\xg", "(?i", r"[a-\d]",
        "(?--i)a",
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused_with_the_place(pattern: str) -> None:
    with pytest.raises(InvalidPatternError, match="at character"):
        TopicPattern(pattern)


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\.", "-", r"\b", "^", "$", "(?:)"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,1}"])).map(
            lambda parts: f"(?:{parts[0]}){parts[1]}"
        ),
    ),
    max_leaves=6,
)


@given(pattern=patterns, name=st.text("ab.-", max_size=6))
def test_any_pattern_matches_what_re_matches(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)


@given(pattern=st.text("ab\\()[]{}*+?|^$.-,0123:PQEdwpx<>i", max_size=20))
def test_any_text_is_a_pattern_or_is_refused(pattern: str) -> None:
    try:
        compiled = TopicPattern(pattern)
    except InvalidPatternError:
        return

    assert compiled.matches("a" * 249) in (True, False)


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|a)*b", "(a+)+b", "(.*)" * 9 + "b", "(a?){249}a{249}"]
)
def test_a_pattern_that_would_take_re_for_ever_does_not_take_us_so_long(pattern: str) -> None:
    compiled = TopicPattern(pattern)

    assert compiled.matches("a" * 249) == (pattern == "(a?){249}a{249}")


@pytest.mark.parametrize(
    "pattern", ["(a{1000}){1000}", "((((a{100}){100}){100}){100})", "a" * 40_000, "(" * 200]
)
def test_a_pattern_of_too_many_steps_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError):
        TopicPattern(pattern)


def test_nothing_repeated_is_nothing_however_often() -> None:
    pattern = TopicPattern("(((((((){1000}){1000}){1000}){1000}){1000}){1000}){1000}a")

    assert pattern.matches("a")


def test_a_hundred_groups_within_each_other_are_taken() -> None:
    pattern = TopicPattern("(?:" * 100 + "a|b" + ")*" * 100)

    assert pattern.matches("abba")


def test_a_pattern_that_becomes_too_much_work_says_so() -> None:
    # Each name leads to sets of steps not met before, of hundreds of steps each.
    pattern = TopicPattern("(?:.*a){30}.{900}")

    names = [format(number, "b").replace("0", "a") * 20 for number in range(2_000)]

    with pytest.raises(InvalidPatternError, match="too many steps"):
        any(pattern.matches(name) for name in names)


def test_a_thousand_names_are_a_pattern_too() -> None:
    pattern = TopicPattern("|".join(f"team-{number}-orders" for number in range(1000)))

    assert all(pattern.matches(f"team-{number}-orders") for number in range(1000))
    assert not any(pattern.matches(f"team-{number}-payments") for number in range(5000))

"""What follows from a condition without reading a row; and the rows that match it."""

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from cordwood.quantities import INT64_MAX
from cordwood.spark.where.condition import (
    COMPARE,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    KeyNullness,
    Membership,
    earliest_us,
    fewer_spans,
    negated,
    offset_spans,
    only_key,
    spans_suffice,
    within_partition,
)

KEYS = [b"", b"a", b"b"]
NUMBERS = st.integers(-1, 6)

_KEY = st.sampled_from(KEYS)
_LEAVES: st.SearchStrategy[Condition] = st.one_of(
    st.builds(
        Comparison,
        column=st.sampled_from(["partition", "offset", "timestamp"]),
        operator=st.sampled_from(sorted(COMPARE)),
        value=NUMBERS,
    ),
    st.builds(
        Comparison, column=st.just("key"), operator=st.sampled_from(sorted(COMPARE)), value=_KEY
    ),
    st.builds(
        Membership,
        column=st.sampled_from(["partition", "offset", "timestamp"]),
        values=st.lists(NUMBERS, min_size=1, unique=True).map(lambda v: tuple(sorted(v))),
        is_in=st.booleans(),
    ),
    st.builds(
        Membership,
        column=st.just("key"),
        values=st.lists(_KEY, min_size=1, unique=True).map(lambda v: tuple(sorted(v))),
        is_in=st.booleans(),
    ),
    st.builds(KeyNullness, is_null=st.booleans()),
)
CONDITIONS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(AllOf, st.lists(inner, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)
_ROWS = st.fixed_dictionaries(
    {
        "partition": st.integers(0, 3),
        "offset": st.integers(0, 6),
        "timestamp": NUMBERS,
        "key": st.one_of(st.none(), _KEY),
    }
)


def truth(condition: Condition, row: dict[str, object]) -> bool | None:
    """SQL's three values, written down as SQL defines them."""
    match condition:
        case AllOf(terms=terms):
            each = [truth(term, row) for term in terms]
            return False if False in each else None if None in each else True
        case AnyOf(terms=terms):
            each = [truth(term, row) for term in terms]
            return True if True in each else None if None in each else False
        case KeyNullness(is_null=is_null):
            return (row["key"] is None) == is_null
        case Comparison(column=column, operator=operator, value=value):
            return None if row[column] is None else COMPARE[operator](row[column], value)
        case Membership(column=column, values=values, is_in=is_in):
            return None if row[column] is None else (row[column] in values) == is_in


@given(CONDITIONS, _ROWS)
def test_a_negated_condition_is_sqls_not(condition: Condition, row: dict[str, object]) -> None:
    value = truth(condition, row)

    assert truth(negated(condition), row) == (None if value is None else not value)


@given(CONDITIONS, _ROWS)
def test_conclusions_never_leave_out_a_row_that_matches(
    condition: Condition, row: dict[str, object]
) -> None:
    left = within_partition(condition, row["partition"])  # type: ignore[arg-type]
    matches = truth(condition, row)
    is_in_spans = any(a <= row["offset"] < b for a, b in offset_spans(left))  # type: ignore[operator]
    earliest, key = earliest_us(left), only_key(left)

    assert truth(left, row) is matches or (not truth(left, row) and not matches)
    if matches:
        assert is_in_spans
        assert earliest is None or row["timestamp"] >= earliest  # type: ignore[operator]
        assert key is None or row["key"] == key
    elif spans_suffice(left):
        assert not is_in_spans


@given(st.lists(st.integers(0, 1000), max_size=90, unique=True), st.integers(1, 10))
def test_fewer_spans_hold_all_offsets_of_the_many(numbers: list[int], count_max: int) -> None:
    many = offset_spans(Membership(column="offset", values=tuple(sorted(numbers)), is_in=True))

    few = fewer_spans(many, count_max)

    assert len(few) <= count_max
    assert all(before[1] < after[0] for before, after in pairwise(few))
    assert all(any(a <= start and stop <= b for a, b in few) for start, stop in many)


def test_the_largest_gaps_stay_open() -> None:
    spans = [(0, 1), (2, 3), (100, 101), (103, 104), (900, INT64_MAX)]

    assert fewer_spans(spans, 3) == [(0, 3), (100, 104), (900, INT64_MAX)]

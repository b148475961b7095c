"""How the readers of a group share partitions."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cordwood.log.rules.partition_shares import share_partitions


def test_without_readers_nobody_gets_a_partition() -> None:
    assert share_partitions([], 3, {0: 7}) == {}


def test_a_single_reader_gets_every_partition() -> None:
    assert share_partitions([7], 3, {}) == {0: 7, 1: 7, 2: 7}


def test_a_second_reader_gets_half_and_the_first_keeps_the_rest() -> None:
    assert share_partitions([1, 2], 4, {0: 1, 1: 1, 2: 1, 3: 1}) == {0: 1, 1: 1, 2: 2, 3: 2}


def test_the_partitions_of_a_reader_that_left_go_to_the_others() -> None:
    assert share_partitions([1, 3], 4, {0: 1, 1: 2, 2: 2, 3: 3}) == {0: 1, 1: 1, 2: 3, 3: 3}


def test_more_readers_than_partitions_leave_the_last_ones_without() -> None:
    assert share_partitions([1, 2, 3], 2, {0: 1, 1: 2}) == {0: 1, 1: 2}


@given(
    readers=st.lists(st.integers(0, 9), unique=True, min_size=1),
    count=st.integers(0, 40),
    before=st.dictionaries(st.integers(0, 50), st.integers(0, 9)),
)
def test_shares_are_complete_even_and_move_as_little_as_possible(
    readers: list[int], count: int, before: dict[int, int]
) -> None:
    shares = share_partitions(readers, count, before)

    assert sorted(shares) == list(range(count))
    sizes = Counter(shares.values())
    counts = sorted((sizes[reader] for reader in readers), reverse=True)
    assert counts[0] - counts[-1] <= 1
    had = Counter(who for partition, who in before.items() if partition < count and who in readers)
    most_kept = sum(map(min, sorted((had[r] for r in readers), reverse=True), counts))
    assert sum(shares[p] == before.get(p) for p in range(count)) == most_kept

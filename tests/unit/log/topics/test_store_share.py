"""Which process of a node owns which partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.log.topics.store_share import StoreShare, owner_of

COUNTS = st.integers(min_value=1, max_value=64)
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)


@given(topic=TOPICS, partitions=st.integers(1, 200), count=COUNTS)
def test_every_partition_has_one_owner_and_the_keeper_has_none(
    topic: str, partitions: int, count: int
) -> None:
    shares = [StoreShare(count=count, index=index) for index in range(count)]
    here = [
        {n for n in range(partitions) if not share.absent(topic, partitions) >> n & 1}
        for share in shares
    ]

    assert sorted(n for numbers in here for n in numbers) == list(range(partitions))
    for share, numbers in zip(shares, here, strict=True):
        assert numbers == {n for n in range(partitions) if share.owns(topic, n)}
    assert StoreShare(count=count).absent(topic, partitions) == (1 << partitions) - 1


@given(topic=TOPICS, count=COUNTS)
def test_neighbours_have_different_owners(topic: str, count: int) -> None:
    owners = [owner_of(topic, number, count) for number in range(count)]

    assert sorted(owners) == list(range(count))


@pytest.mark.parametrize(("topic", "owner"), [("orders", 2), ("__consumer_offsets", 1)])
def test_owners_are_the_same_in_all_versions(topic: str, owner: int) -> None:
    assert owner_of(topic, 0, 3) == owner

"""A consumer group as library users see it."""

import pytest

from cordwood.errors import ConfigError, InvalidRecordError
from cordwood.log.store.store import Store
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

ORDERS = ("orders", 0)


OTHER = ("orders", 1)


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture
def store(fs: SimulatedFileSystem) -> Store:
    return open_store(fs)


def test_a_group_that_never_committed_has_nothing(store: Store) -> None:
    group = store.group("billing")

    assert group.committed() == {}
    assert group.committed(ORDERS) is None
    assert group.committed("orders", 0) is None
    assert store.groups() == []
    assert store.topics(include_internal=True) == [], "asking creates nothing"


def test_the_newest_commit_counts(store: Store) -> None:
    group = store.group("billing")
    group.commit({ORDERS: 5, OTHER: 7})
    group.commit({ORDERS: 6})

    assert group.committed() == {ORDERS: 6, OTHER: 7}
    assert group.committed(ORDERS) == group.committed("orders", 0) == 6
    assert group.committed("orders") == {ORDERS: 6, OTHER: 7}
    assert group.committed("others") == {}


def test_a_commit_may_go_back(store: Store) -> None:
    group = store.group("billing")
    group.commit({ORDERS: 50})

    group.commit({ORDERS: 0})

    assert group.committed(ORDERS) == 0


def test_groups_do_not_mix_and_are_listed(store: Store) -> None:
    store.group("b").commit({ORDERS: 1})
    store.group("a").commit({ORDERS: 2})

    assert store.group("a").committed() == {ORDERS: 2}
    assert store.group("b").committed() == {ORDERS: 1}
    assert store.groups() == ["a", "b"]


def test_metadata_and_time_are_kept(store: Store) -> None:
    store.group("billing").commit({ORDERS: (5, "host-7")})

    detail = store.group("billing").details()[ORDERS]

    assert (detail.offset, detail.metadata) == (5, "host-7")
    assert detail.committed_ms > 0


def test_forgetting_takes_the_named_or_all(store: Store) -> None:
    group = store.group("billing")
    group.commit({ORDERS: 5, OTHER: 7})

    group.forget(ORDERS)
    one_left = group.committed()
    group.forget()

    assert one_left == {OTHER: 7}
    assert group.committed() == {}
    assert store.groups() == []
    group.forget()
    store.group("nobody").forget(ORDERS)


@pytest.mark.parametrize("offset", [-1, -5])
def test_a_negative_offset_is_refused_and_nothing_of_the_commit_is_kept(
    store: Store, offset: int
) -> None:
    with pytest.raises(InvalidRecordError):
        store.group("billing").commit({OTHER: 3, ORDERS: offset})

    assert store.group("billing").committed() == {}


def test_metadata_beyond_kafka_s_limit_is_refused(store: Store) -> None:
    group = store.group("billing")
    group.commit({ORDERS: (1, "x" * 4096)})

    with pytest.raises(InvalidRecordError):
        group.commit({ORDERS: (2, "x" * 4097)})

    assert group.committed(ORDERS) == 1


def test_a_group_needs_a_name(store: Store) -> None:
    with pytest.raises(ConfigError):
        store.group("")


def test_an_empty_commit_is_nothing(store: Store) -> None:
    store.group("billing").commit({})

    assert store.group("billing").committed() == {}

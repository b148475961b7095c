"""Where groups go on reading, kept in the topic that Kafka keeps it in."""

import random

import pytest

from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, open_store
from varve.errors import ConfigError, InvalidRecordError
from varve.format.group_offsets import OffsetKey, decode_group_key
from varve.log.store import Store

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


@pytest.mark.parametrize("how", ["close", "kill", "crash"])
def test_commits_survive_the_process(fs: SimulatedFileSystem, store: Store, how: str) -> None:
    store.group("billing").commit({ORDERS: 5})
    store.group("billing").commit({ORDERS: 9, OTHER: 1})
    if how == "close":
        store.close()
    after = fs.crash(random.Random(3)) if how == "crash" else fs.kill()

    again = open_store(after)

    assert again.group("billing").committed() == {ORDERS: 9, OTHER: 1}


def test_they_are_records_of_kafka_s_compacted_topic(store: Store) -> None:
    store.group("billing").commit({ORDERS: 5})

    assert store.topics() == []
    topic = store.topic("__consumer_offsets")
    assert topic.config.is_compacted
    [record] = [r for log in topic.partitions for r in log.read()]
    assert decode_group_key(record.key or b"") == OffsetKey(
        group="billing", topic="orders", partition=0
    )


def test_records_of_other_kinds_in_the_topic_are_passed_over(store: Store) -> None:
    store.group("billing").commit({ORDERS: 5})
    log = log_of(store, "__consumer_offsets")
    for key in (b"\x00\x02\x00\x03abc", b"\x00\x63junk", b"", b"\x00\x01\x00"):
        log.append(b"whatever", key=key)
    store.group("billing").commit({OTHER: 6})

    assert store.group("billing").committed() == {ORDERS: 5, OTHER: 6}


def test_an_empty_commit_is_nothing(store: Store) -> None:
    store.group("billing").commit({})

    assert store.group("billing").committed() == {}

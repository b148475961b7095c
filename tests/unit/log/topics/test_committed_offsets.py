"""Where groups go on reading, kept in the topic that Kafka keeps it in."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from cordwood.format.groups.group_offsets import OffsetKey, decode_group_key, group_partition
from cordwood.log.reading.file_range import read_range
from cordwood.log.store.store import Store
from cordwood.log.topics.committed_offsets import CommittedOffset, offset_record
from cordwood.quantities import LeaderEpoch, Offset, TimestampMs
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, open_store

ORDERS = ("orders", 0)


OTHER = ("orders", 1)


NOW = TimestampMs(1_700_000_000_000)


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture
def store(fs: SimulatedFileSystem) -> Store:
    return open_store(fs)


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


# --- one table for everyone ---------------------------------------------------------------------


def test_what_is_appended_through_the_table_is_not_read_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = store.committed_offsets
    store.group("billing").commit({ORDERS: 5})
    monkeypatch.setattr("cordwood.log.reading.latest_by_key.read_runs", None)

    store.group("billing").commit({ORDERS: 6})

    assert table.is_current("billing")
    assert table.is_current()
    assert store.group("billing").committed(ORDERS) == 6
    assert store.groups() == ["billing"]


def test_records_that_came_another_way_are_read_when_someone_asks(store: Store) -> None:
    table = store.committed_offsets
    store.group("billing").commit({ORDERS: 5})
    record = offset_record(
        "billing",
        OTHER,
        CommittedOffset(offset=Offset(7), leader_epoch=LeaderEpoch(3), committed_ms=NOW),
    )
    log_of(store, "__consumer_offsets").append(record[1], key=record[0])

    before = (table.is_current("billing"), set(table.known_of_group("billing")))
    found = table.of_group("billing")

    assert before == (False, {ORDERS})
    assert (found[OTHER].offset, found[OTHER].leader_epoch) == (7, 3)
    assert table.is_current("billing")


def test_an_append_behind_records_nobody_read_does_not_hide_them(store: Store) -> None:
    store.group("billing").commit({ORDERS: 5})
    record = offset_record("billing", OTHER, CommittedOffset(offset=Offset(7), committed_ms=NOW))
    log_of(store, "__consumer_offsets").append(record[1], key=record[0])

    store.group("billing").commit({ORDERS: 6})

    assert store.group("billing").committed() == {ORDERS: 6, OTHER: 7}


def test_offsets_of_a_deleted_topic_are_forgotten(fs: SimulatedFileSystem, store: Store) -> None:
    store.create_topic("orders")
    store.create_topic("returns")
    store.group("billing").commit({ORDERS: 5, ("returns", 0): 1})
    store.group("shipping").commit({ORDERS: 5})

    store.delete_topic("orders")

    assert store.group("billing").committed() == {("returns", 0): 1}
    assert store.groups() == ["billing"]
    store.close()
    assert open_store(fs.kill()).group("shipping").committed() == {}


def test_offsets_of_an_earlier_topic_of_the_same_name_are_not_the_new_one_s(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_topic("orders")
    store.group("billing").commit({ORDERS: 5})
    monkeypatch.setattr(store.committed_offsets, "remove_topics", lambda names: None)
    store.delete_topic("orders")

    store.create_topic("orders")

    assert store.group("billing").committed() == {}
    assert store.committed_offsets.known_places("billing") == {ORDERS}


def test_a_topic_is_deleted_even_where_its_offsets_cannot_be(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.create_topic("orders")
    store.group("billing").commit({ORDERS: 5})
    log_of(store, "__consumer_offsets").close()

    store.delete_topic("orders")

    assert store.topics() == []
    assert "orders" in caplog.text


def test_when_the_topic_of_offsets_is_deleted_there_are_none(store: Store) -> None:
    store.group("billing").commit({ORDERS: 5})

    store.delete_topic("__consumer_offsets")
    without = (store.groups(), store.group("billing").committed())
    store.group("shipping").commit({ORDERS: 1})

    assert without == ([], {})
    assert store.groups() == ["shipping"]


def test_damage_to_the_topic_costs_what_it_hit_and_no_other_group(
    fs: SimulatedFileSystem, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c"):
        store.group(name).commit({ORDERS: 5})
    log = log_of(store, "__consumer_offsets")
    found = read_range(log.source, 1, max_bytes=1)
    assert found is not None
    store.close()
    after = fs.kill()
    after.open_write(f"{log.directory}/{0:020}.log").write_at(found.position + 70, b"\xff")

    again = open_store(after)

    assert again.group("a").committed() == {ORDERS: 5}
    assert again.group("b").committed() == {}
    assert again.group("c").committed() == {ORDERS: 5}
    assert "__consumer_offsets-0" in caplog.text
    again.group("b").commit({ORDERS: 9})
    assert again.group("b").committed() == {ORDERS: 9}


def test_groups_are_spread_over_the_partitions_of_the_topic_as_kafka_does(store: Store) -> None:
    topic = store.offsets_topic.ensure(partitions=5)
    names = [f"group-{number}" for number in range(20)]

    for name in names:
        store.group(name).commit({ORDERS: 1})

    assert sum(log.high_watermark > 0 for log in topic.partitions) > 1
    assert store.groups() == sorted(names)
    for log in topic.partitions:
        for record in log.read():
            key = decode_group_key(record.key or b"")
            assert isinstance(key, OffsetKey)
            assert group_partition(key.group, 5) == log.partition


def test_loading_gives_the_newest_record_of_each_other_kind(store: Store) -> None:
    store.group("billing").commit({ORDERS: 5})
    partition = store.committed_offsets.partition_of("billing")
    kept, gone = b"\x00\x02\x00\x01a", b"\x00\x03\x00\x01b"
    store.committed_offsets.append(partition, [(kept, b"1"), (gone, b"x")])
    store.committed_offsets.append(partition, [(kept, b"2"), (gone, None)])

    others = store.committed_offsets.load()

    assert others == [(kept, b"2")]
    assert store.group("billing").committed() == {ORDERS: 5}


def test_commits_of_many_threads_are_all_seen(fs: SimulatedFileSystem, store: Store) -> None:
    def commit(number: int) -> Offset | None:
        group = store.group(f"group-{number % 3}")
        for offset in range(20):
            group.commit({("orders", number): offset})
            assert group.committed("orders", number) == offset
        return group.committed("orders", number)

    with ThreadPoolExecutor(6) as pool:
        last = list(pool.map(commit, range(6)))

    assert last == [19] * 6
    assert store.committed_offsets.is_current()
    again = open_store(fs.kill())
    assert again.group("group-0").committed() == {("orders", 0): 19, ("orders", 3): 19}

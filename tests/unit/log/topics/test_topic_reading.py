"""All partitions of a topic as one stream, and a store as a mapping of topics."""

import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import ReadOnlyError, TopicExistsError, UnknownPartitionError


def test_a_topic_is_read_in_order_of_time(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t", partitions=3)
        for n in range(30):
            topic.append(b"%d" % n, partition=n * 7 % 3, timestamp_ms=1000 + n)

        assert [int(r.value or b"") for r in topic] == list(range(30))
        assert [r.partition for r in topic.read()] == [n * 7 % 3 for n in range(30)]
        by_partition = [(r.partition, r.offset) for r in topic.read(order="partition")]
        assert by_partition == sorted(by_partition)
        with pytest.raises(ValueError, match="'time' or 'partition'"):
            topic.read(order="key")  # type: ignore[arg-type]


def test_following_a_topic_brings_records_of_all_partitions(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t", partitions=3)
        topic.append(b"before", partition=1)
        found: list[cordwood.TopicRecord] = []
        is_first = threading.Event()

        def follow() -> None:
            for record in topic.follow("start"):
                found.append(record)
                is_first.set()
                if len(found) == 31:
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        assert is_first.wait(60)
        for n in range(30):
            topic.append(b"%d" % n, partition=n % 3)
        thread.join(60)

        assert not thread.is_alive()
        for partition in range(3):
            offsets = [r.offset for r in found if r.partition == partition]
            assert offsets == list(range(len(offsets)))


def test_following_ends_when_nothing_comes_and_when_the_store_is_closed(tmp_path: Path) -> None:
    store = cordwood.open(tmp_path)
    topic = store.create_topic("t", partitions=2)
    topic.append(b"1", partition=0)

    assert [r.value for r in topic.follow("start", idle_timeout_ms=20)] == [b"1"]
    assert [r.value for r in topic.follow({0: 0}, idle_timeout_ms=20)] == [b"1"]
    assert list(topic.follow(idle_timeout_ms=20)) == []
    with pytest.raises(cordwood.errors.OffsetOutOfRangeError):
        topic.follow({0: 7})
    ended: list[object] = []
    thread = threading.Thread(target=lambda: ended.extend(topic.follow()))
    thread.start()
    store.close()
    thread.join(60)
    assert not thread.is_alive()


def test_a_partition_that_grows_while_it_is_followed_does_not_keep_the_others_waiting(
    tmp_path: Path,
) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t", partitions=2, config={"durability": "os"})
        topic.append(b"0", partition=0)
        topic.append(b"1", partition=1)
        partitions = []
        for record in topic.follow("start"):
            partitions.append(record.partition)
            if len(partitions) == 6:
                break
            if record.partition == 0:
                topic.append(b"more", partition=0)  # it always has one more

        assert partitions == [0, 1, 0, 0, 0, 0]


def test_following_sees_partitions_that_are_added_and_ends_when_the_topic_is_deleted(
    tmp_path: Path,
) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t")
        records = topic.follow()
        store.alter_topic("t", partitions=3)
        topic.append(b"new", partition=2)

        assert next(records).value == b"new"
        with pytest.raises(UnknownPartitionError):
            topic.follow({3: 0})
        with pytest.raises(ValueError, match="isolation"):
            topic.follow(isolation="dirty")  # type: ignore[arg-type]
        store.delete_topic("t")
        assert list(records) == []


def test_a_follower_in_the_middle_of_a_log_ends_when_the_store_is_closed(tmp_path: Path) -> None:
    store = cordwood.open(tmp_path)
    topic = store.create_topic("t", config={"durability": "os"})
    for _ in range(50):
        topic.append_many([(None, bytes(1000)) for _ in range(1000)])
    for records in (topic.follow("start"), topic[0].follow(0)):
        next(records)
    store.close()

    assert len(list(records)) < 50_000


def test_a_store_is_a_mapping_of_topics(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("orders", partitions=2)

        assert store["orders"] is topic
        assert store.create_topic("orders", exist_ok=True) is topic
        with pytest.raises(TopicExistsError):
            store.create_topic("orders")
        assert "orders" in store
        assert "other" not in store
        assert list(store) == ["orders"]
        with pytest.raises(KeyError):
            store["other"]
        assert topic[1] is topic.partition(1)
        assert topic[-1] is topic.partition(1)
        with pytest.raises(UnknownPartitionError):
            topic[2]
        assert "topics=1" in repr(store)
    with cordwood.open(tmp_path, read_only=True) as beside:
        assert "orders" in beside
        assert beside.create_topic("orders", exist_ok=True).name == "orders"
        with pytest.raises(ReadOnlyError):
            beside.create_topic("other", exist_ok=True)


def test_times_may_be_datetimes_with_a_zone(tmp_path: Path) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t", config={"message.timestamp.after.max.ms": "9000d"})
        topic.append(b"early", timestamp_ms=noon - timedelta(hours=1))
        topic.append(b"noon", timestamp_ms=noon)
        log = topic[0]

        assert log[1].time == noon
        assert log[1].timestamp_ms == 1772359200000
        assert log.offset_for_time(noon) == 1
        assert topic.offsets_for_time(noon) == {0: 1}
        assert topic.offsets_for_time(noon + timedelta(days=1)) == {0: 2}
        with pytest.raises(ValueError, match="time zone"):
            topic.append(b"x", timestamp_ms=datetime(2026, 3, 1))
        with pytest.raises(TypeError, match="datetime"):
            topic.append(b"x", timestamp_ms="now")  # type: ignore[arg-type]


@pytest.mark.parametrize("configured", ["disk", "os"])
@pytest.mark.parametrize("asked", ["disk", "os"])
def test_a_call_may_ask_for_another_durability(tmp_path: Path, configured: str, asked: str) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("t", config={"durability": configured})[0]
        log.append(b"1", durability=asked)  # type: ignore[arg-type]
        if asked == "disk":
            assert log.state.durable == 1
        # Readers see it soon, whatever was asked.
        assert next(log.follow(0, idle_timeout_ms=10_000)).value == b"1"
        with pytest.raises(ValueError, match="'disk' or 'os'"):
            log.append(b"2", durability="tape")  # type: ignore[arg-type]

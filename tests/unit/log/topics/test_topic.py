"""A topic: which partition a record goes to, and in what order."""

import pytest

from cordwood.errors import UnknownPartitionError
from cordwood.format.record import Record
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.log.topics.topic import Topic, partition_for
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store


@pytest.fixture
def store() -> Store:
    return open_store(SimulatedFileSystem())


@pytest.fixture
def topic(store: Store) -> Topic[PartitionLog]:
    return store.create_topic("events", partitions=3)


def values(topic: Topic[PartitionLog], partition: int) -> list[bytes | None]:
    return [record.value for record in topic.partition(partition).read()]


@pytest.mark.parametrize(
    ("key", "count", "partition"),
    [  # as Kafka's own partitioner has it: (murmur2(key) & 0x7fffffff) % count
        (b"21", 1000, (-973932308 & 0x7FFFFFFF) % 1000),
        (b"foobar", 7, (-790332482 & 0x7FFFFFFF) % 7),
        (b"abc", 3, 479470107 % 3),
        (b"", 5, (275646681 & 0x7FFFFFFF) % 5),
    ],
)
def test_a_key_goes_where_every_kafka_client_would_send_it(
    key: bytes, count: int, partition: int
) -> None:
    assert partition_for(key, count) == partition


def test_records_of_a_key_stay_together_and_in_order(topic: Topic[PartitionLog]) -> None:
    places = [topic.append(b"%d" % n, key=b"user") for n in range(5)]

    assert {place.partition for place in places} == {partition_for(b"user", 3)}
    assert [place.offset for place in places] == list(range(5))


def test_records_without_a_key_take_turns(topic: Topic[PartitionLog]) -> None:
    places = [topic.append(b"x").partition for _ in range(9)]

    assert sorted(places) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_partition_that_is_named_wins_over_the_key(topic: Topic[PartitionLog]) -> None:
    other = (partition_for(b"user", 3) + 1) % 3

    assert topic.append(b"x", key=b"user", partition=other).partition == other


@pytest.mark.parametrize("number", [-1, 3, 100])
def test_an_unknown_partition_is_refused_and_says_how_many_there_are(
    topic: Topic[PartitionLog], number: int
) -> None:
    with pytest.raises(UnknownPartitionError) as caught:
        topic.partition(number)
    with pytest.raises(UnknownPartitionError):
        topic.append(b"x", partition=number)
    with pytest.raises(UnknownPartitionError):
        topic.append_many([(None, b"x")], partition=number)

    assert (caught.value.partition, caught.value.count) == (number, 3)


def test_many_records_go_where_their_keys_say_and_keep_their_order(
    topic: Topic[PartitionLog],
) -> None:
    records = [(b"k%d" % (n % 7), b"%d" % n) for n in range(50)]

    places = topic.append_many(records)

    assert len(places) == 50
    for (key, value), place in zip(records, places, strict=True):
        assert place.partition == partition_for(key, 3)
        [found] = topic.partition(place.partition).read(place.offset, max_records=1)
        assert (found.key, found.value) == (key, value)
    for partition in range(3):
        numbers = [int(v or b"") for v in values(topic, partition)]
        assert numbers == sorted(numbers)


def test_many_records_without_keys_go_to_one_partition_at_a_time(
    topic: Topic[PartitionLog],
) -> None:
    first = topic.append_many([(None, b"a"), (None, b"b")])
    second = topic.append_many([(None, b"c")])

    assert {place.partition for place in first} != {place.partition for place in second}
    assert len({place.partition for place in first}) == 1


def test_places_can_be_asked_for_from_either_end_and_in_slices(topic: Topic[PartitionLog]) -> None:
    places = topic.append_many([(None, b"%d" % n) for n in range(5)], partition=1)

    assert places[0].offset == 0
    assert places[-1].offset == 4
    assert [place.offset for place in places[1:3]] == [1, 2]
    with pytest.raises(IndexError):
        places[5]
    assert [(r.partition, r.first_offset, r.next_offset) for r in places.ranges] == [(1, 0, 5)]


def test_places_carry_the_time_of_the_record(topic: Topic[PartitionLog]) -> None:
    places = topic.append_many([Record(b"a", timestamp_ms=5), Record(b"b")], partition=0)

    assert places[0].timestamp_ms == 5
    assert places[1].timestamp_ms == topic.append(b"c").timestamp_ms


def test_nothing_at_all_can_be_appended(topic: Topic[PartitionLog]) -> None:
    assert len(topic.append_many([])) == 0
    assert len(topic.append_many(iter([]))) == 0


def test_any_iterable_will_do(topic: Topic[PartitionLog]) -> None:
    places = topic.append_many(((b"k", b"%d" % n) for n in range(3)), partition=2)

    assert [place.offset for place in places] == [0, 1, 2]


def test_text_as_a_key_is_refused(topic: Topic[PartitionLog]) -> None:
    with pytest.raises(TypeError):
        topic.append(b"x", key="user")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        topic.append_many([("user", b"x")])  # type: ignore[list-item]


def test_partitions_are_listed_in_order(topic: Topic[PartitionLog]) -> None:
    assert [log.partition for log in topic.partitions] == [0, 1, 2]
    assert [log.name for log in topic.partitions] == ["events-0", "events-1", "events-2"]
    assert repr(topic) == "Topic('events', partitions=3)"

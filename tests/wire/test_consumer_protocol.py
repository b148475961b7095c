"""Groups of KIP-848, where the broker shares out the partitions: `group.protocol=consumer`."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient

import cordwood
from wire.members import ConfluentMember, Crew


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as members:
        yield members


def join(
    crew: Crew, broker: cordwood.Broker, group: str, *topics: str, **options: object
) -> ConfluentMember:
    return crew.add(
        ConfluentMember, broker.bootstrap_servers, group, topics, protocol="consumer", **options
    )


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_the_partitions_and_take_over_from_those_who_leave(
    broker: cordwood.Broker,
    make_topic: Callable[..., str],
    names: Iterator[str],
    crew: Crew,
    assignor: str,
) -> None:
    topic, group = make_topic(partitions=6), next(names)
    places = {(topic, number) for number in range(6)}
    for log in broker.store.topic(topic).partitions:
        log.append_many([(None, b"%d" % number) for number in range(10)])
    options = {"group.remote.assignor": assignor}

    join(crew, broker, group, topic, **options)
    crew.await_shared(places)
    second = join(crew, broker, group, topic, **options)
    crew.await_shared(places, sizes=[3, 3])
    join(crew, broker, group, topic, **options)
    crew.await_shared(places, sizes=[2, 2, 2])
    crew.dismiss(second)
    crew.await_shared(places, sizes=[3, 3])

    def is_all_received() -> bool:
        got = {(partition, offset) for _, partition, offset, _ in crew.received()}
        return len(got) == 60

    crew.poll_until(is_all_received, "not all was received")


def test_who_stays_keeps_what_it_has_while_others_come(
    broker: cordwood.Broker, make_topic: Callable[..., str], names: Iterator[str], crew: Crew
) -> None:
    topic, group = make_topic(partitions=4), next(names)
    places = {(topic, number) for number in range(4)}
    first = join(crew, broker, group, topic)
    crew.await_shared(places)

    join(crew, broker, group, topic)
    crew.await_shared(places, sizes=[2, 2])

    assert [len(revoked) for revoked in first.revoked] == [2]


def test_a_new_member_goes_on_where_the_group_has_committed(
    broker: cordwood.Broker, topic: str, names: Iterator[str], crew: Crew
) -> None:
    group = next(names)
    broker.store.topic(topic).append_many([(None, b"%d" % number) for number in range(10)])
    first = join(crew, broker, group, topic)
    crew.poll_until(lambda: len(first.received) == 10, "ten records were not received")
    first.commit()
    crew.dismiss(first)
    broker.store.topic(topic).append(b"the eleventh")

    second = join(crew, broker, group, topic)

    crew.poll_until(lambda: bool(second.received), "nothing was received")
    assert second.received == [(topic, 0, 10, b"the eleventh")]


def test_a_static_member_comes_back_to_its_partitions(
    broker: cordwood.Broker, make_topic: Callable[..., str], names: Iterator[str], crew: Crew
) -> None:
    topic, group = make_topic(partitions=4), next(names)
    places = {(topic, number) for number in range(4)}
    staying = join(crew, broker, group, topic, instance_id="one")
    crew.await_shared(places)
    leaving = join(crew, broker, group, topic, instance_id="two")
    crew.await_shared(places, sizes=[2, 2])
    mine, its = staying.assignment(), leaving.assignment()

    crew.dismiss(leaving)
    returned = join(crew, broker, group, topic, instance_id="two")
    crew.poll_until(lambda: returned.assignment() == its, "the partitions did not come back")

    assert staying.assignment() == mine
    assert len(staying.revoked) == 1


def test_a_pattern_takes_in_topics_as_they_come(
    broker: cordwood.Broker, make_topic: Callable[..., str], names: Iterator[str], crew: Crew
) -> None:
    first = make_topic(partitions=2)
    stem = first.rsplit("-", 1)[0]
    member = join(crew, broker, next(names), f"^{stem}-[0-9]+$")
    crew.poll_until(lambda: member.assignment() == {(first, 0), (first, 1)}, "not assigned")

    second = make_topic()

    wanted = {(first, 0), (first, 1), (second, 0)}
    crew.poll_until(lambda: member.assignment() == wanted, "the new topic was not assigned")


def test_partitions_that_come_and_topics_that_go_are_noticed(
    broker: cordwood.Broker, make_topic: Callable[..., str], names: Iterator[str], crew: Crew
) -> None:
    growing, going = make_topic(), make_topic()
    member = join(crew, broker, next(names), growing, going)
    crew.poll_until(lambda: member.assignment() == {(growing, 0), (going, 0)}, "not assigned")

    broker.store.alter_topic(growing, partitions=2)
    crew.poll_until(lambda: (growing, 1) in member.assignment(), "not assigned")
    broker.store.delete_topic(going)

    crew.poll_until(lambda: (going, 0) not in member.assignment(), "still assigned")


def test_the_group_is_described_as_what_it_is(
    broker: cordwood.Broker, make_topic: Callable[..., str], names: Iterator[str], crew: Crew
) -> None:
    topic, group = make_topic(partitions=2), next(names)
    join(crew, broker, group, topic)
    crew.await_shared({(topic, 0), (topic, 1)})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    described = admin.describe_consumer_groups([group])[group].result(30)
    listed = admin.list_consumer_groups().result(30)

    assert described.type == ConsumerGroupType.CONSUMER
    assert described.state == ConsumerGroupState.STABLE
    assert [
        {(place.topic, place.partition) for place in member.assignment.topic_partitions}
        for member in described.members
    ] == [{(topic, 0), (topic, 1)}]
    types = {item.group_id: item.type for item in listed.valid}
    assert types[group] == ConsumerGroupType.CONSUMER


def test_a_group_may_change_its_protocol_once_nobody_is_in_it(
    broker: cordwood.Broker, topic: str, names: Iterator[str], crew: Crew
) -> None:
    group = next(names)
    broker.store.topic(topic).append_many([(None, b"%d" % number) for number in range(4)])
    classic = crew.add(ConfluentMember, broker.bootstrap_servers, group, [topic])
    crew.poll_until(lambda: len(classic.received) == 4, "not received")
    classic.commit()
    crew.dismiss(classic)

    modern = join(crew, broker, group, topic)
    broker.store.topic(topic).append(b"for the modern")
    crew.poll_until(lambda: bool(modern.received), "nothing was received")
    modern.commit()
    crew.dismiss(modern)
    broker.store.topic(topic).append(b"for the classic")
    last = crew.add(ConfluentMember, broker.bootstrap_servers, group, [topic])
    crew.poll_until(lambda: bool(last.received), "nothing was received")

    assert modern.received == [(topic, 0, 4, b"for the modern")]
    assert last.received == [(topic, 0, 5, b"for the classic")]

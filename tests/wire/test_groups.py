"""Groups: partitions are shared out, members come and go, and go on where was committed."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cordwood
from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.protocol.api_catalog import ApiKey
from wire.members import MEMBERS, AioMember, ConfluentMember, Crew, PythonMember
from wire.raw_client import RawClient

every_kind = pytest.mark.parametrize("kind", MEMBERS.values(), ids=MEMBERS)
every_kind_and_strategy = pytest.mark.parametrize(
    ("kind", "strategy"),
    [(kind, strategy) for kind in MEMBERS.values() for strategy in kind.strategies],
    ids=[f"{name} {strategy}" for name, kind in MEMBERS.items() for strategy in kind.strategies],
)


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as members:
        yield members


def fill(broker: cordwood.Broker, topic: str, count: int) -> list[bytes]:
    """Append `count` records to each partition; return all values."""
    values = []
    for log in broker.store.topic(topic).partitions:
        mine = [b"%s-%d-%d" % (topic[:20].encode(), log.partition, n) for n in range(count)]
        log.append_many([(None, value) for value in mine])
        values += mine
    return values


@every_kind_and_strategy
def test_members_share_the_partitions_and_take_over_from_those_who_leave(
    broker: cordwood.Broker,
    make_topic: Callable[..., str],
    names: Iterator[str],
    crew: Crew,
    kind: Any,
    strategy: str,
) -> None:
    topic, group = make_topic(partitions=6), next(names)
    places = {(topic, number) for number in range(6)}
    values = fill(broker, topic, 10)

    first = crew.add(kind, broker.bootstrap_servers, group, [topic], strategy=strategy)
    crew.await_shared(places)
    second = crew.add(kind, broker.bootstrap_servers, group, [topic], strategy=strategy)
    crew.await_shared(places, sizes=[3, 3])
    crew.add(kind, broker.bootstrap_servers, group, [topic], strategy=strategy)
    crew.await_shared(places, sizes=[2, 2, 2])
    crew.dismiss(second)
    crew.await_shared(places, sizes=[3, 3])
    crew.poll_until(
        lambda: {value for *_, value in crew.received()} >= set(values), "not all was received"
    )

    assert first.assignment()


def test_clients_of_different_kinds_form_one_group(
    broker: cordwood.Broker, make_topic: Callable[..., str], names: Iterator[str], crew: Crew
) -> None:
    topic, group = make_topic(partitions=6), next(names)
    values = fill(broker, topic, 10)

    for kind in (ConfluentMember, PythonMember, AioMember):
        crew.add(kind, broker.bootstrap_servers, group, [topic], strategy="range")
    crew.await_shared({(topic, number) for number in range(6)}, sizes=[2, 2, 2])
    crew.poll_until(
        lambda: {value for *_, value in crew.received()} >= set(values), "not all was received"
    )


@every_kind
def test_a_new_member_goes_on_where_the_group_has_committed(
    broker: cordwood.Broker, topic: str, names: Iterator[str], crew: Crew, kind: Any
) -> None:
    group = next(names)
    fill(broker, topic, 10)
    first = crew.add(kind, broker.bootstrap_servers, group, [topic])
    crew.poll_until(lambda: len(first.received) == 10, "ten records were not received")
    first.commit()
    crew.dismiss(first)
    broker.store.topic(topic).append(b"the eleventh")

    second = crew.add(kind, broker.bootstrap_servers, group, [topic])

    crew.poll_until(lambda: bool(second.received), "nothing was received")
    assert second.received == [(topic, 0, 10, b"the eleventh")]
    assert broker.store.group(group).committed(topic, 0) == 10


@every_kind
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    broker: cordwood.Broker,
    make_topic: Callable[..., str],
    names: Iterator[str],
    crew: Crew,
    kind: Any,
) -> None:
    topic, group = make_topic(partitions=4), next(names)
    places = {(topic, number) for number in range(4)}
    staying = crew.add(kind, broker.bootstrap_servers, group, [topic], instance_id="one")
    crew.await_shared(places)
    leaving = crew.add(kind, broker.bootstrap_servers, group, [topic], instance_id="two")
    crew.await_shared(places, sizes=[2, 2])
    mine, its = staying.assignment(), leaving.assignment()
    generation = generation_of(broker, group)

    crew.dismiss(leaving)
    crew.poll_until(lambda: staying.assignment() == mine, "what was there is gone")
    returned = crew.add(kind, broker.bootstrap_servers, group, [topic], instance_id="two")
    crew.poll_until(lambda: returned.assignment() == its, "the partitions did not come back")

    assert staying.assignment() == mine
    assert generation_of(broker, group) == generation


def generation_of(broker: cordwood.Broker, group: str) -> int:
    found = broker._running().services._coordinator.find(group)
    assert isinstance(found, ClassicGroup)
    return found.generation


@every_kind
def test_partitions_added_to_a_topic_are_shared_out_too(
    broker: cordwood.Broker, topic: str, names: Iterator[str], crew: Crew, kind: Any
) -> None:
    crew.add(kind, broker.bootstrap_servers, next(names), [topic])
    crew.await_shared({(topic, 0)})

    broker.store.alter_topic(topic, partitions=3)

    crew.await_shared({(topic, 0), (topic, 1), (topic, 2)})


def test_a_member_that_falls_silent_is_taken_over_from(
    broker: cordwood.Broker, topic: str, names: Iterator[str], crew: Crew
) -> None:
    group = next(names)
    silent = {
        "group_id": group,
        "session_timeout": 500,
        "rebalance_timeout": 500,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    with RawClient(broker.bootstrap_servers) as client:
        assert client.call(ApiKey.JOIN_GROUP, 1, silent).error_code == 0

        crew.add(ConfluentMember, broker.bootstrap_servers, group, [topic])
        crew.await_shared({(topic, 0)})


def test_a_consumer_that_commits_by_itself_goes_on_where_it_closed(
    broker: cordwood.Broker, topic: str, names: Iterator[str], crew: Crew
) -> None:
    group = next(names)
    fill(broker, topic, 5)
    options = {"enable.auto.commit": True}
    first = crew.add(ConfluentMember, broker.bootstrap_servers, group, [topic], **options)
    crew.poll_until(lambda: len(first.received) == 5, "not received")

    crew.dismiss(first)

    assert broker.store.group(group).committed(topic, 0) == 5

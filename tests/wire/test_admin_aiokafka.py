"""Administration with aiokafka, which speaks the oldest versions that are served."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

import cordwood
from wire.judges import run_async
from wire.members import AioMember, Crew

T = TypeVar("T")
WithAdmin = Callable[[Callable[[AIOKafkaAdminClient], Awaitable[Any]]], Any]


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as members:
        yield members


@pytest.fixture
def with_admin(broker: cordwood.Broker) -> WithAdmin:
    """Runs a coroutine with a client that is started before and closed after."""

    def run(work: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
        async def whole() -> T:
            admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
            await admin.start()
            try:
                return await work(admin)
            finally:
                await admin.close()

        return run_async(whole)

    return run


def test_topics_are_created_described_and_deleted(
    broker: cordwood.Broker, with_admin: WithAdmin, names: Iterator[str]
) -> None:
    name = next(names)
    new = NewTopic(name, 2, 1, topic_configs={"retention.ms": "1000"})

    async def work(admin: AIOKafkaAdminClient) -> tuple[Any, ...]:
        created = await admin.create_topics([new])
        again = await admin.create_topics([new])
        await admin.create_partitions({name: NewPartitions(3)})
        (described,) = await admin.describe_topics([name])
        retention_ms = broker.store.topic(name).config.retention_ms
        deleted = await admin.delete_topics([name])
        return created, again, described, retention_ms, deleted, await admin.list_topics()

    created, again, described, retention_ms, deleted, listed = with_admin(work)

    assert [code for _, code, *_ in created.topic_errors] == [0]
    assert [code for _, code, *_ in again.topic_errors] == [36]
    assert [part["partition"] for part in described["partitions"]] == [0, 1, 2]
    assert retention_ms == 1000
    assert deleted.topic_error_codes == [(name, 0)]
    assert name not in listed


def test_records_are_deleted_up_to_an_offset(
    broker: cordwood.Broker, with_admin: WithAdmin, topic: str
) -> None:
    broker.store.topic(topic).append_many([(None, b"x")] * 10)
    place = TopicPartition(topic, 0)

    deleted = with_admin(lambda admin: admin.delete_records({place: RecordsToDelete(4)}))

    assert deleted == {place: 4}
    assert broker.store.topic(topic).partition(0).start_offset == 4


def test_configuration_is_described_and_replaced(
    broker: cordwood.Broker, with_admin: WithAdmin, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(retention_ms=5000)

    async def work(admin: AIOKafkaAdminClient) -> tuple[Any, Any]:
        (described,) = await admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": ""})]
        )
        altered = await admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "60000"})]
        )
        return described, altered[0]

    described, altered = with_admin(work)

    ((code, _, _, name, entries),) = described.resources
    assert (code, name) == (0, topic)
    assert [(entry[0], entry[1]) for entry in entries] == [("retention.ms", "5000")]
    assert [resource[0] for resource in altered.resources] == [0]
    assert broker.store.registry.overrides(topic) == {"segment.ms": "60000"}


def test_groups_are_listed_and_described_and_their_offsets_listed(
    broker: cordwood.Broker, with_admin: WithAdmin, topic: str, names: Iterator[str], crew: Crew
) -> None:
    group = next(names)
    broker.store.topic(topic).append_many([(None, b"x")] * 3)
    member = crew.add(AioMember, broker.bootstrap_servers, group, [topic])
    crew.poll_until(lambda: len(member.received) == 3, "not received")
    member.commit()

    async def work(admin: AIOKafkaAdminClient) -> tuple[Any, ...]:
        (described,) = await admin.describe_consumer_groups([group])
        return (
            await admin.list_consumer_groups(),
            described,
            await admin.list_consumer_group_offsets(group),
        )

    listed, described, offsets = with_admin(work)

    assert (group, "consumer") in listed
    code, name, state, kind, protocol, members = described.groups[0][:6]
    assert (code, name, state, kind, protocol) == (0, group, "Stable", "consumer", "range")
    assert len(members) == 1
    assert {place: found.offset for place, found in offsets.items()} == {
        TopicPartition(topic, 0): 3
    }


def test_the_cluster_is_one_broker(broker: cordwood.Broker, with_admin: WithAdmin) -> None:
    cluster = with_admin(lambda admin: admin.describe_cluster())

    assert [(node["node_id"], node["port"]) for node in cluster["brokers"]] == [(1, broker.port)]
    assert cluster["cluster_id"] == broker.store.cluster_id

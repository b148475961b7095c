"""Administration with confluent-kafka."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

import cordwood
from wire.members import ConfluentMember, Crew

S = 60
SET = AlterConfigOpType.SET


@pytest.fixture
def admin(broker: cordwood.Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as members:
        yield members


def refused_with(call: Callable[[], object]) -> int:
    """The code of the error that `call` raises."""
    with pytest.raises(KafkaException) as raised:
        call()
    error: KafkaError = raised.value.args[0]
    return error.code()


def config_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    entries: dict[str, Any] = admin.describe_configs([resource])[resource].result(S)
    return entries


# --- topics -------------------------------------------------------------------------------------


def test_topics_are_created_described_and_deleted(
    broker: cordwood.Broker, admin: AdminClient, names: Iterator[str]
) -> None:
    name = next(names)

    admin.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "1000"})])[name].result(S)
    described = admin.describe_topics(TopicCollection([name]))[name].result(S)
    topic = broker.store.topic(name)
    admin.delete_topics([name])[name].result(S)

    assert described.name == name
    assert not described.is_internal
    assert str(described.topic_id) != ""
    assert [part.id for part in described.partitions] == [0, 1, 2]
    assert {part.leader.id for part in described.partitions} == {1}
    assert topic.config.retention_ms == 1000
    assert broker.store.registry.find(name) is None
    assert name not in admin.list_topics(timeout=S).topics


def test_creating_a_topic_twice_wrongly_or_only_for_show_is_told(
    broker: cordwood.Broker, admin: AdminClient, topic: str, names: Iterator[str]
) -> None:
    def create(new: NewTopic, **options: object) -> None:
        admin.create_topics([new], **options)[new.topic].result(S)

    shown = next(names)
    create(NewTopic(shown, 1, 1), validate_only=True)

    assert broker.store.registry.find(shown) is None
    assert refused_with(lambda: create(NewTopic(topic, 1, 1))) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refused_with(lambda: create(NewTopic("no/name", 1, 1))) == KafkaError.TOPIC_EXCEPTION
    assert (
        refused_with(lambda: create(NewTopic(next(names), 1, 3)))
        == KafkaError.INVALID_REPLICATION_FACTOR
    )
    assert (
        refused_with(lambda: create(NewTopic(next(names), 0, 1))) == KafkaError.INVALID_PARTITIONS
    )
    assert (
        refused_with(lambda: create(NewTopic(next(names), 1, 1, config={"no.such.key": "1"})))
        == KafkaError.INVALID_CONFIG
    )


def test_deleting_or_describing_what_is_not_there_is_told(
    admin: AdminClient, names: Iterator[str]
) -> None:
    name = next(names)

    assert (
        refused_with(lambda: admin.delete_topics([name])[name].result(S))
        == KafkaError.UNKNOWN_TOPIC_OR_PART
    )
    assert (
        refused_with(lambda: admin.describe_topics(TopicCollection([name]))[name].result(S))
        == KafkaError.UNKNOWN_TOPIC_OR_PART
    )


def test_partitions_are_added_and_never_taken_away(
    broker: cordwood.Broker, admin: AdminClient, topic: str
) -> None:
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(S)

    assert broker.store.topic(topic).partition_count == 4
    assert (
        refused_with(lambda: admin.create_partitions([NewPartitions(topic, 2)])[topic].result(S))
        == KafkaError.INVALID_PARTITIONS
    )


def test_records_are_deleted_up_to_an_offset(
    broker: cordwood.Broker, admin: AdminClient, topic: str
) -> None:
    log = broker.store.topic(topic).partition(0)
    log.append_many([(None, b"%d" % number) for number in range(10)])

    place = TopicPartition(topic, 0, 4)
    deleted = admin.delete_records([place])[place].result(S)
    beyond = TopicPartition(topic, 0, 99)

    assert deleted.low_watermark == 4
    assert log.start_offset == 4
    assert (
        refused_with(lambda: admin.delete_records([beyond])[beyond].result(S))
        == KafkaError.OFFSET_OUT_OF_RANGE
    )


def test_offsets_are_listed_by_end_by_time_and_by_largest_time(
    broker: cordwood.Broker, admin: AdminClient, topic: str
) -> None:
    log = broker.store.topic(topic).partition(0)
    for number, timestamp_ms in enumerate((1_000, 9_000, 5_000)):
        log.append(b"%d" % number, timestamp_ms=timestamp_ms)

    def offset(spec: Any) -> int:
        place = TopicPartition(topic, 0)
        listed = admin.list_offsets({place: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        found: int = listed[place].result(S).offset
        return found

    spec: Any = OffsetSpec
    assert offset(spec.earliest()) == 0
    assert offset(spec.latest()) == 3
    assert offset(spec.max_timestamp()) == 1
    assert offset(spec.for_timestamp(2_000)) == 1
    assert offset(spec.for_timestamp(9_001)) == -1


# --- configuration ------------------------------------------------------------------------------


def test_a_topics_configuration_says_what_was_set_and_what_is_by_default(
    admin: AdminClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(retention_ms=5000, cleanup_policy="compact,delete")

    entries = config_of(admin, ResourceType.TOPIC, topic)

    assert entries["retention.ms"].value == "5000"
    assert entries["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert entries["cleanup.policy"].value == "compact,delete"
    assert entries["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert entries["segment.bytes"].is_default


def test_configuration_is_altered_key_by_key(
    broker: cordwood.Broker, admin: AdminClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(retention_ms=5000, cleanup_policy="delete")

    def alter(key: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(S)

    alter("segment.bytes", "2097152", AlterConfigOpType.SET)
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    appended = broker.store.registry.overrides(topic)
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)

    assert appended == {"segment.bytes": "2097152", "cleanup.policy": "delete,compact"}
    assert broker.store.topic(topic).config.is_compacted
    assert broker.store.registry.overrides(topic)["cleanup.policy"] == "compact"
    assert (
        refused_with(lambda: alter("segment.bytes", "1", AlterConfigOpType.SET))
        == KafkaError.INVALID_CONFIG
    )


def test_configuration_is_replaced_as_a_whole(
    broker: cordwood.Broker, admin: AdminClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(retention_ms=5000)
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "60000"})

    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        altered = admin.alter_configs([resource])
    altered[resource].result(S)

    assert broker.store.registry.overrides(topic) == {"segment.ms": "60000"}


def test_the_brokers_configuration_is_described(admin: AdminClient) -> None:
    entries = config_of(admin, ResourceType.BROKER, "1")

    assert entries["fetch.max.bytes"].value == "57671680"
    assert entries["num.partitions"].value == "1"
    assert entries["node.id"].is_read_only


# --- groups -------------------------------------------------------------------------------------


def test_groups_are_listed_described_and_deleted(
    broker: cordwood.Broker, admin: AdminClient, topic: str, names: Iterator[str], crew: Crew
) -> None:
    group = next(names)
    member = crew.add(ConfluentMember, broker.bootstrap_servers, group, [topic])
    crew.await_shared({(topic, 0)})

    running = admin.describe_consumer_groups([group])[group].result(S)
    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(S)
    while_running = refused_with(lambda: admin.delete_consumer_groups([group])[group].result(S))
    crew.dismiss(member)
    empty = admin.describe_consumer_groups([group])[group].result(S)
    admin.delete_consumer_groups([group])[group].result(S)

    assert running.state == ConsumerGroupState.STABLE
    assert running.partition_assignor == "range"
    (described,) = running.members
    assert described.host.strip("/") == "127.0.0.1"
    assert [(p.topic, p.partition) for p in described.assignment.topic_partitions] == [(topic, 0)]
    assert group in {item.group_id for item in listed.valid}
    assert while_running == KafkaError.NON_EMPTY_GROUP
    assert empty.state == ConsumerGroupState.EMPTY
    assert (
        refused_with(lambda: admin.delete_consumer_groups([group])[group].result(S))
        == KafkaError.GROUP_ID_NOT_FOUND
    )


def test_a_groups_offsets_are_listed_and_altered(
    broker: cordwood.Broker,
    admin: AdminClient,
    make_topic: Callable[..., str],
    names: Iterator[str],
) -> None:
    topic, group = make_topic(partitions=2), next(names)
    for log in broker.store.topic(topic).partitions:
        log.append_many([(None, b"x")] * 10)
    wanted = [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 7)]

    altered = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])
    altered[group].result(S)
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]

    offsets = {place.partition: place.offset for place in listed.result(S).topic_partitions}
    assert offsets == {0: 3, 1: 7}
    assert broker.store.group(group).committed() == {(topic, 0): 3, (topic, 1): 7}


# --- the cluster --------------------------------------------------------------------------------


def test_the_cluster_is_one_broker_at_the_address_one_connected_to(
    broker: cordwood.Broker, admin: AdminClient, topic: str
) -> None:
    described: Any = admin.describe_cluster().result(S)
    metadata: Any = admin.list_topics(timeout=S)

    assert described.cluster_id == broker.store.cluster_id == metadata.cluster_id
    assert [(node.id, node.host, node.port) for node in described.nodes] == [
        (1, "127.0.0.1", broker.port)
    ]
    assert described.controller.id == 1
    assert metadata.controller_id == 1
    assert [part.leader for part in metadata.topics[topic].partitions.values()] == [1]


def test_settings_of_the_broker_are_made_while_it_runs() -> None:
    limit = ConfigEntry("message.max.bytes", "500000", incremental_operation=SET)
    threads = ConfigEntry("num.io.threads", "3", incremental_operation=SET)
    connections = ConfigEntry("max.connections.per.ip", "77", incremental_operation=SET)
    resource = ConfigResource(
        ResourceType.BROKER, "1", incremental_configs=[limit, threads, connections]
    )
    with cordwood.Broker(topics=["dynamic"]) as broker:  # its own: the settings would stay
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

        admin.incremental_alter_configs([resource])[resource].result(S)

        shown = config_of(admin, ResourceType.BROKER, "1")
        assert shown["message.max.bytes"].value == "500000"
        assert ConfigSource(shown["num.io.threads"].source) is ConfigSource.DYNAMIC_BROKER_CONFIG
        assert broker.store.topic("dynamic").config.max_message_bytes == 500_000
        broker.restart()
        assert config_of(admin, ResourceType.BROKER, "1")["max.connections.per.ip"].value == "77"
        assert broker.store.topic("dynamic").config.max_message_bytes == 500_000

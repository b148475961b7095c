"""Administration with kafka-python, which speaks the newest versions of nearly every API."""

from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaAdminClient, OffsetAndMetadata, OffsetSpec, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, MemberToRemove, NewTopic
from kafka.errors import (
    GroupSubscribedToTopicError,
    InvalidPartitionsError,
    NoError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

import cordwood
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from wire.members import Crew, PythonMember


@pytest.fixture(scope="module")
def admin(broker: cordwood.Broker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as members:
        yield members


def test_topics_are_created_described_and_deleted(
    broker: cordwood.Broker, admin: KafkaAdminClient, names: Iterator[str]
) -> None:
    name = next(names)
    configs = {"cleanup.policy": "compact"}

    admin.create_topics({name: {"num_partitions": 2, "configs": configs}})
    (described,) = admin.describe_topics([name])
    (by_id,) = admin.describe_topics([broker.store.topic(name).topic_id])
    is_compacted = broker.store.topic(name).config.is_compacted
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name, 1, 1)])
    admin.delete_topics([name])

    assert [part["partition_index"] for part in described["partitions"]] == [0, 1]
    assert by_id["name"] == name
    assert is_compacted
    assert name not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_a_topic_is_deleted_by_its_id(
    broker: cordwood.Broker, admin: KafkaAdminClient, topic: str
) -> None:
    admin.delete_topics([broker.store.topic(topic).topic_id])

    assert broker.store.registry.find(topic) is None


def test_partitions_are_added_and_described_page_by_page(
    broker: cordwood.Broker, admin: KafkaAdminClient, topic: str
) -> None:
    admin.create_partitions({topic: 5})
    first = admin.describe_topic_partitions([topic], response_partition_limit=3)
    second = admin.describe_topic_partitions([topic], cursor=first["next_cursor"])

    pages = [
        [part["partition_index"] for part in page["topics"][0]["partitions"]]
        for page in (first, second)
    ]
    assert pages == [[0, 1, 2], [3, 4]]
    assert second["next_cursor"] is None
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 5})


def test_records_are_deleted_up_to_an_offset(
    broker: cordwood.Broker, admin: KafkaAdminClient, topic: str
) -> None:
    log = broker.store.topic(topic).partition(0)
    log.append_many([(None, b"%d" % number) for number in range(10)])
    place = TopicPartition(topic, 0)

    some = admin.delete_records({place: 4})
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({place: 11})
    everything = admin.delete_records({place: -1})

    assert some[place]["low_watermark"] == 4
    assert everything[place]["low_watermark"] == 10
    assert log.start_offset == log.end_offset == 10


def test_offsets_are_listed_by_end_by_time_and_by_largest_time(
    broker: cordwood.Broker, admin: KafkaAdminClient, topic: str
) -> None:
    log = broker.store.topic(topic).partition(0)
    for number, timestamp_ms in enumerate((1_000, 9_000, 5_000)):
        log.append(b"%d" % number, timestamp_ms=timestamp_ms)
    place = TopicPartition(topic, 0)

    def offset(spec: object) -> tuple[int, int]:
        found = admin.list_partition_offsets({place: spec})[place]
        return found.offset, found.timestamp

    assert offset(OffsetSpec.EARLIEST) == (0, -1)
    assert offset(OffsetSpec.LATEST) == (3, -1)
    assert offset(OffsetSpec.MAX_TIMESTAMP) == (1, 9_000)
    assert offset(OffsetSpec.EARLIEST_LOCAL) == (0, -1)
    assert offset(2_000) == (1, 9_000)
    assert offset(9_001) == (-1, -1)


def test_configuration_is_described_altered_and_reset(
    broker: cordwood.Broker, admin: KafkaAdminClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(retention_ms=5000)

    def resource(configs: dict[str, str] | list[str] | None = None) -> ConfigResource:
        return ConfigResource(ConfigResourceType.TOPIC, topic, configs)

    described = admin.describe_configs([resource()])
    admin.alter_configs([resource({"segment.bytes": "2097152"})])
    altered = broker.store.registry.overrides(topic)
    admin.reset_configs([resource(["retention.ms"])])

    found = {
        name: entry["value"]
        for entries in described.values()
        for name, entry in entries[topic].items()
    }
    assert found["retention.ms"] == "5000"
    assert altered == {"retention.ms": "5000", "segment.bytes": "2097152"}
    assert broker.store.registry.overrides(topic) == {"segment.bytes": "2097152"}


def test_groups_are_listed_described_and_deleted(
    broker: cordwood.Broker, admin: KafkaAdminClient, topic: str, names: Iterator[str], crew: Crew
) -> None:
    group = next(names)
    member = crew.add(PythonMember, broker.bootstrap_servers, group, [topic])
    crew.await_shared({(topic, 0)})

    running = admin.describe_groups([group])[group]
    listed = {item["group_id"]: item for item in admin.list_groups(states_filter=["Stable"])}
    while_running = admin.delete_groups([group])
    crew.dismiss(member)
    after = admin.delete_groups([group])

    assert running["group_state"] == "Stable"
    assert running["protocol_data"] == "range"
    assert len(running["members"]) == 1
    assert listed[group]["protocol_type"] == "consumer"
    assert listed[group]["group_type"] == "classic"
    assert while_running == {group: "NonEmptyGroupError"}
    assert after == {group: "OK"}
    assert admin.delete_groups([group]) == {group: "GroupIdNotFoundError"}


def test_a_groups_offsets_are_altered_listed_and_deleted(
    broker: cordwood.Broker, admin: KafkaAdminClient, topic: str, names: Iterator[str], crew: Crew
) -> None:
    group, place = next(names), TopicPartition(topic, 0)
    broker.store.topic(topic).append_many([(None, b"x")] * 10)

    altered = admin.alter_group_offsets(group, {place: OffsetAndMetadata(7, "note", -1)})
    listed = admin.list_group_offsets([group])[group]
    member = crew.add(PythonMember, broker.bootstrap_servers, group, [topic])
    crew.poll_until(lambda: bool(member.received), "nothing was received")
    while_subscribed = admin.delete_group_offsets(group, [place])
    crew.dismiss(member)
    deleted = admin.delete_group_offsets(group, [place])

    assert altered == {place: NoError}
    assert listed[place] == OffsetAndMetadata(7, "note", -1)
    assert member.received[0][2] == 7
    assert while_subscribed == {place: GroupSubscribedToTopicError}
    assert deleted == {place: NoError}
    assert broker.store.group(group).committed() == {}


def test_members_are_removed_from_a_group(
    broker: cordwood.Broker, admin: KafkaAdminClient, topic: str, names: Iterator[str], crew: Crew
) -> None:
    group = next(names)
    member = crew.add(PythonMember, broker.bootstrap_servers, group, [topic], instance_id="one")
    crew.await_shared({(topic, 0)})
    crew.dismiss(member)  # one that is static stays a member

    assert len(admin.describe_groups([group])[group]["members"]) == 1
    assert admin.remove_group_members(group, [MemberToRemove(group_instance_id="one")])

    assert admin.describe_groups([group])[group]["members"] == []


def test_the_cluster_its_directories_and_its_versions_are_described(
    broker: cordwood.Broker, admin: KafkaAdminClient, topic: str
) -> None:
    broker.store.topic(topic).append(b"something")

    cluster = admin.describe_cluster()
    (directories,) = admin.describe_log_dirs([topic])
    versions = admin.api_versions()

    assert cluster["cluster_id"] == broker.store.cluster_id
    assert cluster["controller_id"] == 1
    assert [(node["broker_id"], node["port"]) for node in cluster["brokers"]] == [(1, broker.port)]
    (directory,) = directories["log_dirs"]
    assert directory["log_dir"] == broker.data_dir
    (described,) = directory["topics"]
    assert described["name"] == topic
    assert described["partitions"][0]["partition_size"] > 0
    assert directory["total_bytes"] > directory["usable_bytes"] > 0
    assert admin.list_partition_reassignments() == {}
    # Nobody would receive the metrics of clients: this broker has no place to show them.
    telemetry = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert {int(key) for key in versions} == {
        int(key) for key in API_CATALOG if key not in telemetry
    }

"""Records of the metadata log make images. Each rule is one that Kafka's own brokers follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest

from cordwood.cluster.image.access_image import AccessRule, ScramCredential
from cordwood.cluster.image.image_builder import ImageBuilder
from cordwood.cluster.image.image_change import ImageChange, whole_change
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage
from cordwood.cluster.image.metadata_record import decode_record, encode_record
from cordwood.cluster.image.partition_image import LeaderRecovery, PartitionImage
from cordwood.cluster.image.record_schemas import RECORD_SCHEMAS, RecordType
from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.protocol.message_schema import structure_schema
from cordwood.quantities import Offset

TOPIC = UUID(int=77)
DIRECTORIES = [UUID(int=at) for at in (11, 12, 13)]
TYPE_NAMES = list(RecordType)


class Writer:
    """Applies records of the newest version, and keeps the images between."""

    def __init__(self) -> None:
        self.builder = ImageBuilder(NO_METADATA)
        self.image: MetadataImage = NO_METADATA

    def apply(self, *records: tuple[RecordType, Mapping[str, Any]]) -> ImageChange:
        for kind, fields in records:
            version = structure_schema(RECORD_SCHEMAS[kind])[0].stop - 1
            self.builder.apply(decode_record(encode_record(kind, version, fields)))
        change = self.builder.finish(end=Offset(self.image.end + len(records)), epoch=1)
        assert change.old is self.image
        self.image = change.new
        return change

    def partition(self, number: int = 0) -> PartitionImage:
        found = self.image.partition(TOPIC, number)
        assert found is not None
        return found


def new_topic(name: str = "orders", topic_id: UUID = TOPIC) -> tuple[RecordType, dict[str, Any]]:
    return RecordType.TOPIC, {"name": name, "topic_id": topic_id}


def new_partition(number: int = 0, **fields: Any) -> tuple[RecordType, dict[str, Any]]:
    return RecordType.PARTITION, {
        "partition_id": number,
        "topic_id": TOPIC,
        "replicas": [1, 2, 3],
        "isr": [1, 2, 3],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": DIRECTORIES,
        **fields,
    }


def changed(number: int = 0, **fields: Any) -> tuple[RecordType, dict[str, Any]]:
    return RecordType.PARTITION_CHANGE, {"partition_id": number, "topic_id": TOPIC, **fields}


def broker(node_id: int = 1, epoch: int = 5, **fields: Any) -> tuple[RecordType, dict[str, Any]]:
    return RecordType.REGISTER_BROKER, {
        "broker_id": node_id,
        "broker_epoch": epoch,
        "incarnation_id": uuid4(),
        "end_points": [{"name": "PLAINTEXT", "host": "h", "port": 65000, "security_protocol": 0}],
        "features": [
            {"name": "group.version", "min_supported_version": 0, "max_supported_version": 1}
        ],
        "log_dirs": DIRECTORIES[:1],
        **fields,
    }


@pytest.fixture
def writer() -> Writer:
    return Writer()


# --- partitions -------------------------------------------------------------------------------


def test_a_topic_and_its_partitions_appear(writer: Writer) -> None:
    change = writer.apply(new_topic(), new_partition(0), new_partition(1, leader=2))

    assert writer.image.topic("orders") is writer.image.topics[TOPIC]
    assert writer.partition(1).leader == 2
    assert writer.partition(1).directories == tuple(DIRECTORIES)
    assert change.topics == {TOPIC}
    assert change.partitions == {(TOPIC, 0), (TOPIC, 1)}


def test_an_election_begins_another_leader_epoch(writer: Writer) -> None:
    writer.apply(new_topic(), new_partition(leader_epoch=7, partition_epoch=9))

    writer.apply(changed(leader=2, isr=[2, 3]))

    assert writer.partition().leader == 2
    assert writer.partition().leader_epoch == 8
    assert writer.partition().partition_epoch == 10
    assert writer.partition().in_sync == (2, 3)
    assert writer.partition().replicas == (1, 2, 3)


def test_a_change_without_an_election_keeps_the_leader_epoch(writer: Writer) -> None:
    writer.apply(new_topic(), new_partition())

    writer.apply(changed(isr=[1]))

    assert (writer.partition().leader, writer.partition().leader_epoch) == (1, 0)
    assert writer.partition().partition_epoch == 1


def test_the_same_leader_elected_again_begins_another_epoch(writer: Writer) -> None:
    writer.apply(new_topic(), new_partition())

    writer.apply(changed(leader=1))

    assert writer.partition().leader_epoch == 1


def test_an_unclean_election_is_seen(writer: Writer) -> None:
    writer.apply(new_topic(), new_partition())

    writer.apply(changed(leader=3, isr=[3], leader_recovery_state=1))

    assert writer.partition().recovery is LeaderRecovery.RECOVERING

    writer.apply(changed(leader_recovery_state=0))

    assert writer.partition().recovery is LeaderRecovery.RECOVERED


def test_eligible_leader_replicas_come_and_are_cleared(writer: Writer) -> None:
    writer.apply(new_topic(), new_partition(), new_partition(1))
    writer.apply(changed(isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[2]))
    assert writer.partition().eligible == (1,)
    assert writer.partition().last_known == (2,)
    before = writer.partition().partition_epoch

    change = writer.apply((RecordType.CLEAR_ELR, {"topic_name": ""}))

    assert writer.partition().eligible == writer.partition().last_known == ()
    assert writer.partition().partition_epoch == before + 1
    assert change.partitions == {(TOPIC, 0)}


def test_a_reassignment_changes_replicas_and_directories_together(writer: Writer) -> None:
    writer.apply(new_topic(), new_partition())

    writer.apply(
        changed(replicas=[1, 4], adding_replicas=[4], removing_replicas=[2, 3], directories=[]),
    )

    assert writer.partition().replicas == (1, 4)
    assert writer.partition().adding == (4,)
    assert writer.partition().directories == ()


def test_a_deleted_topic_takes_its_partitions_and_configs_along(writer: Writer) -> None:
    config = {"resource_type": 2, "resource_name": "orders", "name": "x", "value": "1"}
    writer.apply(new_topic(), new_partition(), (RecordType.CONFIG, config))

    change = writer.apply((RecordType.REMOVE_TOPIC, {"topic_id": TOPIC}))

    assert writer.image.topic("orders") is None
    assert not writer.image.topics
    assert not writer.image.configs
    assert change.deleted_topics == {TOPIC}
    assert not change.topics
    assert not change.partitions


def test_a_name_can_be_used_again_in_the_same_change(writer: Writer) -> None:
    writer.apply(new_topic(), new_partition())

    change = writer.apply(
        (RecordType.REMOVE_TOPIC, {"topic_id": TOPIC}), new_topic(topic_id=UUID(int=78))
    )

    assert writer.image.topic_ids == {"orders": UUID(int=78)}
    assert change.deleted_topics == {TOPIC}
    assert change.topics == {UUID(int=78)}


@pytest.mark.parametrize(
    "record",
    [
        changed(),
        (RecordType.PARTITION, {"partition_id": 0, "topic_id": TOPIC}),
        (RecordType.REMOVE_TOPIC, {"topic_id": TOPIC}),
        (RecordType.FENCE_BROKER, {"id": 1, "epoch": 2}),
        (RecordType.BROKER_REGISTRATION_CHANGE, {"broker_id": 1, "broker_epoch": 2}),
        (RecordType.REMOVE_ACCESS_CONTROL_ENTRY, {"id": TOPIC}),
        (RecordType.CLEAR_ELR, {"topic_name": "orders"}),
        (RecordType.END_TRANSACTION, {}),
        (RecordType.ABORT_TRANSACTION, {}),
    ],
    ids=lambda record: record[0].name,
)
def test_a_record_about_something_unknown_is_an_error(
    writer: Writer, record: tuple[RecordType, Mapping[str, Any]]
) -> None:
    with pytest.raises(FormatError, match=record[0].name):
        writer.apply(record)


def test_images_share_what_did_not_change(writer: Writer) -> None:
    other = UUID(int=99)
    writer.apply(new_topic(), new_partition(), new_topic("other", other))
    before = writer.image

    writer.apply(changed(isr=[1]))

    assert writer.image.topics[other] is before.topics[other]
    assert writer.image.brokers is before.brokers
    assert before.topics[TOPIC].partitions[0].in_sync == (1, 2, 3)


def test_partitions_with_the_same_replicas_share_them(writer: Writer) -> None:
    writer.apply(new_topic(), new_partition(0), new_partition(1))

    assert writer.partition(0).replicas is writer.partition(1).replicas
    assert writer.partition(0).replicas is writer.partition(0).in_sync
    assert writer.partition(0).directories is writer.partition(1).directories


# --- brokers ----------------------------------------------------------------------------------


def test_a_broker_is_fenced_until_a_change_unfences_it(writer: Writer) -> None:
    before = writer.apply(broker(fenced=True)).new
    assert before.brokers[1].is_fenced
    endpoint = writer.image.brokers[1].endpoint("PLAINTEXT")
    assert endpoint is not None
    assert endpoint.port == 65000

    change = writer.apply(
        (RecordType.BROKER_REGISTRATION_CHANGE, {"broker_id": 1, "broker_epoch": 5, "fenced": -1})
    )

    assert not change.new.brokers[1].is_fenced
    assert change.brokers == {1}

    last = writer.apply(
        (
            RecordType.BROKER_REGISTRATION_CHANGE,
            {"broker_id": 1, "broker_epoch": 5, "in_controlled_shutdown": 1, "fenced": 1},
        )
    ).new

    assert last.brokers[1].is_fenced
    assert last.brokers[1].is_leaving


def test_a_directory_that_fails_disappears_from_the_broker(writer: Writer) -> None:
    writer.apply(broker(log_dirs=DIRECTORIES))

    writer.apply(
        (
            RecordType.BROKER_REGISTRATION_CHANGE,
            {"broker_id": 1, "broker_epoch": 5, "log_dirs": DIRECTORIES[:2]},
        )
    )

    assert writer.image.brokers[1].directories == tuple(DIRECTORIES[:2])


def test_a_change_of_another_life_of_a_broker_is_an_error(writer: Writer) -> None:
    writer.apply(broker(epoch=5))

    with pytest.raises(FormatError, match="epoch 4 of broker 1, which has 5"):
        writer.apply((RecordType.BROKER_REGISTRATION_CHANGE, {"broker_id": 1, "broker_epoch": 4}))


def test_a_broker_that_is_unregistered_is_gone(writer: Writer) -> None:
    writer.apply(broker())

    writer.apply((RecordType.UNREGISTER_BROKER, {"broker_id": 1, "broker_epoch": 5}))

    assert not writer.image.brokers


# --- the rest ---------------------------------------------------------------------------------


def test_a_config_without_a_value_is_removed(writer: Writer) -> None:
    set_it = {"resource_type": 4, "resource_name": "1", "name": "x", "value": "1"}
    writer.apply((RecordType.CONFIG, set_it))
    assert writer.image.config_of(4, "1") == {"x": "1"}

    change = writer.apply((RecordType.CONFIG, {**set_it, "value": None}))

    assert not writer.image.configs
    assert change.configs == {(4, "1")}


def test_a_feature_at_level_0_is_left_out(writer: Writer) -> None:
    writer.apply((RecordType.FEATURE_LEVEL, {"name": "group.version", "feature_level": 1}))
    assert writer.image.features == {"group.version": 1}

    writer.apply((RecordType.FEATURE_LEVEL, {"name": "group.version", "feature_level": 0}))

    assert writer.image.features == {}


def test_access_rules_quotas_users_and_tokens_are_kept(writer: Writer) -> None:
    rule = {
        "id": TOPIC,
        "resource_type": 2,
        "resource_name": "a",
        "pattern_type": 3,
        "principal": "User:x",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    entity = [
        {"entity_type": "user", "entity_name": None},
        {"entity_type": "client-id", "entity_name": "c"},
    ]
    quota = {"entity": entity, "key": "producer_byte_rate", "value": 5.0, "remove": False}
    user = {"name": "x", "mechanism": 1, "salt": b"s", "stored_key": b"k", "server_key": b"v"}
    token = {"token_id": "t", "owner": "User:x", "requester": "User:x", "renewers": ["User:y"]}

    writer.apply(
        (RecordType.ACCESS_CONTROL_ENTRY, rule),
        (RecordType.CLIENT_QUOTA, quota),
        (RecordType.USER_SCRAM_CREDENTIAL, {**user, "iterations": 4096}),
        (RecordType.DELEGATION_TOKEN, token),
        (RecordType.PRODUCER_IDS, {"broker_id": 1, "broker_epoch": 5, "next_producer_id": 1000}),
    )

    assert writer.image.access_rules[TOPIC] == AccessRule(2, "a", 3, "User:x", "*", 3, 3)
    quoted = (("client-id", "c"), ("user", None))
    assert writer.image.quotas == {quoted: {"producer_byte_rate": 5.0}}
    credential = ScramCredential(salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096)
    assert writer.image.scram_users == {("x", 1): credential}
    assert "k" not in repr(credential).replace("ScramCredential", "")
    assert writer.image.tokens["t"].renewers == ("User:y",)
    assert writer.image.next_producer_id == 1000

    writer.apply(
        (RecordType.REMOVE_ACCESS_CONTROL_ENTRY, {"id": TOPIC}),
        (RecordType.CLIENT_QUOTA, {**quota, "remove": True}),
        (RecordType.REMOVE_USER_SCRAM_CREDENTIAL, {"name": "x", "mechanism": 1}),
        (RecordType.REMOVE_DELEGATION_TOKEN, {"token_id": "t"}),
    )

    assert not writer.image.access_rules
    assert not writer.image.quotas
    assert not writer.image.scram_users
    assert not writer.image.tokens


def test_a_whole_change_names_what_either_image_has(writer: Writer) -> None:
    writer.apply(new_topic(), new_partition(), broker())
    other = Writer()
    loaded = other.apply(new_topic("b", UUID(int=5)), broker(2))

    change = whole_change(writer.image, loaded)

    assert change.is_whole
    assert change.topics == {UUID(int=5)}
    assert change.deleted_topics == {TOPIC}
    assert change.brokers == {1, 2}


def test_types_and_versions_of_a_newer_kafka_are_refused_with_advice() -> None:
    with pytest.raises(UnsupportedFormatError, match="99; the controllers are newer"):
        decode_record(b"\x01\x63\x00")
    with pytest.raises(UnsupportedFormatError, match="TOPIC: 9; known are 0 to 0"):
        decode_record(b"\x01\x02\x09")
    with pytest.raises(UnsupportedFormatError, match="frame version"):
        decode_record(b"\x02\x02\x00")

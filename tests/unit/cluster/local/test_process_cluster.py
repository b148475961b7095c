"""What the processes of one node are told of each other and of their topics."""

from uuid import UUID

import pytest

from cordwood.cluster.image.broker_image import Endpoint
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage
from cordwood.cluster.local.process_cluster import ProcessCluster, ProcessMember, applied
from cordwood.log.topics.topic_catalog import TopicEntry
from cordwood.quantities import Offset

FIRST_EPOCH = 5
LIFE = UUID(int=77)


def member(index: int) -> ProcessMember:
    return ProcessMember(
        node_id=1 + index, endpoints=(Endpoint("PLAINTEXT", "localhost", 9092 + index, 0),)
    )


def topic(name: str, partitions: int, number: int = 1, **config: str) -> TopicEntry:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return TopicEntry(name=name, topic_id=UUID(int=number), partitions=partitions, config=settings)


@pytest.fixture
def cluster() -> ProcessCluster:
    made = ProcessCluster(
        [member(0), member(1)],
        owner_of=lambda _topic, number: number % 2,
        first_epoch=FIRST_EPOCH,
    )
    for index in range(2):
        made.begins(index, LIFE)
        made.is_ready(index)
    return made


def follower(cluster: ProcessCluster) -> MetadataImage:
    """The image of a process that begins now."""
    return applied(NO_METADATA, cluster.snapshot(), cluster.image.end)


def test_a_snapshot_and_the_records_after_it_make_the_same_image(cluster: ProcessCluster) -> None:
    cluster.topics_are({"a": topic("a", 2, retention_ms="5")})
    image = follower(cluster)

    for records in (
        cluster.topics_are({"a": topic("a", 3, retention_ms="7"), "b": topic("b", 1, 2)}),
        cluster.ends(1),
        cluster.begins(1, UUID(int=78)),
        cluster.is_ready(1),
        cluster.topics_are({"b": topic("b", 1, 3)}),
    ):
        image = applied(image, records, cluster.image.end)

    assert image == cluster.image == follower(cluster)
    assert list(image.topic_ids) == ["b"]


def test_each_partition_is_led_by_its_owner_in_the_first_epoch(cluster: ProcessCluster) -> None:
    cluster.topics_are({"a": topic("a", 3)})

    partitions = cluster.image.topics[UUID(int=1)].partitions
    assert [partitions[n].leader for n in range(3)] == [1, 2, 1]
    assert all(each.replicas == each.in_sync == (each.leader,) for each in partitions.values())
    assert {each.leader_epoch for each in partitions.values()} == {FIRST_EPOCH}


def test_another_life_of_a_process_has_another_epoch_and_leads_in_new_epochs(
    cluster: ProcessCluster,
) -> None:
    cluster.topics_are({"a": topic("a", 2)})
    before = cluster.epoch_of(1)

    cluster.ends(1)
    is_fenced = cluster.image.brokers[2].is_fenced
    cluster.begins(1, UUID(int=78))

    assert is_fenced
    assert cluster.image.brokers[2].is_fenced
    assert cluster.epoch_of(1) > before
    partitions = cluster.image.topics[UUID(int=1)].partitions
    assert [partitions[n].leader_epoch for n in range(2)] == [FIRST_EPOCH, FIRST_EPOCH + 1]
    assert partitions[1].partition_epoch > partitions[0].partition_epoch


def test_only_what_changed_is_told(cluster: ProcessCluster) -> None:
    topics = {"a": topic("a", 2, retention_ms="5"), "b": topic("b", 1, 2)}
    cluster.topics_are(topics)

    nothing = cluster.topics_are(dict(topics))
    one = cluster.topics_are({**topics, "a": topic("a", 2, retention_ms="6")})
    other = cluster.topics_are({**topics, "a": topic("a", 2)})

    assert nothing == []
    assert len(one) == len(other) == 1
    assert cluster.image.config_of(2, "a") == {}


def test_a_topic_that_was_deleted_and_created_again_is_another_one(
    cluster: ProcessCluster,
) -> None:
    cluster.topics_are({"a": topic("a", 2, retention_ms="5")})

    cluster.topics_are({"a": topic("a", 1, 9)})

    assert list(cluster.image.topics) == [UUID(int=9)]
    assert len(cluster.image.topics[UUID(int=9)].partitions) == 1
    assert cluster.image.config_of(2, "a") == {}


def test_an_image_ends_behind_its_records(cluster: ProcessCluster) -> None:
    end = cluster.image.end

    records = cluster.topics_are({"a": topic("a", 2)})

    assert cluster.image.end == Offset(end + len(records))

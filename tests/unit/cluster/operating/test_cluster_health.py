"""Health in one sentence."""

from __future__ import annotations

import pytest

from cordwood.cluster.operating.cluster_health import health_of
from cordwood.cluster.operating.cluster_picture import (
    BrokerPicture,
    BrokerState,
    ClusterPicture,
    PartitionPicture,
    Place,
    QuorumMember,
    QuorumPicture,
)
from cordwood.value_class import replace

BROKERS = tuple(BrokerPicture(node_id=number) for number in (1, 2, 3))
WHOLE = PartitionPicture(
    place=Place("orders", 0), leader=1, replicas=(1, 2, 3), in_sync=(1, 2, 3), min_in_sync=2
)
QUORUM = QuorumPicture(
    leader_id=3000,
    leader_epoch=4,
    high_watermark=90,
    voters=tuple(
        QuorumMember(node_id=node, log_end=100, last_caught_up_ms=1_000_000)
        for node in (3000, 3001, 3002)
    ),
)
PICTURE = ClusterPicture(cluster_id="c", brokers=BROKERS, partitions=(WHOLE,), quorum=QUORUM)


def test_a_whole_cluster_is_healthy() -> None:
    health = health_of(PICTURE)

    assert health.is_healthy
    assert health.sentence == "Healthy: 3 brokers alive, 1 partition, all replicas in sync."
    assert health.leaders == {1: 1}
    assert health.replicas == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        (replace(WHOLE, in_sync=(1, 2)), "1 partition with replicas that are not in sync"),
        (replace(WHOLE, in_sync=(1,)), "too few replicas in sync for acks=all (orders-0)"),
        (replace(WHOLE, leader=-1, in_sync=(1,)), "1 partition without a leader (orders-0)"),
        (
            replace(WHOLE, replicas=(1, 2, 9), in_sync=(1, 2)),
            "broker 9 is named as a replica, but not registered",
        ),
    ],
)
def test_partitions_with_problems_are_named(partition: PartitionPicture, words: str) -> None:
    health = health_of(replace(PICTURE, partitions=(partition,)))

    assert not health.is_healthy
    assert words in health.sentence


def test_brokers_that_are_not_alive_are_named() -> None:
    gone = replace(BROKERS[2], state=BrokerState.FENCED)

    health = health_of(replace(PICTURE, brokers=(*BROKERS[:2], gone)))

    assert "broker 3 is not alive" in health.sentence


def test_a_replica_that_is_being_added_may_be_behind() -> None:
    moving = replace(WHOLE, replicas=(1, 2, 3, 4), adding=(4,), removing=(1,))
    picture = replace(PICTURE, brokers=(*BROKERS, BrokerPicture(node_id=4)), partitions=(moving,))

    health = health_of(picture)

    assert health.is_healthy
    assert "1 partition is being moved." in health.sentence
    assert moving.target == (2, 3, 4)


def test_another_leader_than_the_preferred_one_is_told_but_healthy() -> None:
    health = health_of(replace(PICTURE, partitions=(replace(WHOLE, leader=2),)))

    assert health.is_healthy
    assert "`cordwood cluster elect`" in health.sentence


def test_a_partition_with_one_replica_needs_only_that_one() -> None:
    alone = replace(WHOLE, replicas=(1,), in_sync=(1,), min_in_sync=2)

    assert health_of(replace(PICTURE, partitions=(alone,))).is_healthy


@pytest.mark.parametrize(
    "late",
    [
        QuorumMember(node_id=3002, log_end=10, last_caught_up_ms=900_000),
        QuorumMember(node_id=3002, log_end=-1, last_caught_up_ms=-1),
    ],
)
def test_a_controller_that_does_not_follow_is_named(late: QuorumMember) -> None:
    quorum = replace(QUORUM, voters=(*QUORUM.voters[:2], late))

    health = health_of(replace(PICTURE, quorum=quorum))

    assert "controller 3002 does not follow the active one" in health.sentence


def test_controllers_that_do_not_answer_are_a_problem_and_a_broker_alone_needs_none() -> None:
    silent = replace(PICTURE, quorum=None, quorum_problem="the controllers do not answer: why")
    alone = replace(PICTURE, quorum=None)

    assert "the controllers do not answer: why" in health_of(silent).sentence
    assert health_of(alone).is_healthy

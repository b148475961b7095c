"""What no group takes in a heartbeat, whoever sends it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest

from cordwood.broker.error_codes import RefusedError
from cordwood.broker.groups.consumer.consumer_heartbeat import (
    ConsumerHeartbeat,
    check_heartbeat,
    owned_partitions,
)
from cordwood.protocol.error_code import ErrorCode

ASSIGNORS = ("uniform", "range")
TOPIC = UUID(int=1)

JOINING = ConsumerHeartbeat(
    member_id="m", epoch=0, rebalance_timeout_ms=1000, topic_names=("orders",), owned={}
)
BEATING = ConsumerHeartbeat(member_id="m", epoch=3)
LEAVING = ConsumerHeartbeat(member_id="m", epoch=-1)
AWAY = ConsumerHeartbeat(member_id="m", epoch=-2, instance_id="i")


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "beat",
    [
        JOINING,
        BEATING,
        LEAVING,
        AWAY,
        replace(JOINING, topic_names=()),
        replace(JOINING, topic_names=None, topic_regex=""),
        replace(JOINING, assignor="range", rack_id="r", instance_id="i"),
        replace(JOINING, rebalance_timeout_ms=0),
        replace(BEATING, owned={TOPIC: frozenset({1})}),
    ],
)
def test_a_sound_heartbeat_is_taken(beat: ConsumerHeartbeat, version: int) -> None:
    check_heartbeat(beat, version, ASSIGNORS)


@pytest.mark.parametrize(
    ("beat", "message"),
    [
        (replace(BEATING, member_id=""), "MemberId"),
        (replace(LEAVING, member_id=""), "MemberId"),
        (replace(JOINING, instance_id=""), "InstanceId"),
        (replace(JOINING, rack_id=""), "RackId"),
        (replace(BEATING, epoch=-3), "MemberEpoch"),
        (replace(AWAY, instance_id=None), "InstanceId"),
        (replace(JOINING, rebalance_timeout_ms=-1), "RebalanceTimeoutMs"),
        (replace(JOINING, rebalance_timeout_ms=-2), "RebalanceTimeoutMs"),
        (replace(JOINING, owned=None), "TopicPartitions"),
        (replace(JOINING, owned={TOPIC: frozenset({1})}), "TopicPartitions"),
        (replace(JOINING, topic_names=None), "SubscribedTopicNames"),
        (replace(JOINING, topic_names=("",)), "SubscribedTopicNames"),
        (replace(JOINING, topic_names=("x" * 250,)), "SubscribedTopicNames"),
        (replace(JOINING, topic_names=("x",) * 100_001), "SubscribedTopicNames"),
        (replace(JOINING, topic_regex="é" * 20_000), "SubscribedTopicRegex"),
        (replace(JOINING, member_id="x" * 1025), "MemberId"),
        (replace(JOINING, instance_id="é" * 600), "InstanceId"),
    ],
)
def test_a_heartbeat_that_breaks_a_rule_is_refused_and_told_which(
    beat: ConsumerHeartbeat, message: str
) -> None:
    with pytest.raises(RefusedError, match=message) as caught:
        check_heartbeat(beat, 1, ASSIGNORS)

    assert caught.value.code is ErrorCode.invalid_request


def test_a_member_names_itself_from_version_one_on() -> None:
    unnamed = replace(JOINING, member_id="")

    check_heartbeat(unnamed, 0, ASSIGNORS)
    with pytest.raises(RefusedError, match="MemberId"):
        check_heartbeat(unnamed, 1, ASSIGNORS)


def test_an_assignor_that_is_not_offered_is_refused_with_those_that_are() -> None:
    with pytest.raises(RefusedError, match="uniform, range") as caught:
        check_heartbeat(replace(JOINING, assignor="sticky"), 1, ASSIGNORS)

    assert caught.value.code is ErrorCode.unsupported_assignor


def test_owned_partitions_of_a_topic_named_twice_are_put_together() -> None:
    topics = [
        SimpleNamespace(topic_id=TOPIC, partitions=(1, 2)),
        SimpleNamespace(topic_id=TOPIC, partitions=(2, 3)),
    ]

    assert owned_partitions(topics) == {TOPIC: frozenset({1, 2, 3})}
    assert owned_partitions(()) == {}
    assert owned_partitions(None) is None

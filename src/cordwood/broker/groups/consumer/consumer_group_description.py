"""A consumer group as ConsumerGroupDescribe tells it."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.broker.groups.consumer.consumer_group import ConsumerGroup
from cordwood.broker.groups.consumer.consumer_member import ConsumerMember
from cordwood.protocol.error_code import ErrorCode

_CONSUMER_MEMBER: Final = 1  # a member of the new protocol; 0 would be one of the classic


def describe_consumer_group(group: ConsumerGroup) -> dict[str, Any]:
    """The entry of the response; topics that are gone are left out, for they have no name."""
    names = group.roster.subscriptions.topic_names()
    return {
        "error_code": ErrorCode.none,
        "group_id": group.group_id,
        "group_state": group.state_name,
        "group_epoch": group.epoch,
        "assignment_epoch": group.targets.epoch,
        "assignor_name": group.assignor_name,
        "members": [
            _member(member, group.targets.of(member.member_id).partitions, names)
            for member in group.roster
        ],
    }


def _member(
    member: ConsumerMember, target: Assignment, names: Mapping[UUID, str]
) -> dict[str, Any]:
    about = member.about
    held = {topic: frozenset(partitions) for topic, partitions in member.held().items()}
    return {
        "member_id": member.member_id,
        "instance_id": about.instance_id,
        "rack_id": about.rack_id,
        "member_epoch": member.epoch,
        "client_id": about.client_id,
        "client_host": about.client_host,
        "subscribed_topic_names": list(about.topic_names),
        "subscribed_topic_regex": about.topic_regex or None,
        # What is being revoked is still the member's to answer for.
        "assignment": {"topic_partitions": _named(held, names)},
        "target_assignment": {"topic_partitions": _named(target, names)},
        "member_type": _CONSUMER_MEMBER,
    }


def _named(assignment: Assignment, names: Mapping[UUID, str]) -> list[dict[str, Any]]:
    return [
        {"topic_id": topic, "topic_name": names[topic], "partitions": sorted(partitions)}
        for topic, partitions in assignment.items()
        if topic in names
    ]

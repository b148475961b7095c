"""The description of a consumer group in the answer to ConsumerGroupDescribe."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.broker.groups.consumer.consumer_group import ConsumerGroup
from cordwood.broker.groups.consumer.consumer_member import ConsumerMember
from cordwood.broker.net.requests.request import Response
from cordwood.protocol.error_code import ErrorCode

_CONSUMER_MEMBER: Final = 1  # of the consumer protocol; 0 is the classic protocol


def describe_consumer_group(group: ConsumerGroup) -> Response:
    """The entry of the response. Deleted topics are left out: their names are not known."""
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


def topics_of_members(group: ConsumerGroup) -> list[str]:
    """The names of all topics in the description, in a fixed order."""
    names = group.roster.subscriptions.topic_names()
    found: set[str] = set()
    for member in group.roster:
        found.update(member.about.topic_names)
        for topic in (*member.held(), *group.targets.of(member.member_id).partitions):
            if topic in names:
                found.add(names[topic])
    return sorted(found)


def _member(member: ConsumerMember, target: Assignment, names: Mapping[UUID, str]) -> Response:
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
        # The member still owns the partitions that it is revoking.
        "assignment": {"topic_partitions": _named(held, names)},
        "target_assignment": {"topic_partitions": _named(target, names)},
        "member_type": _CONSUMER_MEMBER,
    }


def _named(assignment: Assignment, names: Mapping[UUID, str]) -> list[Response]:
    return [
        {"topic_id": topic, "topic_name": names[topic], "partitions": sorted(partitions)}
        for topic, partitions in assignment.items()
        if topic in names
    ]

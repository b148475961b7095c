"""Consumer groups of the new protocol: ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from cordwood.broker.error_codes import RefusedError, error_message
from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.broker.groups.consumer.consumer_group import ConsumerGroup, HeartbeatAnswer
from cordwood.broker.groups.consumer.consumer_group_description import (
    describe_consumer_group,
    topics_of_members,
)
from cordwood.broker.groups.consumer.consumer_group_factory import ConsumerGroupFactory
from cordwood.broker.groups.consumer.consumer_heartbeat import (
    ConsumerHeartbeat,
    check_heartbeat,
    owned_partitions,
)
from cordwood.broker.groups.coordinator import GroupCoordinator
from cordwood.broker.net.requests.request import Deferred, RequestContext, Response, Route, RunsOn
from cordwood.broker.security import access_table as needs
from cordwood.protocol.acl_codes import NOT_ASKED, AclResource
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.value_class import replace

if TYPE_CHECKING:
    from cordwood.protocol.schemas import consumer_group_messages as messages


class ConsumerGroupHandlers:
    """Answers members of consumer groups, and requests to describe the groups.

    `new_member_id` makes ids for members that come without one.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        consumer_groups: ConsumerGroupFactory,
        new_member_id: Callable[[], str],
    ) -> None:
        self._coordinator = coordinator
        self._consumer_groups = consumer_groups
        self._new_member_id = new_member_id

    def routes(self) -> list[Route]:
        return [
            Route(
                api=ApiKey.CONSUMER_GROUP_HEARTBEAT,
                handler=self.heartbeat,
                runs_on=RunsOn.CONTROL,
            ),
            Route(
                api=ApiKey.CONSUMER_GROUP_DESCRIBE,
                handler=self.describe,
                runs_on=RunsOn.CONTROL,
            ),
        ]

    # --- heartbeats --------------------------------------------------------------------------

    def heartbeat(
        self,
        context: RequestContext,
        request: messages.ConsumerGroupHeartbeatRequest,
    ) -> Response | Deferred:
        """Answered when the changes are durable."""
        try:
            _check_access(context, request)
            beat = self._read(context, request)
            group = self._group(request.group_id, beat)
            answer = self._beat(group, beat)
        except RefusedError as error:
            return {"error_code": error.code, "error_message": error_message(error)}
        reply = Deferred()

        def written(code: ErrorCode) -> None:
            is_durable = code is ErrorCode.none
            reply.resolve(_response(answer) if is_durable else {"error_code": code})

        group.journal.append(answer.records, written)
        return reply

    def _read(
        self,
        context: RequestContext,
        request: messages.ConsumerGroupHeartbeatRequest,
    ) -> ConsumerHeartbeat:
        if not request.group_id:
            raise RefusedError(ErrorCode.invalid_request, "GroupId can't be empty.")
        names = request.subscribed_topic_names
        beat = ConsumerHeartbeat(
            member_id=request.member_id,
            epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout,
            topic_names=None if names is None else tuple(names),
            topic_regex=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=owned_partitions(request.topic_partitions),
            client_id=context.client_id,
            client_host=f"/{context.client_host}",  # with the slash that Java prints
            may_see=None
            if context.session.access.is_unlimited
            else partial(context.may, needs.CONSUMER_GROUP_HEARTBEAT_REGEX),
        )
        check_heartbeat(beat, context.api_version, self._consumer_groups.config.assignors)
        if beat.is_joining and not beat.member_id:
            return replace(beat, member_id=self._new_member_id())
        return beat

    def _group(self, group_id: str, beat: ConsumerHeartbeat) -> ConsumerGroup:
        refusal = self._coordinator.refusal(group_id)
        if refusal is not None:
            raise RefusedError(refusal, f"Group {group_id} cannot be served now.")
        if not beat.is_joining:
            return self._find(group_id)
        group = self._coordinator.consumer_for_join(
            group_id, lambda: self._consumer_groups.create(group_id)
        )
        if isinstance(group, ConsumerGroup):
            return group
        if group is ErrorCode.coordinator_not_available:
            raise RefusedError(group, f"Group {group_id} cannot be created now.")
        # The answer of Kafka with group.consumer.migration.policy=disabled.
        raise RefusedError(
            ErrorCode.group_id_not_found,
            f"Cannot upgrade classic group {group_id} to consumer group because online upgrade is "
            "not supported: it can be joined so once its members have left.",
        )

    def _beat(self, group: ConsumerGroup, beat: ConsumerHeartbeat) -> HeartbeatAnswer:
        try:
            return group.heartbeat(beat)
        except RefusedError:
            if group.is_empty and group.epoch == 0:
                self._coordinator.remove(group)  # created for a member that was then refused
            raise

    # --- descriptions ------------------------------------------------------------------------

    def describe(
        self, context: RequestContext, request: messages.ConsumerGroupDescribeRequest
    ) -> Response:
        operations = partial(context.session.access.operations, AclResource.GROUP)
        is_asked = request.include_authorized_operations
        return {
            "groups": [
                {
                    **(described := self._described(context, group_id)),
                    "authorized_operations": operations(group_id)
                    if is_asked and not described["error_code"]
                    else NOT_ASKED,
                }
                for group_id in dict.fromkeys(request.group_ids)
            ]
        }

    def _described(self, context: RequestContext, group_id: str) -> Response:
        if not context.may(needs.CONSUMER_GROUP_DESCRIBE, group_id):
            return {"group_id": group_id, "error_code": needs.CONSUMER_GROUP_DESCRIBE.code}
        refusal = self._coordinator.refusal(group_id)
        try:
            if refusal is not None:
                raise RefusedError(refusal, f"Group {group_id} cannot be described now.")
            group = self._find(group_id)
            need = needs.CONSUMER_GROUP_DESCRIBE_TOPIC
            if not all(context.may(need, topic) for topic in topics_of_members(group)):
                raise RefusedError(
                    need.code,
                    "The group has described topic(s) that the client is not authorized to "
                    "describe.",
                )
            return describe_consumer_group(group)
        except RefusedError as error:
            return {
                "group_id": group_id,
                "error_code": error.code,
                "error_message": error_message(error),
            }

    def _find(self, group_id: str) -> ConsumerGroup:
        group = self._coordinator.find(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        reason = "not found" if group is None else "is not a consumer group"
        raise RefusedError(ErrorCode.group_id_not_found, f"Group {group_id} {reason}.")


def _check_access(context: RequestContext, request: messages.ConsumerGroupHeartbeatRequest) -> None:
    if not context.may(needs.CONSUMER_GROUP_HEARTBEAT, request.group_id):
        raise RefusedError(needs.CONSUMER_GROUP_HEARTBEAT.code, "Group authorization failed.")
    need = needs.CONSUMER_GROUP_HEARTBEAT_TOPIC
    if not all(context.may(need, name) for name in request.subscribed_topic_names or ()):
        raise RefusedError(need.code, "Topic authorization failed.")


def _response(answer: HeartbeatAnswer) -> messages.ConsumerGroupHeartbeatResponseDict:
    return {
        "error_code": ErrorCode.none,
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval": answer.heartbeat_interval_ms,
        "assignment": None if answer.assignment is None else _assignment(answer.assignment),
    }


def _assignment(assignment: Assignment) -> messages.ConsumerGroupHeartbeatResponseAssignmentDict:
    return {
        "topic_partitions": [
            {"topic_id": topic, "partitions": sorted(partitions)}
            for topic, partitions in assignment.items()
        ]
    }

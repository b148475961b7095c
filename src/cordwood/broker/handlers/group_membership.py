"""Members of classic groups: finding the coordinator, joining, syncing, heartbeats, leaving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cordwood.broker.cluster_view import ClusterView, CoordinatorKind
from cordwood.broker.groups.classic.classic_answers import join_error, sync_error
from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.broker.groups.classic.classic_member import NO_MEMBER_ID, JoinRequest, SyncRequest
from cordwood.broker.groups.coordinator import NAME_CHARS_MAX, GroupCoordinator
from cordwood.broker.net.requests.request import (
    Deferred,
    RequestContext,
    Response,
    Route,
    RunsOn,
    routes_on,
)
from cordwood.broker.security import access_table as needs
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import MIB

if TYPE_CHECKING:
    from cordwood.protocol.schemas import cluster_messages, group_messages

_NEEDS: Final = {
    CoordinatorKind.GROUP: needs.FIND_COORDINATOR_GROUP,
    CoordinatorKind.TRANSACTION: needs.FIND_COORDINATOR_TRANSACTION,
}
_FIRST_FIND_OF_MANY: Final = 4
_FIRST_JOIN_WITH_REBALANCE_TIMEOUT: Final = 1
_FIRST_JOIN_WITH_KNOWN_MEMBER_ID: Final = 4
_FIRST_JOIN_WITH_NULL_PROTOCOL: Final = 7
_FIRST_JOIN_WITH_SKIPPED_ASSIGNMENT: Final = 9
_FIRST_SYNC_WITH_PROTOCOL: Final = 5
_FIRST_LEAVE_OF_MANY: Final = 3

# The metadata of all members goes into one record, which is at most 1 MiB by default. It is kept
# in memory as long as the member is in the group.
_METADATA_BYTES_MAX: Final = 4 * MIB
_PROTOCOLS_MAX: Final = 100


class GroupMembershipHandler:
    """The five requests of members. Called in the control loop."""

    def __init__(self, *, coordinator: GroupCoordinator, view: ClusterView) -> None:
        self._coordinator = coordinator
        self._view = view

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.CONTROL,
            {
                ApiKey.FIND_COORDINATOR: self.find_coordinator,
                ApiKey.JOIN_GROUP: self.join_group,
                ApiKey.SYNC_GROUP: self.sync_group,
                ApiKey.HEARTBEAT: self.heartbeat,
                ApiKey.LEAVE_GROUP: self.leave_group,
            },
        )

    # --- FindCoordinator ---------------------------------------------------------------------

    def find_coordinator(
        self, context: RequestContext, request: cluster_messages.FindCoordinatorRequest
    ) -> cluster_messages.FindCoordinatorResponseDict:
        if context.api_version >= _FIRST_FIND_OF_MANY:
            keys = request.coordinator_keys
            return {"coordinators": [self._place(context, key, request.key_type) for key in keys]}
        place = self._place(context, request.key, request.key_type)
        return {
            "error_code": place["error_code"],
            "error_message": place["error_message"],
            "node_id": place["node_id"],
            "host": place["host"],
            "port": place["port"],
        }

    def _place(
        self, context: RequestContext, key: str, key_type: int
    ) -> cluster_messages.FindCoordinatorResponseCoordinatorsDict:
        if key_type not in _NEEDS:
            return _nowhere(
                key,
                ErrorCode.invalid_request,
                f"this broker does not support key type {key_type}",
            )
        kind = CoordinatorKind(key_type)
        need = _NEEDS[kind]
        if not context.may(need, key):
            return _nowhere(key, need.code, None)
        found = self._view.coordinator(kind, key, context.session.listener)
        if isinstance(found, ErrorCode):
            return _nowhere(key, found, None)
        return {
            "key": key,
            "error_code": ErrorCode.none,
            "error_message": None,
            "node_id": found.node_id,
            "host": found.host,
            "port": found.port,
        }

    # --- JoinGroup ---------------------------------------------------------------------------

    def join_group(
        self, context: RequestContext, request: group_messages.JoinGroupRequest
    ) -> Response | Deferred:
        version = context.api_version
        reply = Deferred()
        answer = reply
        if version < _FIRST_JOIN_WITH_NULL_PROTOCOL:
            answer = _without_null_protocol(reply)
        code = (
            self._check_join(request)
            if context.may(needs.JOIN_GROUP, request.group_id)
            else needs.JOIN_GROUP.code
        )
        if code is not None:
            reply.resolve(join_error(code, request.member_id))
            return answer
        group = self._coordinator.classic_for_join(
            request.group_id, is_new_member=request.member_id == NO_MEMBER_ID
        )
        if isinstance(group, ErrorCode):
            reply.resolve(join_error(group, request.member_id))
        else:
            group.join(_join_request(context, request), reply)
        return answer

    def _check_join(self, request: group_messages.JoinGroupRequest) -> ErrorCode | None:
        refusal = self._coordinator.refusal(request.group_id)
        if refusal is not None:
            return refusal
        config = self._coordinator.config
        timeout_ms = request.session_timeout
        if not config.session_timeout_min_ms <= timeout_ms <= config.session_timeout_max_ms:
            return ErrorCode.invalid_session_timeout
        names = [request.protocol_type, request.group_instance_id or ""]
        names += (protocol.name for protocol in request.protocols)
        size = sum(len(protocol.metadata) for protocol in request.protocols)
        if (
            size > _METADATA_BYTES_MAX
            or len(request.protocols) > _PROTOCOLS_MAX
            or any(len(name) > NAME_CHARS_MAX for name in names)
        ):
            return ErrorCode.invalid_request
        return None

    # --- SyncGroup ---------------------------------------------------------------------------

    def sync_group(
        self, context: RequestContext, request: group_messages.SyncGroupRequest
    ) -> Response | Deferred:
        if not context.may(needs.SYNC_GROUP, request.group_id):
            return sync_error(needs.SYNC_GROUP.code)
        refusal = self._coordinator.refusal(request.group_id)
        if refusal is not None:
            return sync_error(refusal)
        if context.api_version >= _FIRST_SYNC_WITH_PROTOCOL and (
            request.protocol_type is None or request.protocol_name is None
        ):
            return sync_error(ErrorCode.inconsistent_group_protocol)
        group = self._coordinator.groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            return sync_error(ErrorCode.unknown_member_id)
        reply = Deferred()
        group.sync(
            SyncRequest(
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                generation=request.generation_id,
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignments={given.member_id: given.assignment for given in request.assignments},
            ),
            reply,
        )
        return reply

    # --- Heartbeat ---------------------------------------------------------------------------

    def heartbeat(
        self, context: RequestContext, request: group_messages.HeartbeatRequest
    ) -> group_messages.HeartbeatResponseDict:
        if not context.may(needs.HEARTBEAT, request.group_id):
            return {"error_code": needs.HEARTBEAT.code}
        refusal = self._coordinator.refusal(request.group_id)
        if refusal is ErrorCode.coordinator_load_in_progress:
            # We do not know better: a restart must not make a member join again.
            return {"error_code": ErrorCode.none}
        if refusal is not None:
            return {"error_code": refusal}
        group = self._coordinator.groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            return {"error_code": ErrorCode.unknown_member_id}
        code = group.heartbeat(request.member_id, request.generation_id, request.group_instance_id)
        return {"error_code": code}

    # --- LeaveGroup --------------------------------------------------------------------------

    def leave_group(
        self, context: RequestContext, request: group_messages.LeaveGroupRequest
    ) -> group_messages.LeaveGroupResponseDict:
        if not context.may(needs.LEAVE_GROUP, request.group_id):
            return {"error_code": needs.LEAVE_GROUP.code, "members": []}
        is_of_many = context.api_version >= _FIRST_LEAVE_OF_MANY
        leaving: list[tuple[str, str | None]] = (
            [(member.member_id, member.group_instance_id) for member in request.members]
            if is_of_many
            else [(request.member_id, None)]
        )
        refusal = self._coordinator.refusal(request.group_id)
        if refusal is not None:
            return {"error_code": refusal, "members": []}
        group = self._coordinator.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            codes = group.leave(leaving)
        else:
            codes = [ErrorCode.unknown_member_id] * len(leaving)
        if not is_of_many:
            return {"error_code": codes[0]}
        return {
            "error_code": ErrorCode.none,
            "members": [
                {"member_id": member_id, "group_instance_id": instance_id, "error_code": code}
                for (member_id, instance_id), code in zip(leaving, codes, strict=True)
            ],
        }


def _nowhere(
    key: str, code: ErrorCode, message: str | None
) -> cluster_messages.FindCoordinatorResponseCoordinatorsDict:
    return {
        "key": key,
        "error_code": code,
        "error_message": message,
        "node_id": -1,
        "host": "",
        "port": -1,
    }


def _join_request(context: RequestContext, request: group_messages.JoinGroupRequest) -> JoinRequest:
    version = context.api_version
    rebalance_timeout_ms = request.rebalance_timeout
    if version < _FIRST_JOIN_WITH_REBALANCE_TIMEOUT or rebalance_timeout_ms < 0:
        rebalance_timeout_ms = request.session_timeout
    return JoinRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host=f"/{context.client_host}",  # with the slash that Java prints
        session_timeout_ms=request.session_timeout,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple({p.name: p.metadata for p in request.protocols}.items()),
        needs_known_member_id=version >= _FIRST_JOIN_WITH_KNOWN_MEMBER_ID,
        can_skip_assignment=version >= _FIRST_JOIN_WITH_SKIPPED_ASSIGNMENT,
    )


def _without_null_protocol(reply: Deferred) -> Deferred:
    """The same answer for versions in which the name of a protocol cannot be null."""
    answer = Deferred()

    def answered(response: Response | None, error: BaseException | None) -> None:
        if response is not None:
            answer.resolve({**response, "protocol_name": response["protocol_name"] or ""})
        elif error is not None:
            answer.fail(error)

    reply.when_done(answered)
    return answer

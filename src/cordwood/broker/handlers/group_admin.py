"""Listing, describing and deleting groups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.broker.groups.classic.group_transitions import ClassicState
from cordwood.broker.groups.coordinator import AnyGroup, GroupCoordinator
from cordwood.broker.net.requests.request import (
    Deferred,
    RequestContext,
    Response,
    Route,
    RunsOn,
    routes_on,
)
from cordwood.broker.security import access_table as needs
from cordwood.protocol.acl_codes import NOT_ASKED, AclResource
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode

if TYPE_CHECKING:
    from cordwood.protocol.schemas import group_messages as messages

_FIRST_DESCRIBE_WITH_GROUP_ID_NOT_FOUND: Final = 6


class GroupAdminHandler:
    """Requests of admin tools about groups. Called in the control loop."""

    def __init__(self, *, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.CONTROL,
            {
                ApiKey.LIST_GROUPS: self.list_groups,
                ApiKey.DESCRIBE_GROUPS: self.describe_groups,
                ApiKey.DELETE_GROUPS: self.delete_groups,
            },
        )

    # --- ListGroups --------------------------------------------------------------------------

    def list_groups(
        self, context: RequestContext, request: messages.ListGroupsRequest
    ) -> Response | Deferred:
        refusal = self._coordinator.refusal_to_list()
        if refusal is not None:
            return {"error_code": refusal, "groups": []}
        sees_all = context.may(needs.LIST_GROUPS_CLUSTER)
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}

        def answer(code: ErrorCode) -> messages.ListGroupsResponseDict:
            groups = [
                _listed(group)
                for group in self._coordinator.all_groups()
                if (not states or group.state_name.lower() in states)
                and (not types or group.group_type in types)
                and (sees_all or context.may(needs.LIST_GROUPS_GROUP, group.group_id))
            ]
            return {"error_code": ErrorCode.none, "groups": groups}

        return self._coordinator.with_offsets(None, answer)

    # --- DescribeGroups ----------------------------------------------------------------------

    def describe_groups(
        self, context: RequestContext, request: messages.DescribeGroupsRequest
    ) -> Response | Deferred:
        operations = partial(context.session.access.operations, AclResource.GROUP)
        is_asked = request.include_authorized_operations
        refused: list[messages.DescribeGroupsResponseGroupsDict] = []
        group_ids: list[str] = []
        for group_id in dict.fromkeys(request.groups):
            if context.may(needs.DESCRIBE_GROUPS, group_id):
                group_ids.append(group_id)
            else:
                refused.append({"group_id": group_id, "error_code": needs.DESCRIBE_GROUPS.code})
        if not group_ids:
            return {"groups": refused}
        return self._coordinator.with_offsets(
            group_ids,
            lambda code: {
                "groups": refused
                + [
                    {
                        **(described := self._described(context, group_id)),
                        "authorized_operations": operations(group_id)
                        if is_asked and not described["error_code"]
                        else NOT_ASKED,
                    }
                    for group_id in group_ids
                ]
            },
        )

    def _described(
        self, context: RequestContext, group_id: str
    ) -> messages.DescribeGroupsResponseGroupsDict:
        refusal = self._coordinator.refusal(group_id, allows_empty=True)
        if refusal is not None:
            return {"group_id": group_id, "error_code": refusal, "group_state": ""}
        group = self._coordinator.find(group_id)
        if isinstance(group, ClassicGroup):
            return _described_classic(group)
        answer: messages.DescribeGroupsResponseGroupsDict = {
            "group_id": group_id,
            "error_code": ErrorCode.none,
            "group_state": ClassicState.DEAD.value,
        }
        if context.api_version >= _FIRST_DESCRIBE_WITH_GROUP_ID_NOT_FOUND:
            what = "not found" if group is None else "not a classic group"
            answer["error_code"] = ErrorCode.group_id_not_found
            answer["error_message"] = f"Group {group_id} is {what}."
        return answer

    # --- DeleteGroups ------------------------------------------------------------------------

    def delete_groups(
        self, context: RequestContext, request: messages.DeleteGroupsRequest
    ) -> Response | Deferred:
        wanted = list(dict.fromkeys(request.groups_names))
        refused = {
            group_id: needs.DELETE_GROUPS.code
            for group_id in wanted
            if not context.may(needs.DELETE_GROUPS, group_id)
        }
        group_ids = [group_id for group_id in wanted if group_id not in refused]
        if not group_ids:
            return {"results": [_result(*item) for item in refused.items()]}
        return self._coordinator.with_offsets(
            group_ids, lambda code: self._delete(context, group_ids, refused, code)
        )

    def _delete(
        self,
        context: RequestContext,
        group_ids: list[str],
        refused: dict[str, ErrorCode],
        code: ErrorCode,
    ) -> Response | Deferred:
        results: dict[str, ErrorCode] = {}
        reply = Deferred()

        def finished(group_id: str, code: ErrorCode) -> None:
            results[group_id] = code
            if code is ErrorCode.none:
                context.changed("DELETE", "GROUP", group_id)
            if len(results) == len(group_ids):
                finals = {group_id: results[group_id] for group_id in group_ids} | refused
                reply.resolve({"results": [_result(*item) for item in finals.items()]})

        for group_id in group_ids:
            refusal = self._coordinator.refusal(group_id, allows_empty=True)
            if refusal is None and code is not ErrorCode.none:
                refusal = ErrorCode.coordinator_not_available
            if refusal is not None:
                finished(group_id, refusal)
                continue
            self._coordinator.delete(group_id, partial(finished, group_id))
        return reply


def _listed(group: AnyGroup) -> messages.ListGroupsResponseGroupsDict:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type or "",
        "group_state": group.state_name,
        "group_type": group.group_type,
    }


def _described_classic(group: ClassicGroup) -> messages.DescribeGroupsResponseGroupsDict:
    """The metadata of members is included once they agreed on a protocol."""
    is_stable = group.state is ClassicState.STABLE
    return {
        "error_code": ErrorCode.none,
        "group_id": group.group_id,
        "group_state": group.state_name,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol_name or "") if is_stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol_name) if is_stable else b"",
                "member_assignment": member.assignment,
            }
            for member in group.members()
        ],
    }


def _result(group_id: str, code: ErrorCode) -> messages.DeleteGroupsResponseResultsDict:
    return {"group_id": group_id, "error_code": code}

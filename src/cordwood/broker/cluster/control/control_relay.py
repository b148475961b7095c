"""What clients ask of the controllers through this broker.

The broker checks whether the client may, and passes on what it may, in the client's own version and
in an envelope: the controllers learn who the client is, decide again by their own rules, and count
its quotas. A request is repeated at another controller only if it certainly was not carried out;
else the client gets REQUEST_TIMED_OUT and looks for itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from cordwood.broker.cluster.control.control_requests import ControlRequest
from cordwood.broker.cluster.control.deciding_control import DecidingControl
from cordwood.broker.cluster.control.relayed_changes import relayed_changes
from cordwood.broker.cluster.control.relayed_settings import unusable_setting, with_reasons
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.requests.request import Deferred, RequestContext, Response, Route, RunsOn
from cordwood.broker.security import access_table as needs
from cordwood.broker.security.access_table import Need
from cordwood.cluster.control.relayed_items import (
    ITEM_RULES,
    Item,
    as_mapping,
    merged,
    split_items,
)
from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.errors import CordwoodError, FormatError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.envelope import encode_principal, envelope, open_envelope
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.message_codec import Fields
from cordwood.protocol.message_schema import NIL_UUID
from cordwood.protocol.messages import encode_request

if TYPE_CHECKING:
    from cordwood.protocol.schemas import control_messages as messages

logger = logging.getLogger(__name__)

TOPIC_RESOURCE: Final = 2
_TIMEOUT_S: Final = 25.0  # most clients wait for 30 s: they should hear that nobody decides
_TIMEOUT_MAX_S: Final = 300.0
_EARLIER_S: Final = 5.0

# APIs for which one right is enough for the whole request.
_WHOLE: Final[Mapping[ApiKey, Need]] = {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: needs.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: needs.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ELECT_LEADERS: needs.ELECT_LEADERS,
    ApiKey.CREATE_ACLS: needs.CREATE_ACLS,
    ApiKey.DELETE_ACLS: needs.DELETE_ACLS,
    ApiKey.ALTER_CLIENT_QUOTAS: needs.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: needs.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_QUORUM: needs.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES: needs.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER: needs.UNREGISTER_BROKER,
}
_BY_ITEM: Final = tuple(ITEM_RULES)
# Where the answers of an API have a list of results instead of one error code.
_RESULTS: Final[Mapping[ApiKey, tuple[str, str]]] = {
    ApiKey.CREATE_ACLS: ("creations", "results"),
    ApiKey.DELETE_ACLS: ("filters", "filter_results"),
    ApiKey.ALTER_CLIENT_QUOTAS: ("entries", "entries"),
}

ItemVerdict = Callable[[RequestContext, Item, MetadataImage], int]


class ControllerRelay:
    """Handlers that run in the control loop, and answer once a controller has."""

    def __init__(self, loop: EventLoop, control: DecidingControl) -> None:
        self._loop = loop
        self._control = control
        self._verdicts: Mapping[ApiKey, ItemVerdict] = {
            ApiKey.CREATE_TOPICS: _may_create,
            ApiKey.DELETE_TOPICS: _may_delete,
            ApiKey.CREATE_PARTITIONS: _may_grow,
            ApiKey.ALTER_CONFIGS: _may_configure,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: _may_configure,
        }

    def routes(self, apis: frozenset[ApiKey] | None = None) -> list[Route]:
        """The handlers of `apis`; of all that can be relayed if that is None."""
        found = {api: partial(self.relay_whole, api) for api in _WHOLE}
        found |= {api: partial(self.relay_items, api) for api in _BY_ITEM}
        return [
            Route(api=api, handler=handler, runs_on=RunsOn.CONTROL)
            for api, handler in found.items()
            if apis is None or api in apis
        ]

    # --- handlers ------------------------------------------------------------------------------

    def relay_whole(
        self, api: ApiKey, context: RequestContext, request: Fields
    ) -> Response | Deferred:
        need = _WHOLE[api]
        if not context.may(need):
            return _refused(api, as_mapping(request), need.code, "Authorization failed.")
        return self._relay(api, context, as_mapping(request), lambda answer: answer)

    def relay_items(
        self, api: ApiKey, context: RequestContext, request: Fields
    ) -> Response | Deferred:
        if api is ApiKey.DELETE_TOPICS and context.api_version <= _LAST_WITH_NAMES:
            return self._relay_deletion_by_name(context, request)
        rule, verdict, image = ITEM_RULES[api], self._verdicts[api], self._control.image
        split = split_items(rule, request, lambda item: verdict(context, item, image))
        refused = split.refused
        if refused and verdict is _may_configure:
            refused = with_reasons(refused, as_mapping(request)[rule.asked])
        if split.request is None:
            return {rule.answered: refused}

        def complete(answer: Mapping[str, Any]) -> Response:
            if api is ApiKey.CREATE_TOPICS:
                answer = _without_hidden_configs(context, answer)
            return merged(rule, answer, refused)

        return self._relay(api, context, split.request, complete)

    def _relay_deletion_by_name(
        self, context: RequestContext, request: Fields
    ) -> Response | Deferred:
        """Old versions list names, not structures."""
        rule, image = ITEM_RULES[ApiKey.DELETE_TOPICS], self._control.image
        whole = as_mapping(request)
        codes = {
            name: _may_delete(context, {"name": name, "topic_id": NIL_UUID}, image)
            for name in whole["topic_names"]
        }
        refused = [
            rule.refusal({"name": name, "topic_id": NIL_UUID}, code)
            for name, code in codes.items()
            if code
        ]
        allowed = [name for name, code in codes.items() if not code]
        if not allowed:
            return {rule.answered: refused}
        return self._relay(
            ApiKey.DELETE_TOPICS,
            context,
            {**whole, "topic_names": allowed},
            lambda answer: merged(rule, answer, refused),
        )

    # --- passing on ----------------------------------------------------------------------------

    def _relay(
        self,
        api: ApiKey,
        context: RequestContext,
        request: Mapping[str, Any],
        complete: Callable[[Mapping[str, Any]], Response],
    ) -> Deferred:
        later = Deferred()
        before = self._control.image
        principal = encode_principal(*context.session.principal)
        wrapped = envelope(
            context.header, request, principal=principal, client_host=context.client_host
        )

        def answered(result: Fields | CordwoodError, _version: int) -> None:
            code, message = ErrorCode.none, ""
            if isinstance(result, CordwoodError):
                code, message = ErrorCode.request_timed_out, str(result)
            else:
                sealed = cast("messages.EnvelopeResponse", result)
                if sealed.error_code or sealed.response_data is None:
                    code, message = _undelivered(api, sealed.error_code)
                else:
                    try:
                        answer = as_mapping(open_envelope(context.header, sealed.response_data))
                    except FormatError as error:
                        code, message = ErrorCode.unknown_server_error, str(error)
            if code:
                later.resolve(complete(_refused(api, request, code, message)))
                return
            for change in relayed_changes(api, request, answer, before):
                operation, resource, name, old, new = change
                context.changed(operation, resource, name, old=old, new=new)
            later.resolve(complete(answer))

        timeout_s = _timeout_s(request)
        self._control.relay.send(
            ControlRequest(
                api=ApiKey.ENVELOPE,
                version_min=0,
                version_max=0,
                encode=lambda sent: encode_request(ApiKey.ENVELOPE, sent, wrapped),
                when_done=answered,
                timeout_s=timeout_s,
                attempt_s=timeout_s,
                repeats_unknown=api in _REPEATABLE,
            )
        )
        return later


_LAST_WITH_NAMES: Final = 5
_REPEATABLE: Final = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.LIST_PARTITION_REASSIGNMENTS})


def _undelivered(api: ApiKey, code: int) -> tuple[ErrorCode, str]:
    """What a client is told if the controllers do not look into an envelope."""
    if code == ErrorCode.unsupported_version:
        return ErrorCode.unsupported_version, "the controllers do not know this version"
    reason = ErrorCode(code).name if code in set(ErrorCode) else str(code)
    if code == ErrorCode.cluster_authorization_failed:
        reason += (
            ": the principal of this broker needs ClusterAction on the cluster; add it to "
            "super.users of the controllers"
        )
    logger.error("the controllers refuse to take %s from this broker: %s", api.name, reason)
    return ErrorCode.unknown_server_error, "the controllers take no requests from this broker"


def _timeout_s(request: Mapping[str, Any]) -> float:
    """Nearly as long as the client waits, within reason."""
    asked_ms: int = request.get("timeout", 0)
    return min(max(asked_ms / 1000 - _EARLIER_S, _TIMEOUT_S), _TIMEOUT_MAX_S)


def _refused(
    api: ApiKey, request: Mapping[str, Any], code: ErrorCode, message: str
) -> Mapping[str, Any]:
    """An answer without the controllers."""
    failed = {"error_code": code, "error_message": message}
    if api in ITEM_RULES:
        rule = ITEM_RULES[api]
        items = request.get(rule.asked) or [
            {"name": name, "topic_id": NIL_UUID} for name in request.get("topic_names", ())
        ]
        return {
            rule.answered: [
                {**rule.refusal(item, code), "error_message": message} for item in items
            ]
        }
    if api is ApiKey.ALTER_CLIENT_QUOTAS:
        return {"entries": [{**failed, "entity": entry["entity"]} for entry in request["entries"]]}
    if api is ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
        users = [each["name"] for key in ("deletions", "upsertions") for each in request[key]]
        return {"results": [{"user": user, **failed} for user in dict.fromkeys(users)]}
    if api in _RESULTS:
        asked, answered = _RESULTS[api]
        return {answered: [failed for _ in request[asked]]}
    if api is ApiKey.ELECT_LEADERS:
        return {"error_code": code}
    return failed


def _without_hidden_configs(
    context: RequestContext, answer: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The configurations of a new topic are only for those who may describe them."""
    hidden = {
        "configs": None,
        "num_partitions": -1,
        "replication_factor": -1,
        "topic_config_error_code": needs.CREATE_TOPICS_CONFIGS.code,
    }
    topics = [
        topic
        if topic["error_code"] or context.may(needs.CREATE_TOPICS_CONFIGS, topic["name"])
        else {**topic, **hidden}
        for topic in answer["topics"]
    ]
    return {**answer, "topics": topics}


# --- who may what -----------------------------------------------------------------------------


def _may_create(context: RequestContext, item: Item, _image: MetadataImage) -> int:
    name = item["name"]
    if context.may(needs.CREATE_TOPICS_CLUSTER) or context.may(needs.CREATE_TOPICS_TOPIC, name):
        return ErrorCode.none
    return needs.CREATE_TOPICS_TOPIC.code


def _may_delete(context: RequestContext, item: Item, image: MetadataImage) -> int:
    name, topic_id = item["name"], item.get("topic_id", NIL_UUID)
    if topic_id != NIL_UUID:
        topic = image.topics.get(topic_id)
        if topic is None:
            return ErrorCode.none  # the controllers say that it is unknown
        if not context.may(needs.DELETE_TOPICS_NAME, topic.name):
            return ErrorCode.unknown_topic_id  # it may not know that the topic exists
        name = topic.name
    if (
        name is None
        or context.may(needs.DELETE_TOPICS_CLUSTER)
        or context.may(needs.DELETE_TOPICS_TOPIC, name)
    ):
        return ErrorCode.none
    return needs.DELETE_TOPICS_TOPIC.code


def _may_grow(context: RequestContext, item: Item, _image: MetadataImage) -> int:
    if context.may(needs.CREATE_PARTITIONS_TOPIC, item["name"]):
        return ErrorCode.none
    return needs.CREATE_PARTITIONS_TOPIC.code


def _may_configure(context: RequestContext, item: Item, _image: MetadataImage) -> int:
    kind, name = item["resource_type"], item["resource_name"]
    if kind == TOPIC_RESOURCE:
        need, resource = needs.INCREMENTAL_ALTER_CONFIGS_TOPIC, name
    elif kind == _GROUP_RESOURCE:
        need, resource = needs.INCREMENTAL_ALTER_CONFIGS_GROUP, name
    else:
        if not context.may(needs.INCREMENTAL_ALTER_CONFIGS_CLUSTER):
            return needs.INCREMENTAL_ALTER_CONFIGS_CLUSTER.code
        return ErrorCode.none if unusable_setting(item) is None else ErrorCode.invalid_config
    return ErrorCode.none if context.may(need, resource) else need.code


_GROUP_RESOURCE: Final = 32

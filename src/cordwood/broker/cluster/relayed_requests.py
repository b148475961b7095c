"""Requests of clients that the controllers decide: passed on, and answered with their answer.

The controllers see this broker as the sender. So a member of a cluster has no authorizer: nobody
would check the client.
"""

import logging
from functools import partial
from typing import Any, Final

from cordwood.broker.cluster.control_requests import ControlRequest, ControlRequests
from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.net.event_loop import EventLoop
from cordwood.broker.net.request import Deferred, RequestContext, Route, RunsOn
from cordwood.errors import CordwoodError
from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.message_codec import Fields
from cordwood.protocol.message_schema import message_schema
from cordwood.protocol.messages import encode_request

logger = logging.getLogger(__name__)

RELAYED: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ELECT_LEADERS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
)
_TIMEOUT_S: Final = 30.0


class RelayedRequests:
    """Any thread may call the handler; the relay belongs to the control loop."""

    def __init__(self, relay: ControlRequests, loop: EventLoop) -> None:
        self._relay = relay
        self._loop = loop

    def routes(self) -> list[Route]:
        return [
            Route(api=api, handler=partial(self.relay, api), runs_on=RunsOn.ANYWHERE)
            for api in RELAYED
        ]

    def relay(self, api: ApiKey, context: RequestContext, request: Fields) -> Deferred:
        """Ask the active controller in the version of the client."""
        version = context.api_version
        reply = Deferred()
        body = encode_request(api, version, as_mapping(request))

        def done(answer: Fields | CordwoodError, _version: int) -> None:
            if isinstance(answer, CordwoodError):
                logger.warning("%s was not answered: %s", KNOWN_APIS[api].name, answer)
                _refuse(api, reply, answer)
            else:
                reply.resolve(as_mapping(answer))

        self._loop.call_soon(
            lambda: self._relay.send(
                ControlRequest(
                    api=api,
                    version_min=version,
                    version_max=version,
                    encode=lambda _version: body,
                    when_done=done,
                    timeout_s=_TIMEOUT_S,
                    repeats_unknown=False,
                )
            )
        )
        return reply


def as_mapping(fields: Fields) -> dict[str, Any]:
    """A structure that was read, as one that can be written."""
    return {name: _plain(value) for name, value in zip(fields.names, fields, strict=True)}


def _plain(value: object) -> object:
    if isinstance(value, Fields):
        return as_mapping(value)
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def _refuse(api: ApiKey, reply: Deferred, error: CordwoodError) -> None:
    """No controller answered: whether the request was carried out is not known.

    If the answer has no place for an error of the whole request, the connection is closed.
    """
    if any(field.name == "error_code" for field in message_schema(api).response):
        reply.resolve({"error_code": ErrorCode.request_timed_out})
    else:
        reply.fail(error)

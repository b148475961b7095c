"""Handlers called as clients call them: through the bytes of a version, both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, Protocol

from cordwood.broker.cluster_identity import ClusterIdentity
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.dynamic_configs import DynamicConfigs
from cordwood.broker.net.requests.request import Deferred, RequestContext, Response, Route
from cordwood.broker.net.requests.session import Session
from cordwood.broker.records.early_answers import FindAnswer
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.messages import (
    Fields,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from cordwood.protocol.request_header import RequestHeader
from fakes.sessions import LOCAL_SESSION

IDENTITY = ClusterIdentity(node_id=7, cluster_id="cluster", host="broker.example", port=9092)
CONFIG = BrokerConfig(node_id=7, num_partitions=2)


def dynamic(store: Store) -> DynamicConfigs:
    """The settings of a broker over `store`."""
    configs = DynamicConfigs(store, CONFIG)
    configs.restore()
    return configs


class HasRoutes(Protocol):
    def routes(self) -> list[Route]: ...


class InlineExecutor(Executor):
    """Runs what it is given at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def at_once(logs: Iterable[PartitionLog], find_answer: FindAnswer) -> Response:
    """Nothing was acknowledged early: no lookup waits."""
    return find_answer(())


class HandlerCalls:
    """A client that needs no connection."""

    def __init__(self, handlers: Iterable[HasRoutes], session: Session = LOCAL_SESSION) -> None:
        self.session = session
        self.routes = {route.api: route for handler in handlers for route in handler.routes()}

    def __call__(
        self, api: ApiKey, request: Mapping[str, Any] | None = None, *, version: int | None = None
    ) -> Fields:
        """The answer to a request, in the newest version unless told otherwise."""
        if version is None:
            version = API_CATALOG[api].max_version
        header = RequestHeader(api, version, 5, "test")
        fields = decode_request(api, version, encode_request(api, version, request or {}))
        context = RequestContext(header=header, session=self.session)
        answer = self.routes[api].handler(context, fields)
        if isinstance(answer, Deferred):
            assert answer.response is not None
            answer = answer.response
        frame = encode_response(api, version, 5, answer)
        return decode_response(api, version, frame[_header_size(api, version) :])


def _header_size(api: ApiKey, version: int) -> int:
    is_flexible = API_CATALOG[api].is_flexible(version) and api != ApiKey.API_VERSIONS
    return 9 if is_flexible else 8


def versions(api: ApiKey) -> list[int]:
    return list(range(API_CATALOG[api].min_version, API_CATALOG[api].max_version + 1))

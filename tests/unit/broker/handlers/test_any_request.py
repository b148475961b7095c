"""Whatever is asked is answered: no request that can be sent makes a handler fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.broker.cluster_view import SoleBroker
from cordwood.broker.config_owners import ConfigOwners
from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.handlers.access_rules import AccessRulesHandler
from cordwood.broker.handlers.api_versions import ApiVersionsHandler
from cordwood.broker.handlers.list_offsets import ListOffsetsHandler
from cordwood.broker.handlers.log_dirs import LogDirsHandler
from cordwood.broker.handlers.metadata import MetadataHandler
from cordwood.broker.handlers.topic_configs import TopicConfigsHandler
from cordwood.broker.handlers.topic_creation import TopicCreationHandler
from cordwood.broker.handlers.topic_deletion import TopicDeletionHandler
from cordwood.broker.handlers.topic_partitions import TopicPartitionsHandler
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.log.store.store import Store
from cordwood.protocol.acl_codes import AclOperation, AclResource
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.message_schema import message_schema
from cordwood.protocol.messages import Fields
from cordwood.security.access.access_event import AccessEvents
from cordwood.security.access.authorizer import OpenAccess
from cordwood.security.principal import ANONYMOUS
from fakes.handler_calls import CONFIG, IDENTITY, HandlerCalls, InlineExecutor, at_once, dynamic
from fakes.message_values import messages
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC, open_store
from fakes.transaction_handlers import transaction_admin, transactions_handler


def client(store: Store) -> HandlerCalls:
    table = PartitionTable(store)
    return HandlerCalls(
        [
            ApiVersionsHandler(),
            MetadataHandler(
                store=store,
                view=SoleBroker(IDENTITY, store),
                config=CONFIG,
                workers=InlineExecutor(),
            ),
            TopicCreationHandler(store=store, identity=IDENTITY, dynamic=dynamic(store)),
            TopicDeletionHandler(store=store, table=table, config=CONFIG),
            TopicConfigsHandler(ConfigOwners(store, IDENTITY, dynamic(store))),
            ListOffsetsHandler(table, at_once),
            LogDirsHandler(store),
            transactions_handler(store),
            transaction_admin(store),
            TopicPartitionsHandler(SoleBroker(IDENTITY, store), CONFIG),
            AccessRulesHandler(store.open_security(), has_authorizer=True),
        ]
    )


with open_store(SimulatedFileSystem()) as _store:
    APIS = sorted(client(_store).routes)


def codes_in(value: Any) -> set[int]:
    """Every error code anywhere in an answer."""
    if isinstance(value, Fields):
        found = {value.error_code} if "error_code" in value.names else set()
        return found.union(*(codes_in(item) for item in value))
    if isinstance(value, tuple):
        return set().union(*(codes_in(item) for item in value))
    return set()


# What some fields are to be now and then, beside anything.
_HITS: dict[str, list[Any]] = {
    "name": [TOPIC, "other", "retention.ms"],
    "topic": [TOPIC],
    "topic_name": [TOPIC],
    "resource_name": [TOPIC, "7"],
    "resource_type": [2, 4],
    "partition_index": [0, 1],
    "partition": [0, 1],
    "config_operation": [0, 1, 2, 3],
    "timestamp": [0, -1, -2, -3, -4, -5, -6],
}
# And what they are to be always: a number at random may be thousands of partitions.
_COUNTS = [-1, 0, 1, 2, 3, 10_001]


def aimed(data: st.DataObject, request: Any, name: str = "") -> Any:
    """The request with some names and numbers changed to such as there are."""
    if isinstance(request, dict):
        return {key: aimed(data, value, key) for key, value in request.items()}
    if isinstance(request, list):
        return [aimed(data, item) for item in request]
    if name in {"num_partitions", "count"}:
        return data.draw(st.sampled_from(_COUNTS))
    return data.draw(st.sampled_from([request, *_HITS.get(name, [])]))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name.lower())
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_whatever_is_asked_is_answered(api: ApiKey, data: st.DataObject) -> None:
    version = data.draw(st.integers(API_CATALOG[api].min_version, API_CATALOG[api].max_version))
    request = aimed(data, data.draw(messages(message_schema(api).request, version)))
    with open_store(SimulatedFileSystem()) as store:
        store.create_topic(TOPIC, partitions=2)
        store.topic(TOPIC).append(b"value")

        answer = client(store)(api, request, version=version)

    assert ErrorCode.unknown_server_error not in codes_in(answer)


class AnyAccess(OpenAccess):
    """Allows something, and something else not."""

    def __init__(self, data: st.DataObject) -> None:
        super().__init__(ANONYMOUS, "", AccessEvents())
        self.is_unlimited = False
        self._data = data

    def allows(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        return self._data.draw(st.booleans())

    def allows_anywhere(self, operation: AclOperation, resource: AclResource) -> bool:
        return self._data.draw(st.booleans())


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name.lower())
@settings(max_examples=settings().max_examples // 4)
@given(data=st.data())
def test_whatever_a_client_may_do_it_is_answered(api: ApiKey, data: st.DataObject) -> None:
    version = data.draw(st.integers(API_CATALOG[api].min_version, API_CATALOG[api].max_version))
    request = aimed(data, data.draw(messages(message_schema(api).request, version)))
    with open_store(SimulatedFileSystem()) as store:
        store.create_topic(TOPIC, partitions=2)
        calls = client(store)
        calls.session = replace(calls.session, access=AnyAccess(data))

        answer = calls(api, request, version=version)

    assert ErrorCode.unknown_server_error not in codes_in(answer)

"""The table of APIs: what is in it, and that it is Kafka's."""

from __future__ import annotations

import pytest
from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map

from cordwood.protocol.api_catalog import API_CATALOG, CLUSTER_CATALOG, KNOWN_APIS, Api, ApiKey
from cordwood.protocol.schemas import MESSAGE_SCHEMAS

SERVED = {
    0,
    1,
    2,
    3,
    *range(8, 34),
    35,
    36,
    37,
    42,
    44,
    46,
    47,
    48,
    49,
    50,
    51,
    60,
    61,
    65,
    66,
    68,
    69,
    71,
    72,
    74,
    75,
}
APIS = list(KNOWN_APIS.values())
# The one API whose newest version Kafka 4.3 marks as unstable, and does not serve.
UNSTABLE = {ApiKey.INIT_PRODUCER_ID: 6}


def test_the_catalog_is_what_clients_of_kafka_4_need() -> None:
    assert set(API_CATALOG) == SERVED


def test_every_key_has_a_name_and_every_name_a_key() -> None:
    assert set(KNOWN_APIS) == set(ApiKey)
    assert all(key == api.key for key, api in KNOWN_APIS.items())


def test_what_brokers_ask_of_controllers_is_not_served_by_every_broker() -> None:
    assert not set(API_CATALOG) & set(CLUSTER_CATALOG)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_versions_and_names_are_those_of_kafka_4_3(api: Api) -> None:
    name = api_key_map[api.key]
    versions = schema_name_map[name]

    assert api.key.name.lower() == name
    assert api.min_version == min(versions)
    assert api.max_version == max(versions) - (api.key in UNSTABLE)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_flexible_versions_are_those_of_kafka(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        schema = load_request_schema(api.key, version)

        assert api.is_flexible(version) == schema.__flexible__, version


def test_only_produce_advertises_more_than_it_serves() -> None:
    others = [api for api in APIS if api.key != ApiKey.PRODUCE]

    assert API_CATALOG[ApiKey.PRODUCE].advertised_min_version == 0
    assert not API_CATALOG[ApiKey.PRODUCE].serves(2)
    assert all(api.advertised_min_version == api.min_version for api in others)


def test_all_but_produce_and_fetch_have_a_schema() -> None:
    assert set(MESSAGE_SCHEMAS) == set(KNOWN_APIS) - {ApiKey.PRODUCE, ApiKey.FETCH}

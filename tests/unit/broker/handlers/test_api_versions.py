"""ApiVersions: clients learn what we speak, whatever version they ask in."""

from __future__ import annotations

import pytest

from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.handlers.api_versions import ApiVersionsHandler, unsupported_version_response
from cordwood.broker.net.requests.request import RunsOn
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.messages import decode_response
from fakes.handler_calls import HandlerCalls, versions

SOFTWARE = {"client_software_name": "test-client", "client_software_version": "1.2.3"}


@pytest.fixture
def call() -> HandlerCalls:
    return HandlerCalls([ApiVersionsHandler()])


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_the_answer_is_the_catalog_in_every_version(call: HandlerCalls, version: int) -> None:
    answer = call(ApiKey.API_VERSIONS, SOFTWARE, version=version)

    assert answer.error_code == ErrorCode.none
    assert {(a.api_key, a.min_version, a.max_version) for a in answer.api_keys} == {
        (api.key, api.advertised_min_version, api.max_version) for api in API_CATALOG.values()
    }
    assert (ApiKey.PRODUCE, 0, 13) in {
        (a.api_key, a.min_version, a.max_version) for a in answer.api_keys
    }


def test_a_version_we_do_not_know_is_answered_in_the_oldest() -> None:
    frame = unsupported_version_response(77)

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    answer = decode_response(ApiKey.API_VERSIONS, 0, frame[8:])
    assert answer.error_code == ErrorCode.unsupported_version
    [entry] = [item for item in answer.api_keys if item.api_key == ApiKey.API_VERSIONS]
    assert (entry.min_version, entry.max_version) == (0, 4)


def test_each_frame_has_its_own_correlation_id() -> None:
    first, second = unsupported_version_response(1), unsupported_version_response(2)

    assert (first[4:8], second[4:8]) == (b"\0\0\0\1", b"\0\0\0\2")


@pytest.mark.parametrize("name", ["", "-a", "a b", "a_b", "a.", "ü"])
@pytest.mark.parametrize("field", list(SOFTWARE))
def test_software_that_is_not_named_properly_is_refused(
    call: HandlerCalls, name: str, field: str
) -> None:
    answer = call(ApiKey.API_VERSIONS, {**SOFTWARE, field: name}, version=3)

    assert answer.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "confluent-kafka-python", "4.3.1"])
def test_software_of_real_clients_is_accepted(call: HandlerCalls, name: str) -> None:
    answer = call(ApiKey.API_VERSIONS, {**SOFTWARE, "client_software_name": name}, version=4)

    assert answer.error_code == ErrorCode.none


def test_consumer_groups_and_transactions_of_the_new_kind_are_features(call: HandlerCalls) -> None:
    answer = call(ApiKey.API_VERSIONS, SOFTWARE)

    assert [(f.name, f.min_version, f.max_version) for f in answer.supported_features] == [
        ("group.version", 0, 1),
        ("transaction.version", 0, 2),
    ]
    assert [(f.name, f.max_version_level) for f in answer.finalized_features] == [
        ("group.version", 1),
        ("transaction.version", 2),
    ]
    assert answer.finalized_features_epoch >= 0


def test_features_that_may_be_at_level_0_are_kept_from_clients_that_fail_on_them(
    call: HandlerCalls,
) -> None:
    answer = call(ApiKey.API_VERSIONS, SOFTWARE, version=3)

    assert answer.supported_features == ()
    assert len(answer.finalized_features) == 2


def test_it_never_waits_for_the_disk(call: HandlerCalls) -> None:
    assert call.routes[ApiKey.API_VERSIONS].runs_on is RunsOn.ANYWHERE

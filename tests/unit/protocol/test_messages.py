"""Messages of every API and version, with two other implementations as judges.

kio knows all of them; kafka-python, which knows most, was written from another generator.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import struct
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from cordwood.errors import FormatError, LimitExceededError, TruncatedInputError
from cordwood.protocol.api_catalog import KNOWN_APIS, Api, ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.message_codec import ITEMS_MAX
from cordwood.protocol.message_schema import message_schema
from cordwood.protocol.messages import (
    Fields,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from cordwood.protocol.wire_values import encode_varint
from fakes.message_values import APIS, messages, versions

NEWEST = [(api.key, api.max_version) for api in APIS]
# For tests of every API: as many examples of each would be as many minutes.
some_of_each = settings(max_examples=max(settings().max_examples // 2, 1))
every_api = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


def plain(value: Any) -> Any:
    """A value of kio's or ours as dictionaries, tuples and numbers."""
    if isinstance(value, Fields):
        return {name: plain(item) for name, item in zip(value.names, value, strict=True)}
    if isinstance(value, (tuple, list)):
        return tuple(plain(item) for item in value)
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        # kio writes `id_`, because `id` is a function of Python.
        return {
            field.name.rstrip("_"): plain(getattr(value, field.name)) for field in fields(value)
        }
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return value.timestamp() * 1000
    return value


IDS = {"topic_id", "id", "incarnation_id", "replica_directory_id"}


def with_zero_ids(value: Any) -> Any:
    """kio reads the id of all zeros as None; we have no other word for it."""
    if isinstance(value, dict):
        return {
            name: UUID(int=0) if name in IDS and item is None else with_zero_ids(item)
            for name, item in value.items()
        }
    if isinstance(value, tuple):
        return tuple(with_zero_ids(item) for item in value)
    return value


def body_of(key: int, version: int, frame: bytes) -> bytes:
    is_flexible = KNOWN_APIS[key].is_flexible(version) and key != ApiKey.API_VERSIONS
    return frame[9 if is_flexible else 8 :]


def written_by_kio(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(schema)(out, value)
    return out.getvalue()


def only_present(value: Any, sample: Any) -> Any:
    """`value` without the fields that `sample`, the message as sent, does not have."""
    if isinstance(sample, dict):
        return {name: only_present(value[name], item) for name, item in sample.items()}
    if isinstance(sample, tuple):
        return tuple(only_present(a, b) for a, b in zip(value, sample, strict=True))
    return value


@every_api
@some_of_each
@given(data=st.data())
def test_kio_reads_what_we_write_and_writes_what_we_read(api: Api, data: st.DataObject) -> None:
    key, version = api.key, data.draw(versions(api))
    request = data.draw(messages(message_schema(key).request, version))
    response = data.draw(messages(message_schema(key).response, version))

    request_bytes = encode_request(key, version, request)
    response_bytes = body_of(key, version, encode_response(key, version, 7, response))

    for bytes_, sent, schema, decoded in (
        (
            request_bytes,
            request,
            load_request_schema(key, version),
            decode_request(key, version, request_bytes),
        ),
        (
            response_bytes,
            response,
            load_response_schema(key, version),
            decode_response(key, version, response_bytes),
        ),
    ):
        theirs, size = entity_reader(schema)(bytes_, 0)
        assert size == len(bytes_)
        assert with_zero_ids(plain(theirs)) == plain(sent)
        assert written_by_kio(schema, theirs) == bytes_
        assert only_present(plain(decoded), plain(sent)) == plain(sent)


def kafka_python_class(key: int, kind: str) -> Any:
    name = f"{KNOWN_APIS[key].name}{kind}"
    for package in ("admin", "consumer", "metadata", "producer", "sasl"):
        module = importlib.import_module(f"kafka.protocol.{package}")
        if hasattr(module, name):
            return getattr(module, name)
    return None


KNOWN_TO_KAFKA_PYTHON = [api for api in APIS if kafka_python_class(api.key, "Request")]


def test_kafka_python_judges_most_apis() -> None:
    unknown = {api.name for api in APIS} - {api.name for api in KNOWN_TO_KAFKA_PYTHON}

    assert unknown == {
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
        "GetTelemetrySubscriptions",
        "PushTelemetry",
        # Between brokers and controllers, which kafka-python is not.
        "AllocateProducerIds",
        "AlterPartition",
        "AssignReplicasToDirs",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "Envelope",
        "FetchSnapshot",
        "UnregisterBroker",
    }


@pytest.mark.parametrize("api", KNOWN_TO_KAFKA_PYTHON, ids=lambda api: api.name)
@some_of_each
@given(data=st.data())
def test_kafka_python_reads_our_messages_and_writes_the_same_bytes(
    api: Api, data: st.DataObject
) -> None:
    key = api.key
    version = data.draw(
        st.integers(
            api.min_version, min(api.max_version, kafka_python_class(key, "Request").max_version)
        )
    )
    request = data.draw(messages(message_schema(key).request, version))
    response = data.draw(messages(message_schema(key).response, version))
    if key == ApiKey.API_VERSIONS:
        response["error_code"] = 0  # a refusal kafka-python reads as version 0, whatever it asked

    request_bytes = encode_request(key, version, request)
    frame = encode_response(key, version, 7, response)

    theirs = kafka_python_class(key, "Request").decode(request_bytes, version=version)
    theirs._header = None
    assert bytes(theirs.encode(version=version)) == request_bytes
    answer = kafka_python_class(key, "Response").decode(
        frame, version=version, header=True, framed=True
    )
    assert answer.header.correlation_id == 7
    answer._header = None
    assert bytes(answer.encode(version=version)) == body_of(key, version, frame)


def test_a_field_that_the_version_lacks_reads_as_its_default() -> None:
    body = encode_request(ApiKey.JOIN_GROUP, 0, {"group_id": "g", "session_timeout": 6000})

    request = decode_request(ApiKey.JOIN_GROUP, 0, body)

    assert request.group_id == "g"
    assert request.session_timeout == 6000
    assert request.rebalance_timeout == -1
    assert request.group_instance_id is None
    assert request.protocols == ()


def test_a_field_of_old_versions_only_is_there_in_new_ones_too() -> None:
    body = encode_request(ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": ["a", "b"]})

    request = decode_request(ApiKey.FIND_COORDINATOR, 4, body)

    assert request.coordinator_keys == ("a", "b")
    assert request.key == ""


def test_a_name_the_version_lacks_is_not_sent() -> None:
    newest = encode_response(ApiKey.HEARTBEAT, 0, 1, {"throttle_time": 5, "error_code": 27})

    assert newest == struct.pack(">iih", 6, 1, 27)


@pytest.mark.parametrize(("key", "version"), NEWEST)
def test_a_name_that_no_version_has_is_our_bug(key: int, version: int) -> None:
    with pytest.raises(KeyError, match="no_such_field"):
        encode_response(key, version, 1, {"no_such_field": 1})


def test_null_where_the_version_allows_none_is_our_bug_and_named() -> None:
    with pytest.raises(ValueError, match="must be a string") as raised:
        encode_response(ApiKey.DESCRIBE_CLUSTER, 0, 1, {"cluster_id": None})

    assert raised.value.__notes__ == ["in field cluster_id"]


def test_an_enum_is_written_as_its_number() -> None:
    response = {"error_code": ErrorCode.rebalance_in_progress}

    frame = encode_response(ApiKey.HEARTBEAT, 4, 9, response)

    assert decode_response(ApiKey.HEARTBEAT, 4, frame[9:]).error_code == 27


def test_the_answer_to_api_versions_always_has_the_old_header() -> None:
    frame = encode_response(ApiKey.API_VERSIONS, 3, 9, {})

    assert decode_response(ApiKey.API_VERSIONS, 3, frame[8:]).api_keys == ()


def test_tagged_fields_that_are_the_default_are_not_sent() -> None:
    bare = encode_response(ApiKey.API_VERSIONS, 3, 9, {})

    same = encode_response(
        ApiKey.API_VERSIONS, 3, 9, {"supported_features": [], "finalized_features_epoch": -1}
    )

    assert same == bare
    assert bare.endswith(b"\0")


def test_unknown_tagged_fields_are_skipped() -> None:
    body = encode_request(ApiKey.HEARTBEAT, 4, {"group_id": "g", "member_id": "m"})

    extended = body[:-1] + b"\x02" + b"\x07\x03abc" + b"\x50\x00"

    assert decode_request(ApiKey.HEARTBEAT, 4, extended) == decode_request(
        ApiKey.HEARTBEAT, 4, body
    )


def test_a_tagged_field_of_another_size_than_it_says_is_refused() -> None:
    frame = encode_response(ApiKey.API_VERSIONS, 3, 9, {"finalized_features_epoch": 5})
    body = bytearray(frame[8:])
    assert body[-9] == 8  # its size, ahead of the eight bytes

    body[-9] = 7

    with pytest.raises(FormatError):
        decode_response(ApiKey.API_VERSIONS, 3, bytes(body))


def test_bytes_behind_a_message_are_passed_over() -> None:
    body = encode_request(ApiKey.HEARTBEAT, 0, {"group_id": "g"})

    read = decode_request(ApiKey.HEARTBEAT, 0, body + b"\0")

    assert read == decode_request(ApiKey.HEARTBEAT, 0, body)


def test_librdkafkas_way_to_ask_for_all_topics_is_understood() -> None:
    read = decode_request(ApiKey.METADATA, 13, bytes.fromhex("00000000010000"))

    assert read.topics is None


@every_api
def test_a_message_cut_short_is_refused_wherever_it_is_cut(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        body = encode_request(api.key, version, {})

        for size in range(len(body)):
            with pytest.raises(FormatError):
                decode_request(api.key, version, body[:size])


@every_api
@some_of_each
@given(data=st.data())
def test_whatever_bytes_come_nothing_but_a_format_error_is_raised(
    api: Api, data: st.DataObject
) -> None:
    key, version = api.key, data.draw(versions(api))
    request = data.draw(messages(message_schema(key).request, version))
    body = bytearray(encode_request(key, version, request))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 4))] = data.draw(
            st.binary(max_size=6) | st.sampled_from([b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff"])
        )

    with contextlib.suppress(FormatError):
        decode_request(key, version, bytes(body))


@given(st.binary(max_size=64))
@example(b"\xff\xff\xff\xff\x0f")
@example(b"\x80\x80\x80\x80\x80\x80")
def test_noise_is_never_more_than_a_format_error(noise: bytes) -> None:
    for key, version in NEWEST:
        with contextlib.suppress(FormatError):
            decode_request(key, version, noise)


def test_an_array_that_claims_more_items_than_bytes_allocates_nothing() -> None:
    with pytest.raises(FormatError, match="array of 2147483647 items"):
        decode_request(ApiKey.CREATE_TOPICS, 4, struct.pack(">i", 2**31 - 1) + bytes(100))


def test_a_message_of_too_many_items_is_refused() -> None:
    count = ITEMS_MAX + 1
    body = encode_varint(count + 1) + b"\x01" * count + b"\0\0"

    with pytest.raises(LimitExceededError):
        decode_request(ApiKey.DELETE_GROUPS, 2, body)


@pytest.mark.parametrize(
    ("key", "version", "item_bytes"),
    [
        (ApiKey.METADATA, 1, 2),  # a name
        (ApiKey.METADATA, 9, 2),  # a name and tags
        (ApiKey.METADATA, 12, 18),  # an id, a name and tags
        (ApiKey.CREATE_TOPICS, 4, 16),  # a name, two numbers and two arrays
    ],
)
def test_an_array_cannot_have_more_items_than_fit_the_bytes_left(
    key: ApiKey, version: int, item_bytes: int
) -> None:
    left = 1000 * item_bytes + item_bytes - 1
    is_flexible = KNOWN_APIS[key].is_flexible(version)
    size = encode_varint(1001 + 1) if is_flexible else struct.pack(">i", 1001)

    with pytest.raises(FormatError, match=f"array of 1001 items in {left} bytes"):
        decode_request(key, version, size + bytes(left))


def test_the_limit_on_items_can_be_lower() -> None:
    body = encode_request(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"] * 11})

    assert len(decode_request(ApiKey.DELETE_GROUPS, 2, body, items_max=11).groups_names) == 11
    with pytest.raises(LimitExceededError, match="number of items of 11 exceeds the limit of 10"):
        decode_request(ApiKey.DELETE_GROUPS, 2, body, items_max=10)


def test_a_structure_with_too_many_tagged_fields_is_refused() -> None:
    body = encode_request(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]})[:-1]

    decode_request(ApiKey.DELETE_GROUPS, 2, body + encode_varint(100) + b"\x63\x00" * 100)
    with pytest.raises(LimitExceededError, match="number of tagged fields"):
        decode_request(ApiKey.DELETE_GROUPS, 2, body + encode_varint(101) + b"\x63\x00" * 101)


def test_a_version_outside_the_catalog_is_refused() -> None:
    with pytest.raises(FormatError, match="unsupported version of CreateTopics: 1"):
        decode_request(ApiKey.CREATE_TOPICS, 1, b"")
    with pytest.raises(FormatError, match="unsupported API key: 4"):
        decode_request(4, 0, b"")


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(FormatError, match="UTF-8"):
        decode_request(ApiKey.DELETE_GROUPS, 0, struct.pack(">ih", 1, 2) + b"\xff\xfe")


def test_a_cut_integer_says_what_was_missing() -> None:
    with pytest.raises(TruncatedInputError):
        decode_request(ApiKey.DELETE_GROUPS, 0, b"\0\0")


def test_fields_compare_by_value_and_cannot_be_changed() -> None:
    body = encode_request(ApiKey.HEARTBEAT, 0, {"group_id": "g", "generation_id": 4})

    request = decode_request(ApiKey.HEARTBEAT, 0, memoryview(body))

    assert request == decode_request(ApiKey.HEARTBEAT, 0, body)
    assert "generation_id=4" in repr(request)
    with pytest.raises(AttributeError):
        request.generation_id = 5  # type: ignore[attr-defined]


def test_error_codes_are_kafkas() -> None:
    from kio.schema.errors import ErrorCode as Theirs

    assert {code.name: int(code) for code in ErrorCode} == {code.name: int(code) for code in Theirs}

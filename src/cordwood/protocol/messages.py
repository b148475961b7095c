"""Messages of every API but Produce and Fetch, as values that are the same in all versions.

Names are those of Kafka's schemas in snake case, without the unit of a duration: ``TimeoutMs``
is `timeout`, an integer of milliseconds. They are the same in all versions, so that a handler
is written once: a field that the version of a request lacks has its default, and a field that the
version of a response lacks is not sent.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from cordwood.errors import UnsupportedFormatError
from cordwood.protocol.api_catalog import KNOWN_APIS, Api, ApiKey
from cordwood.protocol.message_codec import ITEMS_MAX, Fields, StructPlan
from cordwood.protocol.message_schema import message_schema
from cordwood.protocol.wire_values import INT32

__all__ = [
    "Fields",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "has_throttle_time",
]


def decode_request(
    api_key: int, api_version: int, body: bytes | memoryview, *, items_max: int = ITEMS_MAX
) -> Fields:
    """The request in `body`. Raises `FormatError` if it cannot be read.

    `items_max` limits the array items in the whole of it.
    """
    return _request_plan(api_key, api_version).decode(body, items_max)


def encode_request(api_key: int, api_version: int, request: Mapping[str, Any]) -> bytes:
    """The body of a request, without size and header: what a client sends."""
    out = bytearray()
    _request_plan(api_key, api_version).write(out, request)
    return bytes(out)


def encode_response(
    api_key: int, api_version: int, correlation_id: int, response: Mapping[str, Any]
) -> bytes:
    """A whole frame: size, header, body.

    Names that the version lacks are dropped, names that are missing get their default, and a
    name that no version has is a `KeyError`.
    """
    out = bytearray(8)
    INT32.pack_into(out, 4, correlation_id)
    # The client of ApiVersions does not know our versions yet: the answer has the old header.
    if KNOWN_APIS[api_key].is_flexible(api_version) and api_key != ApiKey.API_VERSIONS:
        out.append(0)
    _response_plan(api_key, api_version).write(out, response)
    INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def decode_response(api_key: int, api_version: int, body: bytes | memoryview) -> Fields:
    """The response in `body`, without size and header: what a client reads."""
    return _response_plan(api_key, api_version).decode(body)


@cache
def has_throttle_time(api_key: int) -> bool:
    """Whether the answers of an API can tell a client for how long it is throttled."""
    return any(field.name == "throttle_time" for field in message_schema(api_key).response)


@cache
def _request_plan(api_key: int, api_version: int) -> StructPlan:
    is_flexible = _served(api_key, api_version).is_flexible(api_version)
    return StructPlan(message_schema(api_key).request, api_version, is_flexible=is_flexible)


@cache
def _response_plan(api_key: int, api_version: int) -> StructPlan:
    is_flexible = _served(api_key, api_version).is_flexible(api_version)
    return StructPlan(message_schema(api_key).response, api_version, is_flexible=is_flexible)


def _served(api_key: int, api_version: int) -> Api:
    api = KNOWN_APIS.get(api_key)
    if api is None:
        raise UnsupportedFormatError("API key", api_key)
    if not api.serves(api_version):
        raise UnsupportedFormatError(f"version of {api.name}", api_version)
    return api

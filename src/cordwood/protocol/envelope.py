"""Envelopes: a request that a broker passes on to the controllers in the name of its client.

    request_data          header and body of the client's request, in the client's version
    request_principal     who the client is, as Kafka's DefaultKafkaPrincipalBuilder writes it
        version                 int16, 0
        type                    compact string
        name                    compact string
        token_authenticated     bool
        tagged fields           none
    client_host_address   4 or 16 bytes

The controllers accept envelopes only from those who may do ClusterAction on the cluster. They
decide about the request inside as if the client had sent it.
"""

import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from cordwood.errors import FormatError
from cordwood.protocol.api_catalog import KNOWN_APIS
from cordwood.protocol.message_codec import Fields
from cordwood.protocol.messages import decode_response, encode_request
from cordwood.protocol.request_header import RequestHeader
from cordwood.protocol.wire_values import (
    encode_string,
    read_exactly,
    read_int16,
    read_int32,
    read_string,
    skip_tagged_fields,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cordwood.protocol.schemas import control_messages as messages

_HEADER: Final = struct.Struct(">hhi")
_VERSION: Final = struct.Struct(">h")
_PRINCIPAL_VERSION: Final = 0
_NO_TOKEN_NO_TAGS: Final = b"\0\0"


def encode_principal(kind: str, name: str) -> bytes:
    """A principal that was authenticated here, and not by a delegation token."""
    return (
        _VERSION.pack(_PRINCIPAL_VERSION)
        + encode_string(kind, is_flexible=True)
        + encode_string(name, is_flexible=True)
        + _NO_TOKEN_NO_TAGS
    )


def decode_principal(data: bytes) -> tuple[str, str]:
    """Type and name. Raises `FormatError`."""
    view = memoryview(data)
    version, at = read_int16(view, 0)
    if version != _PRINCIPAL_VERSION:
        raise FormatError(f"a principal has the version {version}, which is not known")
    kind, at = read_string(view, at, is_flexible=True)
    name, at = read_string(view, at, is_flexible=True)
    _, at = read_exactly(view, at, 1, "token_authenticated")
    skip_tagged_fields(view, at)
    if kind is None or name is None:
        raise FormatError("a principal has no type or no name")
    return kind, name


def envelope(
    header: RequestHeader, request: "Mapping[str, Any]", *, principal: bytes, client_host: str
) -> "messages.EnvelopeRequestDict":
    """The envelope around `request`, which a client at `client_host` sent with `header`."""
    key, version, number, client_id = header
    tags = b"\0" if KNOWN_APIS[key].is_flexible(version) else b""
    head = _HEADER.pack(key, version, number) + encode_string(client_id, is_flexible=False) + tags
    return {
        "request_data": head + encode_request(key, version, request),
        "request_principal": principal,
        "client_host_address": ip_address(client_host.partition("%")[0]).packed,
    }


def open_envelope(header: RequestHeader, data: bytes) -> Fields:
    """The answer in an envelope to the request with `header`. Raises `FormatError`."""
    view = memoryview(data)
    number, at = read_int32(view, 0)
    if number != header.correlation_id:
        raise FormatError(f"the answer in an envelope has the number {number} of no request")
    if KNOWN_APIS[header.api_key].is_flexible(header.api_version):
        at = skip_tagged_fields(view, at)
    return decode_response(header.api_key, header.api_version, view[at:])

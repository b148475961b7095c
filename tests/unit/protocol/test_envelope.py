"""Requests in envelopes, as Kafka's brokers send them to the controllers."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import FormatError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.envelope import (
    decode_principal,
    encode_principal,
    envelope,
    open_envelope,
)
from cordwood.protocol.messages import decode_request, encode_response
from cordwood.protocol.request_header import (
    RequestHeader,
    decode_request_header,
    skip_header_tags,
)


def test_a_principal_has_the_bytes_of_kafkas_default_principal_builder() -> None:
    # version 0, compact "User", compact "alice", no delegation token, no tagged fields
    assert encode_principal("User", "alice") == b"\0\0\x05User\x06alice\0\0"


@given(st.text(max_size=300), st.text(max_size=300))
def test_a_principal_is_read_back(kind: str, name: str) -> None:
    assert decode_principal(encode_principal(kind, name)) == (kind, name)


@pytest.mark.parametrize(
    "data", [b"", b"\0\1\x05User\x06alice\0\0", b"\0\0\x05Us", b"\0\0\0\0\0\0"]
)
def test_bytes_that_are_no_principal_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_principal(data)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("host", ["10.1.2.3", "::1", "fe80::1%eth0"])
def test_an_envelope_holds_the_request_of_the_client(version: int, host: str) -> None:
    header = RequestHeader(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, 77, "console")
    request = {"resources": [], "validate_only": True}

    found = envelope(header, request, principal=b"who", client_host=host)

    frame = memoryview(found["request_data"])
    inner, at = decode_request_header(frame)
    body = frame[skip_header_tags(frame, at) if version else at :]
    assert inner == header
    assert decode_request(inner.api_key, version, body).validate_only
    assert found["request_principal"] == b"who"
    assert found["client_host_address"] == ip_address(host.partition("%")[0]).packed


@pytest.mark.parametrize("version", [0, 1])
def test_the_answer_in_an_envelope_is_opened(version: int) -> None:
    header = RequestHeader(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, 77, None)
    answer = encode_response(header.api_key, version, 77, {"throttle_time": 5, "responses": []})

    assert open_envelope(header, answer[4:]).throttle_time == 5


def test_the_answer_to_another_request_is_refused() -> None:
    header = RequestHeader(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 77, None)

    with pytest.raises(FormatError, match="number 78"):
        open_envelope(header, struct.pack(">iii", 78, 0, 0))

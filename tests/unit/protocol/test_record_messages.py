"""Produce and Fetch as a client sends and reads them, with kio and our own broker as judges."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_reader

from cordwood.errors import FormatError
from cordwood.protocol.fetch_request import FetchPartition, decode_fetch_request
from cordwood.protocol.fetch_response import FetchedPart, encode_fetch_response
from cordwood.protocol.produce_request import decode_produce_request
from cordwood.protocol.produce_response import ProducedPart, encode_produce_response
from cordwood.protocol.record_messages import (
    FETCH_VERSION_MAX,
    PRODUCE_VERSION_MAX,
    SentRecords,
    decode_fetch_response,
    decode_produce_response,
    encode_fetch_request,
    encode_produce_request,
)

PRODUCE_VERSIONS = range(3, PRODUCE_VERSION_MAX + 1)
FETCH_VERSIONS = range(4, FETCH_VERSION_MAX + 1)
FIRST_FLEXIBLE_PRODUCE = 9
FIRST_FLEXIBLE_FETCH = 12

SENT = [
    SentRecords("orders", 0, b"batch of 0"),
    SentRecords("orders", 7, b"b" * 300),
    SentRecords("payments", 1, b""),
]


def kio_reads(api: int, version: int, body: bytes) -> Any:
    value, size = entity_reader(load_request_schema(api, version))(body, 0)
    assert size == len(body)
    return value


def body_of(frame: bytes, *, is_flexible: bool) -> memoryview:
    return memoryview(frame)[9 if is_flexible else 8 :]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_broker_and_kio_read_the_produce_requests_we_send(version: int) -> None:
    body = encode_produce_request(version, SENT, acks=-1, timeout_ms=1500)

    read = decode_produce_request(version, memoryview(body))
    assert (read.transactional_id, read.acks, read.timeout_ms) == (None, -1, 1500)
    assert [(p.topic, p.partition, bytes(p.records)) for p in read.parts] == [
        tuple(part) for part in SENT
    ]
    theirs = kio_reads(0, version, body)
    assert [topic.name for topic in theirs.topic_data] == ["orders", "payments"]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_the_answers_to_produce_are_read(version: int) -> None:
    parts = [
        ProducedPart("orders", 0, base_offset=42, log_append_time_ms=5, log_start_offset=3),
        ProducedPart(
            "orders", 1, 87, record_errors=[(3, "no key"), (4, "no key")], error_message="bad"
        ),
        ProducedPart("payments", 0, 3),
    ]
    frame = encode_produce_response(version, 1, parts)

    found = decode_produce_response(
        version, body_of(frame, is_flexible=version >= FIRST_FLEXIBLE_PRODUCE)
    )

    expected = [
        part._replace(
            log_start_offset=part.log_start_offset if version >= 5 else -1,
            record_errors=list(part.record_errors) if version >= 8 else [],
            error_message=part.error_message if version >= 8 else None,
        )
        for part in parts
    ]
    assert found == expected


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_broker_and_kio_read_the_fetch_requests_we_send(version: int) -> None:
    parts = [
        FetchPartition("orders", 0, 42, 1000),
        FetchPartition("orders", 1, 0, 5),
        FetchPartition("payments", 9, 2**40, 2**20),
    ]

    body = encode_fetch_request(version, parts, max_wait_ms=500, min_bytes=1, max_bytes=10_000)

    read = decode_fetch_request(version, memoryview(body))
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes) == (500, 1, 10_000)
    assert (read.session_id, read.session_epoch, read.replica_id) == (0, -1, -1)
    assert read.parts == parts
    theirs = kio_reads(1, version, body)
    assert [topic.topic for topic in theirs.topics] == ["orders", "payments"]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_the_answers_to_fetch_are_read(version: int) -> None:
    records = b"r" * 500
    parts = [
        FetchedPart("orders", 0, 0, 50, 49, 2, [(7, 3), (8, 4)], None, 500, records),
        FetchedPart("orders", 1, 1, diverging=(3, 9) if version >= 12 else None),
        FetchedPart("payments", 2, 0, 9, 9, 0, None, None, 0, None),
    ]
    frame = b"".join(encode_fetch_response(version, 1, parts, error_code=0))

    answer = decode_fetch_response(
        version, body_of(frame, is_flexible=version >= FIRST_FLEXIBLE_FETCH)
    )

    assert answer.error_code == 0
    assert [
        (p.topic, p.partition, p.error_code, p.high_watermark, bytes(p.records))
        for p in answer.parts
    ] == [
        ("orders", 0, 0, 50, records),
        ("orders", 1, 1, -1, b""),
        ("payments", 2, 0, 9, b""),
    ]
    assert answer.parts[0].log_start_offset == (2 if version >= 5 else -1)


@given(body=st.binary(max_size=200), version=st.sampled_from([3, 8, 9, 12]))
def test_garbage_in_the_place_of_an_answer_is_a_format_error(body: bytes, version: int) -> None:
    for decode, used in (
        (decode_produce_response, version),
        (decode_fetch_response, max(version, 4)),
    ):
        try:
            decode(used, memoryview(body))
        except FormatError:
            continue

"""Produce and Fetch from the client's side: writing requests and reading responses.

The broker's side, with the layout of each message, is in `produce_request`, `produce_response`,
`fetch_request` and `fetch_response`. Topics have names here, so versions that only have topic ids
are left out. Records are opaque bytes; those of an answer are parts of the received frame.
"""

import struct
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from cordwood.protocol import fetch_request, produce_request
from cordwood.protocol.fetch_request import FetchPartition
from cordwood.protocol.produce_response import (
    FIRST_WITH_LOG_START,
    FIRST_WITH_RECORD_ERRORS,
    ProducedPart,
)
from cordwood.protocol.wire_values import (
    INT16,
    INT32,
    encode_count,
    encode_string,
    encode_varint,
    read_count,
    read_exactly,
    read_int16,
    read_int32,
    read_int64,
    read_name,
    read_size,
    read_string,
    skip_tagged_fields,
)

PRODUCE_VERSION_MAX: Final = produce_request.FIRST_WITH_TOPIC_ID - 1
FETCH_VERSION_MAX: Final = fetch_request.FIRST_WITH_TOPIC_ID - 1

_NO_TAGS: Final = b"\0"
_NOBODY: Final = -1  # a consumer is not a replica
_FETCH_HEAD: Final = struct.Struct(">iiiib")
_FETCH_SESSION: Final = struct.Struct(">ii")
_INT64: Final = struct.Struct(">q")
_ABORTED_SIZE: Final = 16


class SentRecords(NamedTuple):
    """Batches for one partition."""

    topic: str
    partition: int
    records: bytes | memoryview


class FetchedRecords(NamedTuple):
    """The answer of one partition. `records` may end with an incomplete batch."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: memoryview


class FetchAnswer(NamedTuple):
    error_code: int
    parts: list[FetchedRecords]


# --- Produce ----------------------------------------------------------------------------------


def encode_produce_request(
    version: int, parts: Sequence[SentRecords], *, acks: int, timeout_ms: int
) -> bytes:
    """The body of a request. Parts of one topic that follow each other share its entry."""
    assert version <= PRODUCE_VERSION_MAX, version
    is_flexible = version >= produce_request.FIRST_FLEXIBLE
    tags = _NO_TAGS if is_flexible else b""
    topics = [(topic, list(group)) for topic, group in groupby(parts, key=attrgetter("topic"))]
    out: list[bytes | memoryview] = [
        encode_string(None, is_flexible=is_flexible),
        INT16.pack(acks),
        INT32.pack(timeout_ms),
        encode_count(len(topics), is_flexible=is_flexible),
    ]
    for topic, group in topics:
        out.append(encode_string(topic, is_flexible=is_flexible))
        out.append(encode_count(len(group), is_flexible=is_flexible))
        for part in group:
            size = len(part.records)
            out.append(INT32.pack(part.partition))
            out.append(encode_varint(size + 1) if is_flexible else INT32.pack(size))
            out.append(part.records)
            out.append(tags)
        out.append(tags)
    out.append(tags)
    return b"".join(out)


def decode_produce_response(version: int, body: memoryview) -> list[ProducedPart]:
    is_flexible = version >= produce_request.FIRST_FLEXIBLE
    parts: list[ProducedPart] = []
    topic_count, at = read_count(body, 0, is_flexible=is_flexible)
    for _ in range(topic_count):
        topic, at = read_name(body, at, is_flexible=is_flexible)
        partition_count, at = read_count(body, at, is_flexible=is_flexible)
        for _ in range(partition_count):
            part, at = _read_produced(version, topic, body, at)
            parts.append(part)
        if is_flexible:
            at = skip_tagged_fields(body, at)
    return parts


def _read_produced(version: int, topic: str, body: memoryview, at: int) -> tuple[ProducedPart, int]:
    is_flexible = version >= produce_request.FIRST_FLEXIBLE
    partition, at = read_int32(body, at)
    error_code, at = read_int16(body, at)
    base_offset, at = read_int64(body, at)
    append_time_ms, at = read_int64(body, at)
    log_start, message = -1, None
    if version >= FIRST_WITH_LOG_START:
        log_start, at = read_int64(body, at)
    errors: list[tuple[int, str]] = []
    if version >= FIRST_WITH_RECORD_ERRORS:
        count, at = read_count(body, at, is_flexible=is_flexible)
        for _ in range(count):
            index, at = read_int32(body, at)
            reason, at = read_string(body, at, is_flexible=is_flexible)
            if is_flexible:
                at = skip_tagged_fields(body, at)
            errors.append((index, reason or ""))
        message, at = read_string(body, at, is_flexible=is_flexible)
    if is_flexible:
        at = skip_tagged_fields(body, at)
    part = ProducedPart(
        topic=topic,
        partition=partition,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=append_time_ms,
        log_start_offset=log_start,
        record_errors=errors,
        error_message=message,
    )
    return part, at


# --- Fetch ------------------------------------------------------------------------------------


def encode_fetch_request(
    version: int,
    parts: Sequence[FetchPartition],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
) -> bytes:
    """The body of a request without a session, for all records."""
    assert version <= FETCH_VERSION_MAX, version
    is_flexible = version >= fetch_request.FIRST_FLEXIBLE
    tags = _NO_TAGS if is_flexible else b""
    out = bytearray(_FETCH_HEAD.pack(_NOBODY, max_wait_ms, min_bytes, max_bytes, 0))
    if version >= fetch_request.FIRST_WITH_SESSION:
        out += _FETCH_SESSION.pack(fetch_request.NO_SESSION, fetch_request.FULL_WITHOUT_SESSION)
    topics = [(topic, list(group)) for topic, group in groupby(parts, key=attrgetter("topic"))]
    out += encode_count(len(topics), is_flexible=is_flexible)
    for topic, group in topics:
        out += encode_string(topic, is_flexible=is_flexible)
        out += encode_count(len(group), is_flexible=is_flexible)
        for part in group:
            out += INT32.pack(part.partition)
            if version >= 9:
                out += INT32.pack(part.leader_epoch)
            out += _INT64.pack(part.offset)
            if version >= 12:
                out += INT32.pack(part.last_fetched_epoch)
            if version >= 5:
                out += _INT64.pack(-1)
            out += INT32.pack(part.max_bytes) + tags
        out += tags
    if version >= fetch_request.FIRST_WITH_SESSION:
        out += encode_count(0, is_flexible=is_flexible)
    if version >= 11:
        out += encode_string("", is_flexible=is_flexible)
    return bytes(out + tags)


def decode_fetch_response(version: int, body: memoryview) -> FetchAnswer:
    is_flexible = version >= fetch_request.FIRST_FLEXIBLE
    _, at = read_int32(body, 0)  # throttle time
    error_code = 0
    if version >= fetch_request.FIRST_WITH_SESSION:
        error_code, at = read_int16(body, at)
        _, at = read_int32(body, at)
    parts: list[FetchedRecords] = []
    topic_count, at = read_count(body, at, is_flexible=is_flexible)
    for _ in range(topic_count):
        topic, at = read_name(body, at, is_flexible=is_flexible)
        partition_count, at = read_count(body, at, is_flexible=is_flexible)
        for _ in range(partition_count):
            part, at = _read_fetched(version, topic, body, at)
            parts.append(part)
        if is_flexible:
            at = skip_tagged_fields(body, at)
    return FetchAnswer(error_code, parts)


def _read_fetched(
    version: int, topic: str, body: memoryview, at: int
) -> tuple[FetchedRecords, int]:
    is_flexible = version >= fetch_request.FIRST_FLEXIBLE
    partition, at = read_int32(body, at)
    error_code, at = read_int16(body, at)
    high_watermark, at = read_int64(body, at)
    _, at = read_int64(body, at)  # last stable offset
    log_start = -1
    if version >= 5:
        log_start, at = read_int64(body, at)
    aborted_count, at = read_count(body, at, is_flexible=is_flexible)
    for _ in range(aborted_count):
        _, at = read_exactly(body, at, _ABORTED_SIZE, "aborted transaction")
        if is_flexible:
            at = skip_tagged_fields(body, at)
    if version >= 11:
        _, at = read_int32(body, at)  # preferred read replica
    size, at = read_size(body, at, is_flexible=is_flexible)
    records, at = read_exactly(body, at, max(size, 0), "records")
    if is_flexible:
        at = skip_tagged_fields(body, at)
    fetched = FetchedRecords(topic, partition, error_code, high_watermark, log_start, records)
    return fetched, at

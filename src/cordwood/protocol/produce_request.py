"""Produce requests, versions 3 to 13, read by hand: the records stay where they were received.

    transactional_id  nullable string
    acks              int16            -1, 0 or 1
    timeout_ms        int32
    topics            array of
        name            string         up to version 12
        topic_id        uuid           from version 13
        partitions      array of
            index         int32
            records       nullable bytes

Flexible from version 9: sizes are varints of size + 1, and every struct ends in tagged fields.
"""

from typing import Final, NamedTuple
from uuid import UUID

from cordwood.errors import FormatError
from cordwood.protocol.wire_values import (
    check_part_count,
    read_count,
    read_exactly,
    read_int16,
    read_int32,
    read_name,
    read_size,
    read_string,
    read_uuid,
    skip_tagged_fields,
)

FIRST_FLEXIBLE: Final = 9
FIRST_WITH_TOPIC_ID: Final = 13


class ProducedRecords(NamedTuple):
    """What a client sends to one partition. `records` is a part of the received frame."""

    topic: str | UUID
    partition: int
    records: memoryview


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    parts: list[ProducedRecords]


def decode_produce_request(version: int, body: memoryview) -> ProduceRequest:
    """Null records are returned as empty bytes, which the log then refuses."""
    is_flexible = version >= FIRST_FLEXIBLE
    transactional_id, at = read_string(body, 0, is_flexible=is_flexible)
    acks, at = read_int16(body, at)
    timeout_ms, at = read_int32(body, at)
    topic_count, at = read_count(body, at, is_flexible=is_flexible)
    parts: list[ProducedRecords] = []
    for _ in range(topic_count):
        topic: str | UUID
        if version >= FIRST_WITH_TOPIC_ID:
            topic, at = read_uuid(body, at)
        else:
            topic, at = read_name(body, at, is_flexible=is_flexible)
        partition_count, at = read_count(body, at, is_flexible=is_flexible, item_bytes_min=5)
        check_part_count(max(topic_count, len(parts) + partition_count), at)
        for _ in range(partition_count):
            partition, at = read_int32(body, at)
            size, at = read_size(body, at, is_flexible=is_flexible)
            records, at = read_exactly(body, at, max(size, 0), "records")
            if is_flexible:
                at = skip_tagged_fields(body, at)
            parts.append(ProducedRecords(topic, partition, records))
        if is_flexible:
            at = skip_tagged_fields(body, at)
    if is_flexible:
        at = skip_tagged_fields(body, at)
    if at != len(body):
        raise FormatError(f"{len(body) - at} bytes follow the request", position=at)
    return ProduceRequest(transactional_id, acks, timeout_ms, parts)

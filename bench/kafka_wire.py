"""Kafka's Produce and Fetch as bytes: requests for one partition, and their responses.

    Produce v10 answer            size  Fetch v11 answer                     size
    frame size                    4     frame size                           4
    correlation id                4     correlation id                       4
    tags (none)                   1     throttle time                        4
    topics (1)                    1     error code                           2
    topic name, compact           1+n   session id                           4
    partitions (1)                1     topics (1)                           4
    partition                     4     topic name                           2+n
    error code                    2     partitions (1)                       4
    base offset                   8     partition                            4
    ...                                 error code                           2
                                        high watermark, last stable, start   24
                                        aborted transactions                 4 + 16 each
                                        preferred replica                    4
                                        size of the records, records         4+

A response for one topic and one partition has its fields at fixed positions, so a client can count
and check thousands of them per second without decoding any.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cordwood.format.batch_builder import BatchStyle, build_batches
from cordwood.format.batch_header import LOG_OVERHEAD
from cordwood.quantities import TimestampMs

PRODUCE_VERSION: Final = 10
FETCH_VERSION: Final = 11
ALL_REPLICAS: Final = -1
NO_ERROR: Final = b"\x00\x00"

_CLIENT_ID: Final = b"bench"
_PRODUCE_TIMEOUT_MS: Final = 30_000
_FETCH_ANSWER_START: Final = 22  # up to the topic's name
_LAST_OFFSET_DELTA: Final = 23
_BATCH_START: Final = struct.Struct(">qi")


class AnswerError(Exception):
    """The server answered with an error or with an unexpected response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceFrame:
    """A whole Produce request that carries one batch."""

    data: bytes
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBatches:
    """The whole batches in a Fetch response; a truncated last batch does not count."""

    records: int
    size: int
    next_offset: int


# --- requests ---------------------------------------------------------------------------------


def produce_frame(
    topic: str, batch: bytes, *, partition: int = 0, acks: int = ALL_REPLICAS
) -> bytes:
    name = topic.encode()
    body = b"".join(
        (
            b"\x00",  # no tags in the header
            b"\x00",  # no transaction
            struct.pack(">hi", acks, _PRODUCE_TIMEOUT_MS),
            b"\x02",  # one topic: a compact array stores its length plus one
            _uvarint(len(name) + 1),
            name,
            b"\x02",
            struct.pack(">i", partition),
            _uvarint(len(batch) + 1),
            batch,
            b"\x00\x00\x00",  # no tags: partition, topic, request
        )
    )
    return _framed(0, PRODUCE_VERSION, body)


def fetch_frame(
    topic: str,
    offset: int,
    *,
    max_bytes: int,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    partition: int = 0,
    is_committed: bool = False,
) -> bytes:
    """A Fetch without a session; `is_committed`: of records whose transactions are committed."""
    name = topic.encode()
    body = b"".join(
        (
            struct.pack(">iiiibii", -1, max_wait_ms, min_bytes, max_bytes, is_committed, 0, -1),
            struct.pack(">ih", 1, len(name)),
            name,
            struct.pack(">iiiqqi", 1, partition, -1, offset, -1, max_bytes),
            struct.pack(">ih", 0, 0),
        )
    )
    return _framed(1, FETCH_VERSION, body)


def api_versions_frame() -> bytes:
    return _framed(18, 0, b"")


def produce_frames(
    topic: str, values: list[bytes], *, batch_bytes: int, now_ms: int, partition: int = 0
) -> list[ProduceFrame]:
    """Requests for the values, each with one batch of at most `batch_bytes`."""
    style = BatchStyle(bytes_max=max(batch_bytes, 2 * len(values[0])))
    pairs = [(None, value) for value in values]
    built = build_batches(pairs, TimestampMs(now_ms), style, target_bytes=batch_bytes)
    return [
        ProduceFrame(
            data=produce_frame(topic, bytes(batch.data), partition=partition),
            records=batch.record_count,
        )
        for batch in built
    ]


def _framed(api_key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, version, 0, len(_CLIENT_ID)) + _CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# --- answers ----------------------------------------------------------------------------------


def produce_error_position(topic: str) -> int:
    """The position of the error code in a Produce response for `topic`, from the frame start."""
    name = topic.encode()
    return 4 + 4 + 1 + 1 + len(_uvarint(len(name) + 1)) + len(name) + 1 + 4


def produce_error(answer: bytes, topic: str) -> int:
    """The error code of a whole Produce response; 0 is success."""
    position = produce_error_position(topic)
    if len(answer) < position + 10:
        raise AnswerError(f"a Produce answer of {len(answer)} bytes: {answer[:64]!r}")
    return int.from_bytes(answer[position : position + 2], "big", signed=True)


def fetch_error(answer: memoryview, topic: str) -> int:
    """The first error code that is not 0 in a whole Fetch response."""
    overall = int.from_bytes(answer[12:14], "big", signed=True)
    position = _FETCH_ANSWER_START + 2 + len(topic.encode()) + 8
    if overall or len(answer) < position + 2:
        return overall or -1
    return int.from_bytes(answer[position : position + 2], "big", signed=True)


def fetched_records(answer: memoryview, topic: str) -> memoryview:
    """The record bytes of a whole Fetch response, which must have no error."""
    error = fetch_error(answer, topic)
    if error:
        raise AnswerError(f"Fetch of {topic} was answered with error {error}")
    position = _FETCH_ANSWER_START + 2 + len(topic.encode()) + 8 + 2 + 24
    aborted = int.from_bytes(answer[position : position + 4], "big", signed=True)
    position += 4 + 16 * max(aborted, 0) + 4
    size = int.from_bytes(answer[position : position + 4], "big", signed=True)
    return answer[position + 4 : position + 4 + max(size, 0)]


def count_batches(records: memoryview, offset: int) -> FetchedBatches:
    """The batches for a consumer at `offset`; a truncated last batch is not counted.

    The first batch may begin before `offset`. Records are counted by their offsets, so this works
    only for logs that were never compacted.
    """
    size, next_offset = 0, offset
    for start, length, first_after in _batches(records):
        size, next_offset = start + length, first_after
    return FetchedBatches(records=next_offset - offset, size=size, next_offset=next_offset)


def _batches(records: memoryview) -> Iterator[tuple[int, int, int]]:
    """Position, size and next offset of each whole batch."""
    position, end = 0, len(records)
    while position + LOG_OVERHEAD <= end:
        base_offset, length = _BATCH_START.unpack_from(records, position)
        size = LOG_OVERHEAD + length
        if position + size > end:
            return
        at = position + _LAST_OFFSET_DELTA
        yield position, size, base_offset + int.from_bytes(records[at : at + 4], "big") + 1
        position += size

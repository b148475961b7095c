"""Produce responses, versions 3 to 13, written by hand.

responses              array of
    name                 string    up to version 12
    topic_id             uuid      from version 13
    partitions           array of
        index              int32
        error_code         int16
        base_offset        int64   -1 with an error
        log_append_time_ms int64   -1 unless the topic stamps the time of arrival
        log_start_offset   int64   from version 5; -1 with an error
        record_errors      array   from version 8: batch_index int32, message nullable string
        error_message      string  from version 8, nullable
        tag 0, current_leader      (leader_id int32, leader_epoch int32), from version 10
throttle_time_ms       int32
tag 0, node_endpoints  array of (node_id, host, port, rack), from version 10
"""

import struct
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID

from cordwood.protocol.node_endpoints import encode_node_endpoints
from cordwood.protocol.produce_request import FIRST_FLEXIBLE, FIRST_WITH_TOPIC_ID
from cordwood.protocol.sole_produce import repeat_answer
from cordwood.protocol.wire_values import INT32, INT64, encode_count, encode_string
from cordwood.quantities import Offset

FIRST_WITH_LOG_START: Final = 5
FIRST_WITH_RECORD_ERRORS: Final = 8

_FIRST_WITH_LEADER: Final = 10

_LEADER: Final = struct.Struct(">ii")
_LEADER_TAG: Final = b"\x01\x00\x09"  # one field, tag 0, 9 bytes
_PARTITION: Final = struct.Struct(">ihqq")
_HEADER: Final = struct.Struct(">ii")
_NO_TAGS: Final = b"\0"
_ERROR_END: Final = 6  # of a partition: behind its number and error code


class ProducedPart(NamedTuple):
    """The result for the records sent to one partition."""

    topic: str | UUID
    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str]] = ()
    error_message: str | None = None
    leader: tuple[int, int] | None = None  # id and epoch, with errors about them


def encode_produce_response(
    version: int,
    correlation_id: int,
    parts: Sequence[ProducedPart],
    nodes: Sequence[tuple[int, str, int, str | None]] = (),
    throttle_ms: int = 0,
) -> bytes:
    """The whole frame. Parts of one topic that follow each other share its entry.

    `nodes` are the brokers that the parts name as leaders: id, host, port, rack.
    """
    is_flexible = version >= FIRST_FLEXIBLE
    out: list[bytes] = []
    topics = [(topic, list(group)) for topic, group in groupby(parts, key=attrgetter("topic"))]
    out.append(encode_count(len(topics), is_flexible=is_flexible))
    for topic, group in topics:
        out.append(_topic(version, topic))
        out.append(encode_count(len(group), is_flexible=is_flexible))
        out.extend(_partition(version, part) for part in group)
        if is_flexible:
            out.append(_NO_TAGS)
    out.append(INT32.pack(throttle_ms))
    if is_flexible:
        out.append(encode_node_endpoints(nodes if version >= _FIRST_WITH_LEADER else ()))
        return _frame(correlation_id, _NO_TAGS + b"".join(out))
    return _frame(correlation_id, b"".join(out))


def _frame(correlation_id: int, body: bytes) -> bytes:
    return _HEADER.pack(len(body) + INT32.size, correlation_id) + body


def _topic(version: int, topic: str | UUID) -> bytes:
    if version >= FIRST_WITH_TOPIC_ID:
        assert isinstance(topic, UUID), topic
        return topic.bytes
    assert isinstance(topic, str), topic
    return encode_string(topic, is_flexible=version >= FIRST_FLEXIBLE)


def _partition(version: int, part: ProducedPart) -> bytes:
    is_flexible = version >= FIRST_FLEXIBLE
    out = _PARTITION.pack(
        part.partition, part.error_code, part.base_offset, part.log_append_time_ms
    )
    if version >= FIRST_WITH_LOG_START:
        out += INT64.pack(part.log_start_offset)
    if version >= FIRST_WITH_RECORD_ERRORS:
        out += encode_count(len(part.record_errors), is_flexible=is_flexible)
        for index, message in part.record_errors:
            out += INT32.pack(index) + encode_string(message, is_flexible=is_flexible)
            if is_flexible:
                out += _NO_TAGS
        out += encode_string(part.error_message, is_flexible=is_flexible)
    if not is_flexible:
        return out
    if part.leader is None or version < _FIRST_WITH_LEADER:
        return out + _NO_TAGS
    return out + _LEADER_TAG + _LEADER.pack(*part.leader) + _NO_TAGS


def with_throttle_time(version: int, frame: bytes, throttle_ms: int) -> bytes:
    """The same answer, which tells the client that it is not read for so long. It has no nodes."""
    end = len(frame) - len(_NO_TAGS) if version >= FIRST_FLEXIBLE else len(frame)
    return frame[: end - INT32.size] + INT32.pack(throttle_ms) + frame[end:]


class SoleResponse:
    """Answers to requests for one partition, in one version: only four numbers vary."""

    __slots__ = (
        "_first",
        "_first_log_start",
        "_frame",
        "_head",
        "_offsets_at",
        "_size",
        "_tail",
        "_with_log_start",
    )

    def __init__(self, version: int, topic: str | UUID, partition: int) -> None:
        template = encode_produce_response(version, 0, [ProducedPart(topic, partition)])
        self._with_log_start = version >= FIRST_WITH_LOG_START
        numbers = _PARTITION.pack(partition, 0, -1, -1)
        if self._with_log_start:
            numbers += INT64.pack(-1)
        at = template.index(numbers, _HEADER.size)
        offsets_at = at + _ERROR_END
        self._offsets_at = offsets_at
        self._size = len(template) - INT32.size
        self._head = template[_HEADER.size : offsets_at]
        self._tail = template[at + len(numbers) :]
        offsets = "qqq" if self._with_log_start else "qq"
        self._frame = struct.Struct(f">ii{len(self._head)}s{offsets}{len(self._tail)}s")
        self._first = self.encode(0, 0, 0)  # what `encode_all` repeats
        self._first_log_start = 0

    def encode(self, correlation_id: int, base_offset: int, log_start_offset: int) -> bytes:
        """The frame for records at `base_offset` with the time stamps of their producer."""
        if self._with_log_start:
            return self._frame.pack(
                self._size,
                correlation_id,
                self._head,
                base_offset,
                -1,
                log_start_offset,
                self._tail,
            )
        return self._frame.pack(self._size, correlation_id, self._head, base_offset, -1, self._tail)

    def encode_all(
        self, correlation_ids: list[int], base_offsets: list[Offset], log_start_offset: int
    ) -> tuple[bytearray, int]:
        """Frames for several requests, one behind the other, and the size of each."""
        if log_start_offset != self._first_log_start:
            self._first = self.encode(0, 0, log_start_offset)
            self._first_log_start = log_start_offset
        frames = repeat_answer(self._first, correlation_ids, base_offsets, self._offsets_at)
        return frames, len(self._first)

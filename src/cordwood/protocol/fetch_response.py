"""Fetch responses, versions 4 to 18, written by hand around records that stay in their files.

    throttle_time_ms             int32
    error_code                   int16    from version 7
    session_id                   int32    from version 7
    responses                    array of
        topic                      string up to version 12, uuid from version 13
        partitions                 array of
            partition                int32
            error_code               int16
            high_watermark           int64
            last_stable_offset       int64
            log_start_offset         int64   from version 5
            aborted_transactions     nullable array of (producer_id int64, first_offset int64)
            preferred_read_replica   int32   from version 11
            records                  nullable bytes
            tag 0, diverging_epoch   (epoch int32, end_offset int64), from version 12
            tag 1, current_leader    (leader_id int32, leader_epoch int32), from version 12
    tag 0, node_endpoints        array of (node_id, host, port, rack), from version 16

Flexible from version 12. The answer is a list of pieces: bytes, and in place of the records an
object of the caller (a range of a file), of which only the size is needed here.
"""

import struct
from collections.abc import Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from cordwood.protocol.fetch_request import (
    FIRST_FLEXIBLE,
    FIRST_WITH_SESSION,
    FIRST_WITH_TOPIC_ID,
)
from cordwood.protocol.node_endpoints import encode_node_endpoints
from cordwood.protocol.wire_values import INT32, encode_count, encode_string, encode_varint

_FIXED: Final = struct.Struct(">ihqq")
_INT64: Final = struct.Struct(">q")
_HEADER: Final = struct.Struct(">ii")
_SESSION: Final = struct.Struct(">hi")
_DIVERGING: Final = struct.Struct(">iq")
_LEADER: Final = struct.Struct(">ii")
_FIRST_WITH_NODES: Final = 16
_NO_TAGS: Final = b"\0"
_ERROR_END: Final = 6  # of a partition: behind its number and error code
_WITHOUT_LOG_START: Final = 16
_NO_REPLICA: Final = -1
FIRST_WITH_RACK: Final = 11


class FetchedPart(NamedTuple):
    """The answer of one partition. `records` is an object that stands for `size` bytes."""

    topic: str | UUID
    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    diverging: tuple[int, int] | None = None
    size: int = 0
    records: Any = None
    leader: tuple[int, int] | None = None  # id and epoch, with errors about them
    preferred_replica: int = _NO_REPLICA  # the broker that the consumer should fetch from


def encode_fetch_response(
    version: int,
    correlation_id: int,
    parts: Sequence[FetchedPart],
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
    nodes: Sequence[tuple[int, str, int, str | None]] = (),
) -> list[Any]:
    """The whole frame in pieces: bytes, and the `records` of the parts unchanged.

    `nodes` are the brokers that the parts name as leaders: id, host, port, rack.
    """
    is_flexible = version >= FIRST_FLEXIBLE
    head = bytearray(_NO_TAGS if is_flexible else b"")
    head += INT32.pack(throttle_ms)
    if version >= FIRST_WITH_SESSION:
        head += _SESSION.pack(error_code, session_id)
    topics = [(topic, list(group)) for topic, group in groupby(parts, key=attrgetter("topic"))]
    head += encode_count(len(topics), is_flexible=is_flexible)
    pieces: list[Any] = []
    size = 0
    for topic, group in topics:
        head += _topic(version, topic)
        head += encode_count(len(group), is_flexible=is_flexible)
        for part in group:
            head += _partition(version, part)
            if part.size:
                pieces.append(bytes(head))
                size += len(head) + part.size
                pieces.append(part.records)
                head = bytearray()
            if is_flexible:
                head += _partition_tags(part)
        if is_flexible:
            head += _NO_TAGS
    if is_flexible:
        head += encode_node_endpoints(nodes if version >= _FIRST_WITH_NODES else ())
    if head:
        pieces.append(bytes(head))
        size += len(head)
    pieces[0] = _HEADER.pack(size + INT32.size, correlation_id) + pieces[0]
    return pieces


def _topic(version: int, topic: str | UUID) -> bytes:
    if version >= FIRST_WITH_TOPIC_ID:
        assert isinstance(topic, UUID), topic
        return topic.bytes
    assert isinstance(topic, str), topic
    return encode_string(topic, is_flexible=version >= FIRST_FLEXIBLE)


def _partition(version: int, part: FetchedPart) -> bytes:
    """Everything up to the records, including their size."""
    is_flexible = version >= FIRST_FLEXIBLE
    out = _FIXED.pack(part.partition, part.error_code, part.high_watermark, part.last_stable_offset)
    if version >= 5:
        out += _INT64.pack(part.log_start_offset)
    out += _aborted(part.aborted, is_flexible=is_flexible)
    if version >= FIRST_WITH_RACK:
        out += INT32.pack(part.preferred_replica)
    return out + (encode_varint(part.size + 1) if is_flexible else INT32.pack(part.size))


def _aborted(aborted: Sequence[tuple[int, int]] | None, *, is_flexible: bool) -> bytes:
    if aborted is None:
        return b"\0" if is_flexible else INT32.pack(-1)
    item = "qqx" if is_flexible else "qq"  # a flexible one ends with a zero: no tags
    items = struct.pack(">" + item * len(aborted), *chain.from_iterable(aborted))
    return encode_count(len(aborted), is_flexible=is_flexible) + items


def _partition_tags(part: FetchedPart) -> bytes:
    if part.diverging is None and part.leader is None:
        return _NO_TAGS
    fields = bytearray()
    count = 0
    for tag, layout, values in ((0, _DIVERGING, part.diverging), (1, _LEADER, part.leader)):
        if values is not None:
            count += 1
            field = layout.pack(*values) + _NO_TAGS
            fields += encode_varint(tag) + encode_varint(len(field)) + field
    return encode_varint(count) + fields


class SoleFetchResponse:
    """Answers with records of one partition, in one version: only five numbers vary.

    They have no error, no session, no aborted transactions and no throttle time.
    """

    __slots__ = ("_head", "_is_flexible", "_numbers", "_tags", "_tail")

    def __init__(
        self, version: int, topic: str | UUID, partition: int, *, is_committed: bool
    ) -> None:
        part = FetchedPart(
            topic, partition, aborted=() if is_committed else None, size=1, records=b"x"
        )
        template = encode_fetch_response(version, 0, [part])
        fixed = _FIXED.pack(partition, 0, -1, -1)
        if version >= 5:
            fixed += _INT64.pack(-1)
        head = template[0]
        at = head.index(fixed, _HEADER.size)
        self._is_flexible = version >= FIRST_FLEXIBLE
        self._head = head[_HEADER.size : at + _ERROR_END]
        self._numbers = struct.Struct(">qqq" if version >= 5 else ">qq")
        size_at = -1 if self._is_flexible else -INT32.size
        self._tags = head[at + len(fixed) : size_at]
        self._tail = template[2] if len(template) > 2 else b""

    def encode(
        self,
        correlation_id: int,
        high_watermark: int,
        log_start_offset: int,
        records: bytes | bytearray | memoryview,
    ) -> bytes:
        """The frame for `records`, all of which are stable, up to the high watermark."""
        size = len(records)
        marks = self._numbers
        numbers = (
            marks.pack(high_watermark, high_watermark, log_start_offset)
            if marks.size > _WITHOUT_LOG_START
            else marks.pack(high_watermark, high_watermark)
        )
        sized = encode_varint(size + 1) if self._is_flexible else INT32.pack(size)
        head, tags, tail = self._head, self._tags, self._tail
        whole = INT32.size + len(head) + marks.size + len(tags) + len(sized) + size + len(tail)
        start = _HEADER.pack(whole, correlation_id)
        return b"".join((start, head, numbers, tags, sized, records, tail))

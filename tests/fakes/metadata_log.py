"""A metadata log in memory and the controller that leads it, as an observer sees them.

It answers the bytes that an observer sends, so that the protocol is tested too.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cordwood.cluster.control.metadata_observer import METADATA_TOPIC_ID, ObserverRequest
from cordwood.cluster.image.metadata_record import encode_record
from cordwood.cluster.image.record_schemas import RecordType
from cordwood.format.batch_builder import BatchStyle, build_batch
from cordwood.format.batch_header import stamp
from cordwood.format.record import Record
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.fetch_request import decode_fetch_request
from cordwood.protocol.messages import decode_request, encode_response
from cordwood.protocol.wire_values import encode_count, encode_string, encode_varint
from cordwood.quantities import MIB, LeaderEpoch, Offset, TimestampMs

Value = tuple[RecordType, int, Mapping[str, Any]]
_STYLE = BatchStyle(bytes_max=64 * MIB)


def metadata_batch(values: Sequence[Value], *, offset: int, epoch: int) -> bytes:
    """One batch as a controller writes it."""
    records = [Record(value=encode_record(kind, version, each)) for kind, version, each in values]
    built = build_batch(records, TimestampMs(0), _STYLE)
    stamp(built.data, 0, Offset(offset), LeaderEpoch(epoch))
    return bytes(built.data)


class LogBatch(NamedTuple):
    base: int
    end: int
    epoch: int
    data: bytes


@dataclass
class FakeLeader:
    """A controller. `batches` is its log, `snapshots` what it has of the log before `start`."""

    node_id: int = 3000
    epoch: int = 1
    leader_id: int | None = None  # None: itself
    port: int = 9093
    batches: list[LogBatch] = field(default_factory=list)
    high_watermark: int = 0
    start: int = 0
    snapshots: dict[tuple[int, int], bytes] = field(default_factory=dict)
    part_bytes: int = 100
    cluster_id: str = "cluster"

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.start

    def append(self, *values: Value, commit: bool = True) -> None:
        base = self.end
        data = metadata_batch(values, offset=base, epoch=self.epoch)
        self.batches.append(LogBatch(base, base + len(values), self.epoch, data))
        if commit:
            self.high_watermark = self.end

    def snapshot(self, *batches: Sequence[Value], end: int, epoch: int) -> None:
        """Replace the log below `end` by a snapshot with these batches."""
        at = 0
        data = b""
        for values in batches:
            data += metadata_batch(values, offset=at, epoch=0)
            at += len(values)
        self.snapshots = {(end, epoch): data}
        self.batches = [batch for batch in self.batches if batch.base >= end]
        self.start = end
        self.high_watermark = max(self.high_watermark, end)

    # --- answers -------------------------------------------------------------------------------

    def answer(self, request: ObserverRequest) -> memoryview:
        if request.api is ApiKey.FETCH_SNAPSHOT:
            return self._answer_snapshot(request)
        fetch = decode_fetch_request(request.version, memoryview(request.body))
        assert len(fetch.parts) == 1
        part = fetch.parts[0]
        if encode_string(self.cluster_id, is_flexible=True) not in request.body:
            return self._fetched(top=ErrorCode.inconsistent_cluster_id)
        refusal = self._refusal(part.leader_epoch)
        if refusal:
            return self._fetched(error=refusal)
        if part.offset < self.start or (part.offset == 0 and self.snapshots):
            return self._fetched(snapshot=next(iter(self.snapshots)))
        diverging = self._diverging(part.offset, part.last_fetched_epoch)
        if diverging is not None:
            return self._fetched(diverging=diverging)
        records = b"".join(batch.data for batch in self.batches if batch.end > part.offset)
        return self._fetched(records=records)

    def _refusal(self, epoch: int) -> ErrorCode | None:
        if epoch < self.epoch:
            return ErrorCode.fenced_leader_epoch
        if epoch > self.epoch:
            return ErrorCode.unknown_leader_epoch
        return None if self.leader_id is None else ErrorCode.not_leader_or_follower

    def _diverging(self, offset: int, epoch: int) -> tuple[int, int] | None:
        if offset == self.start:
            return None
        older = [batch for batch in self.batches if batch.epoch <= epoch]
        last_epoch, end = (older[-1].epoch, older[-1].end) if older else (0, self.start)
        return None if last_epoch == epoch and offset <= end else (last_epoch, end)

    def _current(self) -> tuple[int, int]:
        return (self.node_id if self.leader_id is None else self.leader_id), self.epoch

    def _fetched(
        self,
        *,
        top: int = 0,
        error: int = 0,
        records: bytes = b"",
        diverging: tuple[int, int] | None = None,
        snapshot: tuple[int, int] | None = None,
    ) -> memoryview:
        out = struct.pack(">ihi", 0, top, 0)
        if top:
            return memoryview(out + encode_count(0, is_flexible=True) + b"\0")
        out += encode_count(1, is_flexible=True) + METADATA_TOPIC_ID.bytes
        out += encode_count(1, is_flexible=True)
        out += struct.pack(">ihqqq", 0, error, self.high_watermark, -1, self.start)
        out += b"\0" + struct.pack(">i", -1) + encode_varint(len(records) + 1) + records
        tags = {}
        if diverging is not None:
            tags[0] = struct.pack(">iq", *diverging) + b"\0"
        tags[1] = struct.pack(">ii", *self._current()) + b"\0"
        if snapshot is not None:
            tags[2] = struct.pack(">qi", *snapshot) + b"\0"
        out += encode_varint(len(tags))
        for tag, body in tags.items():
            out += encode_varint(tag) + encode_varint(len(body)) + body
        out += b"\0"
        endpoint = struct.pack(">i", self._current()[0])
        endpoint += encode_string("127.0.0.1", is_flexible=True)
        endpoint += struct.pack(">i", self.port) + b"\0\0"
        nodes = encode_count(1, is_flexible=True) + endpoint
        return memoryview(out + b"\x01\0" + encode_varint(len(nodes)) + nodes)

    def _answer_snapshot(self, request: ObserverRequest) -> memoryview:
        asked: Any = decode_request(request.api, request.version, request.body)
        part = asked.topics[0].partitions[0]
        wanted = (part.snapshot_id.end_offset, part.snapshot_id.epoch)
        refusal = self._refusal(part.current_leader_epoch)
        if refusal is None and wanted not in self.snapshots:
            refusal = ErrorCode.snapshot_not_found
        data = self.snapshots.get(wanted, b"")
        leader_id, epoch = self._current()
        frame = encode_response(
            request.api,
            request.version,
            0,
            {
                "topics": [
                    {
                        "name": "__cluster_metadata",
                        "partitions": [
                            {
                                "error_code": refusal or 0,
                                "snapshot_id": {"end_offset": wanted[0], "epoch": wanted[1]},
                                "current_leader": {"leader_id": leader_id, "leader_epoch": epoch},
                                "size": len(data),
                                "position": part.position,
                                "unaligned_records": data[part.position :][: self.part_bytes],
                            }
                        ],
                    }
                ]
            },
        )
        return memoryview(frame)[9:]

"""Reads the records of a topic from a broker: positions, ranges of records, new records.

Each fetch is independent, without a session or a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cordwood.errors import FormatError, OffsetOutOfRangeError
from cordwood.format.batch import BatchDecoder, RecordRun
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.fetch_request import FetchPartition
from cordwood.protocol.record_messages import (
    FETCH_VERSION_MAX,
    FetchedRecords,
    decode_fetch_response,
    encode_fetch_request,
)
from cordwood.quantities import KIB, MIB, Offset
from cordwood.remote import api_calls
from cordwood.remote.fetched_batches import FetchedBatches
from cordwood.remote.record_chunk import RecordChunk
from cordwood.remote.refusals import check
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.wire_connection import ANSWER_TIMEOUT_S, WireConnection

if TYPE_CHECKING:
    from cordwood.protocol.schemas import offset_messages as messages

LATEST: Final = -1
EARLIEST: Final = -2

_FETCH_BYTES: Final = 32 * MIB  # of all partitions together
_PARTITION_BYTES_MIN: Final = 64 * KIB
_PARTITION_BYTES_MAX: Final = 4 * MIB
_WAIT_MS: Final = 500
_CONSUMER: Final = -1  # instead of the id of a replica


class RemoteConsumer:
    """Reads some partitions of one topic. For one thread."""

    def __init__(
        self, cluster: RemoteCluster, topic: str, partitions: Sequence[int] | None = None
    ) -> None:
        described = cluster.topic(topic)
        self.topic = topic
        self.partitions = described.partitions if partitions is None else list(partitions)
        for number in self.partitions:
            described.check_partition(number)
        self._is_choice = partitions is not None
        self._cluster = cluster
        self._decoder = BatchDecoder()

    def refresh(self) -> None:
        """Update `partitions`, unless partitions were chosen."""
        self._cluster.forget()
        described = self._cluster.topic(self.topic)
        if not self._is_choice:
            self.partitions = described.partitions

    # --- positions ---------------------------------------------------------------------------

    def offsets_at(
        self, timestamp_ms: int, partitions: Iterable[int] | None = None
    ) -> dict[int, int]:
        """The first offset of each partition at that time or later; -1: none.

        `LATEST` and `EARLIEST` mean the end and the start.
        """
        wanted = list(self.partitions if partitions is None else partitions)
        return self._cluster.retried(lambda: self._list_offsets(timestamp_ms, wanted))

    def _list_offsets(self, timestamp_ms: int, partitions: list[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for connection, numbers in self._cluster.by_leader(self.topic, partitions):
            asked: list[messages.ListOffsetsRequestPartitionsDict] = [
                {"partition_index": n, "timestamp": timestamp_ms} for n in numbers
            ]
            answer = connection.call(
                api_calls.LIST_OFFSETS(
                    {
                        "replica_id": _CONSUMER,
                        "topics": [{"name": self.topic, "partitions": asked}],
                        "timeout": int(ANSWER_TIMEOUT_S * 1000),
                    }
                ),
            )
            for topic in answer.topics:
                for part in topic.partitions:
                    what = f"look up offsets of {self.topic}-{part.partition_index}"
                    check(part.error_code, what, topic=self.topic)
                    found[part.partition_index] = part.offset
        return found

    # --- records -----------------------------------------------------------------------------

    def chunks(self, partition: int, start: int, stop: int) -> Iterator[RecordChunk]:
        """The records of one partition in [start, stop), one chunk for each fetch."""
        for fetched in self._walk(partition, start, stop):
            records = [r for run in fetched.runs(stop=stop) for r in run.records()]
            yield RecordChunk(partition, records, fetched.next_offset)

    def runs(self, partition: int, start: int, stop: int) -> Iterator[RecordRun]:
        """The same records as parsed runs. A run is valid until the next."""
        for fetched in self._walk(partition, start, stop):
            yield from fetched.runs(stop=stop)

    def _walk(self, partition: int, start: int, stop: int) -> Iterator[FetchedBatches]:
        """The batches of each fetch. The next fetch begins where the last was read to."""
        decoder = BatchDecoder()
        position = start
        while position < stop:
            [part] = self._cluster.retried(
                lambda at=position: self._fetch({partition: at}, wait_ms=_WAIT_MS)  # type: ignore[misc]
            )
            fetched = FetchedBatches(part.records, position, decoder)
            yield fetched
            if fetched.next_offset <= position:
                self._check_progress(part, position)
                if position >= part.high_watermark:
                    return  # the log was truncated since its end was requested
            position = fetched.next_offset

    def news(self, positions: Mapping[int, int], *, wait_ms: int = _WAIT_MS) -> list[RecordChunk]:
        """The records behind these positions; empty if none came within `wait_ms`."""
        chunks: list[RecordChunk] = []
        for part in self._cluster.retried(lambda: self._fetch(positions, wait_ms=wait_ms)):
            start = positions[part.partition]
            fetched = FetchedBatches(part.records, start, self._decoder)
            records = [record for run in fetched.runs() for record in run.records()]
            if fetched.next_offset > start:
                chunks.append(RecordChunk(part.partition, records, fetched.next_offset))
            else:
                self._check_progress(part, start)
        return chunks

    def _check_progress(self, part: FetchedRecords, position: int) -> None:
        """A broker must send the first batch whole. Raises if it did not."""
        if len(part.records):
            raise FormatError(
                f"{self.topic}-{part.partition}: the broker sent {len(part.records)} bytes at "
                f"offset {position} that hold no whole batch"
            )

    def _fetch(self, positions: Mapping[int, int], *, wait_ms: int) -> list[FetchedRecords]:
        found: list[FetchedRecords] = []
        leaders = self._cluster.by_leader(self.topic, positions)
        # Leaders are asked in turn, and may wait no longer than `wait_ms` together.
        share_ms = max(wait_ms // max(len(leaders), 1), 1) if wait_ms else 0
        for connection, numbers in leaders:
            wanted = {number: positions[number] for number in numbers}
            found += self._fetch_from(connection, wanted, wait_ms=share_ms)
        return found

    def _fetch_from(
        self, connection: WireConnection, positions: Mapping[int, int], *, wait_ms: int
    ) -> list[FetchedRecords]:
        version = connection.version_of(ApiKey.FETCH, at_most=FETCH_VERSION_MAX)
        share = _FETCH_BYTES // len(positions)
        bytes_max = min(max(share, _PARTITION_BYTES_MIN), _PARTITION_BYTES_MAX)
        request = encode_fetch_request(
            version,
            [FetchPartition(self.topic, n, offset, bytes_max) for n, offset in positions.items()],
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
        )
        timeout_s = ANSWER_TIMEOUT_S + wait_ms / 1000
        body = connection.exchange(ApiKey.FETCH, version, request, timeout_s=timeout_s)
        answer = decode_fetch_response(version, body)
        check(answer.error_code, f"read {self.topic}")
        for part in answer.parts:
            if part.error_code == ErrorCode.offset_out_of_range:
                self._raise_out_of_range(part.partition, positions[part.partition])
            check(part.error_code, f"read {self.topic}-{part.partition}", topic=self.topic)
        return answer.parts

    def _raise_out_of_range(self, partition: int, offset: int) -> None:
        start = self._list_offsets(EARLIEST, [partition])[partition]
        end = self._list_offsets(LATEST, [partition])[partition]
        error = OffsetOutOfRangeError(Offset(offset), start=Offset(start), end=Offset(end))
        error.add_note(f"in {self.topic}-{partition}")
        raise error

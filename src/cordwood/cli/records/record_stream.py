"""The records of a topic as one stream: existing records merged by time, or new ones on arrival.

Each partition keeps its own order, whatever the timestamps of its records. One chunk of each
partition is in memory at a time.
"""

import heapq
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from cordwood.cli.at.backend import Extent, TopicReader
from cordwood.cli.records.log_position import AtOffset, AtTime, BeforeEnd, Edge, LogPosition
from cordwood.errors import BrokerUnreachableError, CorruptSegmentError, OffsetOutOfRangeError
from cordwood.format.record import Record
from cordwood.remote.record_chunk import RecordChunk
from cordwood.value_class import dataclass

Row = tuple[int, Record]  # a partition and one of its records
Warn = Callable[[str], None]

_ROWS_AT_ONCE: Final = 1000
_NEWS_S: Final = 0.5
_REFRESH_S: Final = 5.0
_RECONNECT_S: Final = 60.0
_RECONNECT_PAUSE_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedRows:
    """Records in the order of the stream, and the next position of each partition after them."""

    rows: list[Row]
    positions: Mapping[int, int]


def resolve_position(
    reader: TopicReader, position: LogPosition, extents: Mapping[int, Extent], warn: Warn
) -> dict[int, int]:
    """The offset of a position in each partition. A warning reports an offset out of range."""
    match position:
        case Edge.BEGINNING:
            return {number: extent.start for number, extent in extents.items()}
        case Edge.END:
            return {number: extent.end for number, extent in extents.items()}
        case BeforeEnd():
            return {
                number: max(extent.start, extent.end - position.count)
                for number, extent in extents.items()
            }
        case AtTime():
            found = reader.offsets_at(position.timestamp_ms)
            return {
                number: min(max(found.get(number, extent.end), extent.start), extent.end)
                for number, extent in extents.items()
            }
        case AtOffset():
            wanted = dict.fromkeys(extents, position.offset)
            return within_extents(reader.topic, wanted, extents, warn)


def within_extents(
    topic: str, wanted: Mapping[int, int], extents: Mapping[int, Extent], warn: Warn
) -> dict[int, int]:
    """The offsets, moved into the readable range; every move is reported by a warning."""
    found: dict[int, int] = {}
    for number, offset in wanted.items():
        extent = extents[number]
        found[number] = min(max(offset, extent.start), extent.end)
        if offset < extent.start:
            warn(f"{topic}-{number}: offset {offset} no longer exists, starting at {extent.start}")
        elif offset > extent.end:
            warn(f"{topic}-{number}: offset {offset} does not exist yet, using end {extent.end}")
    return found


class RecordStream:
    """Reads from `starts` to given stops, or forever. For one thread.

    With `key`, only records of that key. A warning reports records deleted before they were read,
    and with `skip_damaged` also records that cannot be read. Without it, damage is an error.
    """

    def __init__(
        self,
        reader: TopicReader,
        starts: Mapping[int, int],
        warn: Warn,
        *,
        key: bytes | None = None,
        skip_damaged: bool = False,
    ) -> None:
        self._reader = reader
        self._starts = dict(starts)
        self._warn = warn
        self._key = key
        self._skip_damaged = skip_damaged

    # --- existing records --------------------------------------------------------------------

    def until(self, stops: Mapping[int, int]) -> Iterator[StreamedRows]:
        """All records before `stops`; several partitions are merged by time."""
        parts = {n: (start, stops[n]) for n, start in self._starts.items() if start < stops[n]}
        if len(parts) == 1:
            [(number, extent)] = parts.items()
            yield from self._alone(number, *extent)
        elif parts:
            yield from self._merged(parts)
        ends = {number: max(start, stops[number]) for number, start in self._starts.items()}
        yield StreamedRows(rows=[], positions=ends)

    def _alone(self, partition: int, start: int, stop: int) -> Iterator[StreamedRows]:
        for records, following in self._chunks(partition, start, stop):
            rows = [(partition, record) for record in records]
            yield StreamedRows(rows=rows, positions={partition: following})

    def _merged(self, parts: Mapping[int, tuple[int, int]]) -> Iterator[StreamedRows]:
        sources = [self._timed(number, *extent) for number, extent in parts.items()]
        rows: list[Row] = []
        for _, partition, record in heapq.merge(*sources):
            rows.append((partition, record))
            if len(rows) == _ROWS_AT_ONCE:
                yield StreamedRows(rows=rows, positions=positions_behind(rows))
                rows = []
        yield StreamedRows(rows=rows, positions=positions_behind(rows))

    def _timed(self, partition: int, start: int, stop: int) -> Iterator[tuple[int, int, Record]]:
        """Sort keys for the merge: time, then partition, so records are never compared."""
        for records, _ in self._chunks(partition, start, stop):
            for record in records:
                yield record.timestamp_ms or 0, partition, record

    def _chunks(self, partition: int, start: int, stop: int) -> Iterator[tuple[list[Record], int]]:
        position, end = start, stop
        damage: CorruptSegmentError | None = None
        while position < stop:
            try:
                for chunk in self._read(partition, position, end):
                    position = chunk.next_offset
                    yield chunk.records, position
            except OffsetOutOfRangeError as error:
                if error.start <= position:
                    raise
                position = self._skip_deleted(partition, position, error.start)
                continue
            except CorruptSegmentError as error:
                if not self._skip_damaged:
                    raise
                if damage is None and error.first_offset > position:
                    damage, end = error, error.first_offset  # first read what is sound before it
                    continue
                damage = damage or error
            if damage is None:
                return
            position, end = self._past_damage(partition, position, damage, stop), stop
            damage = None

    def _read(self, partition: int, start: int, stop: int) -> Iterator[RecordChunk]:
        if self._key is None:
            return self._reader.chunks(partition, start, stop)
        return self._reader.chunks_of_key(partition, start, stop, self._key)

    def _skip_deleted(self, partition: int, position: int, start: int) -> int:
        self._warn(
            f"{self._reader.topic}-{partition}: offsets {position} to {start - 1} were deleted "
            "before they could be read"
        )
        return start

    def _past_damage(
        self, partition: int, position: int, damage: CorruptSegmentError, stop: int
    ) -> int:
        following = stop if damage.next_offset is None else damage.next_offset
        end = min(max(following, position + 1), stop)
        last = end - 1
        skipped = f"offset {last}" if last == position else f"offsets {position} to {last}"
        self._warn(
            f"{self._reader.topic}-{partition}: skipping {skipped}: {damage.name} is damaged at "
            f"byte {damage.position}: {damage.reason}"
        )
        return end

    # --- new records -------------------------------------------------------------------------

    def follow(self, *, chooses_partitions: bool) -> Iterator[StreamedRows]:
        """Existing and new records, forever, in order of arrival.

        Partitions added meanwhile are read too, unless the user chose partitions. Rows are empty
        if nothing arrived for a moment.
        """
        positions = dict(self._starts)
        looked_s = time.monotonic()
        while True:
            if time.monotonic() - looked_s > _REFRESH_S:
                self._refresh(positions, chooses_partitions=chooses_partitions)
                looked_s = time.monotonic()
            rows = self._news(positions)
            yield StreamedRows(rows=rows, positions=dict(positions))

    def _news(self, positions: dict[int, int]) -> list[Row]:
        """New records; moves `positions` past them."""
        rows: list[Row] = []
        try:
            chunks = self._reader.news(positions, _NEWS_S)
        except CorruptSegmentError:
            if not self._skip_damaged:
                raise
            return self._rows_until_end(positions)
        except OffsetOutOfRangeError:
            if not self._skip_all_deleted(positions):
                raise
            return []
        except BrokerUnreachableError as error:
            self._reconnect(error)
            return []
        for chunk in chunks:
            positions[chunk.partition] = chunk.next_offset
            rows += (
                (chunk.partition, record)
                for record in chunk.records
                if self._key is None or record.key == self._key
            )
        return rows

    def _rows_until_end(self, positions: dict[int, int]) -> list[Row]:
        """The records that exist now, without damaged ones; moves `positions` past them."""
        rows: list[Row] = []
        for number, extent in self._reader.extents().items():
            start = positions.get(number, extent.start)
            for records, _ in self._chunks(number, start, extent.end):
                rows += ((number, record) for record in records)
            positions[number] = max(start, extent.end)
        return rows

    def _skip_all_deleted(self, positions: dict[int, int]) -> bool:
        """Move `positions` past deleted records; return whether there were any."""
        deleted = [
            (number, extent.start)
            for number, extent in self._reader.extents().items()
            if positions.get(number, extent.start) < extent.start
        ]
        for number, start in deleted:
            positions[number] = self._skip_deleted(number, positions[number], start)
        return bool(deleted)

    def _refresh(self, positions: dict[int, int], *, chooses_partitions: bool) -> None:
        try:
            self._reader.refresh()
            if chooses_partitions or len(self._reader.partitions) <= len(positions):
                return
            extents = self._reader.extents()
        except BrokerUnreachableError as error:
            self._reconnect(error)
            return
        for number, extent in extents.items():
            positions.setdefault(number, extent.start)

    def _reconnect(self, error: BrokerUnreachableError) -> None:
        """Wait for a broker that restarts; raise if it stays away."""
        self._warn(f"{error}; trying again")
        deadline_s = time.monotonic() + _RECONNECT_S
        while True:
            time.sleep(_RECONNECT_PAUSE_S)
            try:
                self._reader.refresh()
                return
            except BrokerUnreachableError:
                if time.monotonic() > deadline_s:
                    raise


def positions_behind(rows: list[Row]) -> dict[int, int]:
    """The next position of each partition after these rows."""
    return {partition: record.offset + 1 for partition, record in rows}

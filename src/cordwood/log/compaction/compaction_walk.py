"""The walk over a log that a compaction run and a compaction forecast share.

It finds the newest offset of each key and counts what stays. A run writes that; a forecast only
counts.
"""

from array import array
from collections.abc import Callable
from typing import Final

from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder
from cordwood.log.compaction import key_map as keys
from cordwood.log.compaction import record_filter
from cordwood.log.compaction.batch_filter import (
    RECORDS_PER_RUN,
    SPECIAL,
    BatchFilter,
    parse_plain_run,
)
from cordwood.log.compaction.compaction_transactions import TransactionWalk
from cordwood.log.compaction.key_map import KeyMap
from cordwood.log.partition.removal.segment_replacement import CompactionSource
from cordwood.log.rules.compaction_plan import CompactionPlan
from cordwood.quantities import INT32_MAX, MIB, FilePosition, Offset, TimestampMs
from cordwood.storage.log_file.segment_reader import SegmentReader
from cordwood.value_class import dataclass

CHUNK_BYTES: Final = 1 * MIB
BATCHES_PER_CHUNK: Final = 8192
_SLOTS_MIN: Final = 64
_REWRITE_BYTES_MAX: Final = INT32_MAX  # positions in an offset index are 32 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The limits of a run.

    secret   16 random bytes, the key of the hash of record keys
    pace     gets the bytes read or written; may wait, and may raise to end the run
    """

    map_bytes: int
    load_factor: float
    secret: bytes
    pace: Callable[[int], None]
    rewrite_bytes_max: int = _REWRITE_BYTES_MAX


class CompactionWalk:
    """One walk. Other threads may read its figures meanwhile."""

    def __init__(self, plan: CompactionPlan, settings: RunSettings, *, now_ms: TimestampMs) -> None:
        self.plan = plan
        self.now_ms = now_ms
        self.key_count = 0
        self.bytes_read = 0
        self._settings = settings
        self._records_read = 0
        self._records_kept = 0
        self._keyless = 0

    def _build_map(self, source: CompactionSource) -> KeyMap:
        first, stop = self.plan.first_dirty, self.plan.first_uncleanable
        key_map = self._new_map(first, stop)
        transactions = TransactionWalk(source.aborted_transactions(first, stop))
        table = array("q", bytes(8 * tables.RECORD_ROW * RECORDS_PER_RUN))
        decoder = BatchDecoder(batches_max=BATCHES_PER_CHUNK)
        for index in range(max(source.segments.floor(first), 0), len(source.segments)):
            segment = source.segments[index]
            if segment.base_offset >= stop:
                break
            reader = segment.reader()
            reader.decoder = decoder
            position = FilePosition(0)
            if first > segment.base_offset:
                located = reader.locate(first, segment.hint(first))
                if located is None:
                    continue
                position = located
            next_offset = reader.next_offset if position else segment.base_offset
            for run_first, run_stop in reader.chunks(
                position,
                next_offset,
                start_offset=first,
                stop_offset=stop,
                chunk_bytes=CHUNK_BYTES,
            ):
                self._pass(reader)
                map_chunk(key_map, decoder, run_first, run_stop, transactions, table)
                if key_map.is_full:
                    return key_map
            # Offsets that earlier compactions removed count as read.
            key_map.pass_to(min(source.segments.end_of(index), stop))
        return key_map

    def _new_map(self, first: Offset, stop: Offset) -> KeyMap:
        settings = self._settings
        slots = min(settings.map_bytes // keys.SLOT_BYTES, keys.SLOTS_MAX)
        # At most one key for each offset: a short range needs only a small map.
        slots = max(min(slots, int((stop - first) / settings.load_factor) + 2), _SLOTS_MIN)
        limit = max(min(int(slots * settings.load_factor), slots - 1), 1)
        return KeyMap(slots, limit, settings.secret, first)

    def _pass(self, reader: SegmentReader) -> None:
        size = reader.position - reader.chunk_position
        self.bytes_read += size
        self._settings.pace(size)

    def _new_filter(self, source: CompactionSource, key_map: KeyMap, upper: Offset) -> BatchFilter:
        first = source.segments.first_offset
        return BatchFilter(
            key_map,
            TransactionWalk(source.aborted_transactions(first, upper)),
            retained=source.last_offsets | {upper - 1},
            marker_epochs=source.marker_epochs,
            now_ms=self.now_ms,
            delete_retention_ms=source.config.delete_retention_ms,
        )

    def _note_counts(self, batch_filter: BatchFilter) -> None:
        """Add the counts of the filter, which starts from 0 each time."""
        counts = batch_filter.counts
        self._records_read += counts[record_filter.COUNT_READ]
        self._records_kept += counts[record_filter.COUNT_KEPT]
        self._keyless += counts[record_filter.COUNT_KEYLESS]


def map_chunk(
    key_map: KeyMap,
    decoder: BatchDecoder,
    first: int,
    stop: int,
    transactions: TransactionWalk,
    table: "array[int]",
) -> None:
    """Add the records of batches [first, stop), except aborted ones, until the map is full."""
    index = first
    while index < stop and not key_map.is_full:
        end = record_filter.run_end(decoder.rows, index, stop, SPECIAL)
        if end > index:
            parsed_table, parsed, index = parse_plain_run(decoder, index, end, table)
            key_map.put(decoder.data, parsed_table, parsed)
        else:
            _map_special(key_map, decoder, index, transactions)
            index += 1
        if not key_map.is_full:
            key_map.pass_to(decoder.field(index - 1, tables.B_NEXT_OFFSET))


def _map_special(
    key_map: KeyMap, decoder: BatchDecoder, index: int, transactions: TransactionWalk
) -> None:
    batch = decoder.batch(index)
    if batch.is_control:
        records = decoder.parse(index).records() if batch.record_count else []
        transactions.meet_control(batch, records[0].key or b"" if records else None)
    elif not transactions.is_aborted(batch) and batch.record_count:
        run = decoder.parse(index)
        key_map.put(run.data, run.table, run.end)

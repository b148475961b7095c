"""Filters batches for compaction and writes the records that are kept.

One kernel filters uncompressed batches without transactions, many at a time. All others are handled
one by one: compressed batches are decompressed and compressed again, transactions are followed, and
control batches have their own rules.
"""

from array import array
from collections.abc import Callable, Iterable
from typing import Final

from cordwood.checksums import crc32c
from cordwood.format import kernel_tables as tables
from cordwood.format import record_scan
from cordwood.format.batch import BatchDecoder, BatchInfo
from cordwood.format.batch_builder import seal
from cordwood.format.batch_header import (
    CODEC_MASK,
    CONTROL,
    CRC_POSITION,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    decode_batch_header,
    encode_batch_header,
)
from cordwood.format.compression import Codec, compress
from cordwood.format.index_entry import AbortedTransaction
from cordwood.log.compaction import record_filter
from cordwood.log.compaction.compaction_transactions import TransactionWalk
from cordwood.log.compaction.key_map import KeyMap
from cordwood.quantities import INT64_MAX, MIB, NO_TIMESTAMP, TimestampMs
from cordwood.value_class import dataclass, replace

RECORDS_PER_RUN: Final = 32_768
SPECIAL: Final = CODEC_MASK | CONTROL | TRANSACTIONAL

_EMPTY_ATTRIBUTES: Final = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
_OUT_BYTES: Final = 2 * MIB

WriteBatches = Callable[[memoryview], None]


def parse_plain_run(
    decoder: BatchDecoder, index: int, end: int, table: "array[int]"
) -> tuple["array[int]", int, int]:
    """Parse uncompressed batches from `index` on: (table, record count, index of next batch).

    The table is `table`, unless a single batch has more records than the table has rows.
    """
    code, following, parsed, _ = record_scan.parse_plain_batches(
        decoder.data, decoder.rows, index, end, table
    )
    if following == index or code != tables.RECORDS_OK:
        run = decoder.parse(index)  # has room for any batch, and reports what is wrong with it
        return run.table, run.end, index + 1
    return table, parsed, following


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedBatches:
    """Batch rows of `data`, and the record rows and key hashes of those that were parsed."""

    data: memoryview
    rows: "array[int]"
    table: "array[int]"
    hashes: "array[int]"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRules:
    """What decides which records are kept.

    now_ms       tombstones whose delete horizon is not later are dropped
    new_horizon  delete horizon of tombstones that have none yet
    retained     sorted last offsets of batches whose header is kept even if empty
    """

    key_map: KeyMap
    now_ms: TimestampMs
    new_horizon: TimestampMs
    retained: "array[int]"


@dataclass(slots=True, kw_only=True)
class FilterOutput:
    """The buffers that `filter_batches` fills; larger ones replace those that are too small.

    kept     by record: 1 if it is kept
    rebuilt  pairs of position in `data` and size: batches that need a new checksum
    counts   see `record_filter.COUNT_WORDS`
    """

    kept: bytearray
    data: bytearray
    rebuilt: "array[int]"
    counts: "array[int]"


class BatchFilter:
    """Filters batches in log order and writes what is left of them. For one thread.

    retained       last offsets of batches whose header stays even if no record does
    marker_epochs  by producer: the epoch whose transaction markers stay
    """

    def __init__(
        self,
        key_map: KeyMap,
        transactions: TransactionWalk,
        *,
        retained: Iterable[int],
        marker_epochs: dict[int, int],
        now_ms: TimestampMs,
        delete_retention_ms: int,
    ) -> None:
        self.counts = array("q", bytes(8 * record_filter.COUNT_WORDS))
        self.aborted: list[AbortedTransaction] = []
        self._map = key_map
        self._transactions = transactions
        self._marker_epochs = marker_epochs
        self._rules = FilterRules(
            key_map=key_map,
            now_ms=now_ms,
            new_horizon=TimestampMs(min(now_ms + delete_retention_ms, INT64_MAX)),
            retained=array("q", sorted(retained)),
        )
        self._table = array("q", bytes(8 * tables.RECORD_ROW * RECORDS_PER_RUN))
        self._output = FilterOutput(
            kept=bytearray(RECORDS_PER_RUN),
            data=bytearray(_OUT_BYTES),
            rebuilt=array("q", bytes(16 * 1024)),
            counts=self.counts,
        )

    @property
    def records_kept(self) -> int:
        return self.counts[record_filter.COUNT_KEPT]

    @property
    def has_changed(self) -> bool:
        """Whether anything came out other than it went in."""
        return self.counts[record_filter.COUNT_CHANGED_BATCHES] > 0

    def take(self, decoder: BatchDecoder, first: int, stop: int, write: WriteBatches) -> None:
        """Filter batches [first, stop) of `decoder`."""
        index = first
        while index < stop:
            end = record_filter.run_end(decoder.rows, index, stop, SPECIAL)
            if end > index:
                index = self._take_plain(decoder, index, end, write)
            else:
                self._take_special(decoder, index, write)
                index += 1

    # --- uncompressed data ---------------------------------------------------------------------

    def _take_plain(self, decoder: BatchDecoder, index: int, end: int, write: WriteBatches) -> int:
        table, parsed, following = parse_plain_run(decoder, index, end, self._table)
        batches = ParsedBatches(
            data=decoder.data,
            rows=decoder.rows,
            table=table,
            hashes=self._map.hashes_of(decoder.data, table, parsed),
        )
        self._make_room_for_records(parsed)
        row = 0
        while index < following:
            before = index
            index, row, size, rebuilt_size = record_filter.filter_batches(
                batches, index, following, row, self._rules, self._output
            )
            if index == before:
                self._make_room_for_batch(decoder.batch(index))
            elif size:
                out = memoryview(self._output.data)
                self._seal_rebuilt(out, rebuilt_size)
                write(out[:size])
        return following

    def _make_room_for_records(self, count: int) -> None:
        if len(self._output.kept) < count:
            self._output.kept = bytearray(count)

    def _make_room_for_batch(self, batch: BatchInfo) -> None:
        needed = batch.size + batch.record_count * record_filter.GROWTH_PER_RECORD
        assert needed > len(self._output.data), (needed, len(self._output.data))
        self._output.data = bytearray(needed)

    def _seal_rebuilt(self, out: memoryview, rebuilt_size: int) -> None:
        for i in range(0, rebuilt_size, 2):
            at, size = self._output.rebuilt[i], self._output.rebuilt[i + 1]
            checksum = crc32c(out[at + CRC_START : at + size])
            out[at + CRC_POSITION : at + CRC_START] = checksum.to_bytes(4, "big")

    # --- one at a time -------------------------------------------------------------------------

    def _take_special(self, decoder: BatchDecoder, index: int, write: WriteBatches) -> None:
        batch = decoder.batch(index)
        if batch.is_control:
            self._take_control(decoder, index, batch, write)
        elif self._transactions.is_aborted(batch):
            self.counts[record_filter.COUNT_READ] += batch.record_count
            self._write_emptied(decoder, batch, write)
        elif batch.codec and batch.record_count:
            self._take_compressed(decoder, index, batch, write)
        else:
            self._take_plain(decoder, index, index + 1, write)

    def _take_control(
        self, decoder: BatchDecoder, index: int, batch: BatchInfo, write: WriteBatches
    ) -> None:
        records = decoder.parse(index).records() if batch.record_count else []
        key = records[0].key or b"" if records else None
        fate = self._transactions.meet_control(batch, key)
        if fate.aborted is not None:
            self.aborted.append(fate.aborted)
        self.counts[record_filter.COUNT_READ] += batch.record_count
        has_horizon = bool(batch.attributes & DELETE_HORIZON)
        has_had_its_time = has_horizon and self._rules.now_ms >= batch.base_timestamp
        if not records or (fate.is_spent and has_had_its_time):
            self._write_emptied(decoder, batch, write)
            return
        self.counts[record_filter.COUNT_KEPT] += batch.record_count
        if fate.is_spent and not has_horizon:
            header = _header(decoder, batch)
            self._write_rebuilt(decoder, index, header, batch, write, is_rebased=True)
        else:
            write(_whole(decoder, batch))

    def _take_compressed(
        self, decoder: BatchDecoder, index: int, batch: BatchInfo, write: WriteBatches
    ) -> None:
        run = decoder.parse(index)
        count = run.end
        self._make_room_for_records(count)
        has_horizon = bool(batch.attributes & DELETE_HORIZON)
        stay, tombstones, keyless, largest = record_filter.decide_records(
            self._map,
            self._map.hashes_of(run.data, run.table, count),
            run.table,
            count,
            has_horizon and self._rules.now_ms >= batch.base_timestamp,
            self._output.kept,
        )
        self.counts[record_filter.COUNT_READ] += count
        self.counts[record_filter.COUNT_KEPT] += stay
        self.counts[record_filter.COUNT_KEYLESS] += keyless
        self.counts[record_filter.COUNT_TOMBSTONES] += tombstones
        is_rebased = tombstones > 0 and not has_horizon
        if not stay:
            self._write_emptied(decoder, batch, write)
        elif stay == count and not is_rebased:
            write(_whole(decoder, batch))
        else:
            header = replace(_header(decoder, batch), record_count=stay)
            if not header.is_log_append_time:  # else the header has the time of every record
                header = replace(header, max_timestamp=TimestampMs(largest))
            self._write_rebuilt(
                decoder, index, header, batch, write, is_rebased=is_rebased, is_decided=True
            )

    def _write_rebuilt(
        self,
        decoder: BatchDecoder,
        index: int,
        header: BatchHeader,
        batch: BatchInfo,
        write: WriteBatches,
        *,
        is_rebased: bool,
        is_decided: bool = False,
    ) -> None:
        """Write the records that `kept` marks, or all, under a new header."""
        run = decoder.parse(index)
        count = run.end
        kept = self._output.kept if is_decided else bytearray(b"\x01" * count)
        start = 0 if batch.codec else batch.position + HEADER_SIZE
        end = len(run.data) if batch.codec else batch.position + batch.size
        records = bytearray(end - start + count * record_filter.GROWTH_PER_RECORD)
        size = record_filter.copy_records(
            run, start, end, kept, self._rules.new_horizon if is_rebased else None, records
        )
        payload: bytes | memoryview = memoryview(records)[:size]
        if batch.codec:
            payload = compress(Codec(batch.codec), payload)
        if is_rebased:
            header = replace(
                header,
                attributes=header.attributes | DELETE_HORIZON,
                base_timestamp=self._rules.new_horizon,
            )
        header = replace(header, batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload))
        whole = bytearray(encode_batch_header(header)) + payload
        seal(whole)
        self.counts[record_filter.COUNT_CHANGED_BATCHES] += 1
        write(memoryview(whole))

    def _write_emptied(self, decoder: BatchDecoder, batch: BatchInfo, write: WriteBatches) -> None:
        """Nothing of the batch stays but, where someone needs it, the header."""
        is_needed = batch.next_offset - 1 in self._rules.retained or (
            batch.is_control and self._marker_epochs.get(batch.producer_id) == batch.producer_epoch
        )
        if is_needed and not batch.record_count:
            write(_whole(decoder, batch))
            return
        self.counts[record_filter.COUNT_CHANGED_BATCHES] += 1
        if not is_needed:
            return
        header = replace(
            _header(decoder, batch),
            batch_length=HEADER_SIZE - LOG_OVERHEAD,
            attributes=batch.attributes & _EMPTY_ATTRIBUTES,
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        )
        emptied = bytearray(encode_batch_header(header))
        seal(emptied)
        write(memoryview(emptied))


def _whole(decoder: BatchDecoder, batch: BatchInfo) -> memoryview:
    return decoder.data[batch.position : batch.position + batch.size]


def _header(decoder: BatchDecoder, batch: BatchInfo) -> BatchHeader:
    return decode_batch_header(decoder.data, batch.position)

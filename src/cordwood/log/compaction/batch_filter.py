"""Filters batches for compaction: drops the records that have a newer one of the same key.

One kernel filters uncompressed batches without transactions, many at a time. The others are
filtered one by one: compressed batches are decompressed and compressed again, transactions are
tracked, and control batches have rules of their own.
"""

from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import crc32c

from cordwood.format import kernel_tables as tables
from cordwood.format import kernels
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
from cordwood.log.compaction import key_map as keys
from cordwood.log.compaction.compaction_transactions import TransactionWalk
from cordwood.log.compaction.key_map import KeyMap
from cordwood.quantities import INT64_MAX, MIB, NO_TIMESTAMP, TimestampMs

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
    code, following, parsed, _ = kernels.parse_plain_batches(
        decoder.data, decoder.rows, index, end, table
    )
    if following == index or code != tables.RECORDS_OK:
        run = decoder.parse(index)  # has room for any batch, and reports what is wrong with it
        return run.table, run.end, index + 1
    return table, parsed, following


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
        self.counts = array("q", bytes(8 * keys.COUNT_WORDS))
        self.aborted: list[AbortedTransaction] = []
        self._map = key_map
        self._transactions = transactions
        self._retained = array("q", sorted(retained))
        self._marker_epochs = marker_epochs
        self._now_ms = now_ms
        self._new_horizon = TimestampMs(min(now_ms + delete_retention_ms, INT64_MAX))
        self._table = array("q", bytes(8 * tables.RECORD_ROW * RECORDS_PER_RUN))
        self._kept = bytearray(RECORDS_PER_RUN)
        self._out = bytearray(_OUT_BYTES)
        self._rebuilt = array("q", bytes(16 * 1024))

    @property
    def records_kept(self) -> int:
        return self.counts[keys.COUNT_KEPT]

    @property
    def has_changed(self) -> bool:
        """Whether any batch was changed or dropped."""
        return self.counts[keys.COUNT_CHANGED_BATCHES] > 0

    def take(self, decoder: BatchDecoder, first: int, stop: int, write: WriteBatches) -> None:
        """Filter batches [first, stop) of `decoder`."""
        index = first
        while index < stop:
            end = keys.run_end(decoder.rows, index, stop, SPECIAL)
            if end > index:
                index = self._take_plain(decoder, index, end, write)
            else:
                self._take_special(decoder, index, write)
                index += 1

    # --- uncompressed data ---------------------------------------------------------------------

    def _take_plain(self, decoder: BatchDecoder, index: int, end: int, write: WriteBatches) -> int:
        table, parsed, following = parse_plain_run(decoder, index, end, self._table)
        hashes = self._map.hashes_of(decoder.data, table, parsed)
        if len(self._kept) < parsed:
            self._kept = bytearray(parsed)
        row = 0
        while index < following:
            before = index
            index, row, size, rebuilt_size = keys.filter_batches(
                decoder.data,
                decoder.rows,
                index,
                following,
                table,
                row,
                hashes,
                self._map.words,
                self._map.slots,
                self._map.latest,
                self._now_ms,
                self._new_horizon,
                self._retained,
                self._kept,
                self._out,
                0,
                self._rebuilt,
                self.counts,
            )
            if index == before:
                self._make_room(decoder.batch(index))
            elif size:
                out = memoryview(self._out)
                self._seal_rebuilt(out, rebuilt_size)
                write(out[:size])
        return following

    def _make_room(self, batch: BatchInfo) -> None:
        needed = batch.size + batch.record_count * keys.GROWTH_PER_RECORD
        assert needed > len(self._out), (needed, len(self._out))
        self._out = bytearray(needed)

    def _seal_rebuilt(self, out: memoryview, rebuilt_size: int) -> None:
        for i in range(0, rebuilt_size, 2):
            at, size = self._rebuilt[i], self._rebuilt[i + 1]
            checksum = crc32c.crc32c(out[at + CRC_START : at + size])
            out[at + CRC_POSITION : at + CRC_START] = checksum.to_bytes(4, "big")

    # --- one at a time -------------------------------------------------------------------------

    def _take_special(self, decoder: BatchDecoder, index: int, write: WriteBatches) -> None:
        batch = decoder.batch(index)
        if batch.is_control:
            self._take_control(decoder, index, batch, write)
        elif self._transactions.is_aborted(batch):
            self.counts[keys.COUNT_READ] += batch.record_count
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
        self.counts[keys.COUNT_READ] += batch.record_count
        has_horizon = bool(batch.attributes & DELETE_HORIZON)
        has_had_its_time = has_horizon and self._now_ms >= batch.base_timestamp
        if not records or (fate.is_spent and has_had_its_time):
            self._write_emptied(decoder, batch, write)
            return
        self.counts[keys.COUNT_KEPT] += batch.record_count
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
        if len(self._kept) < count:
            self._kept = bytearray(count)
        has_horizon = bool(batch.attributes & DELETE_HORIZON)
        stay, tombstones, keyless, largest = keys.decide_records(
            self._map.words,
            self._map.slots,
            self._map.latest,
            self._map.hashes_of(run.data, run.table, count),
            run.table,
            count,
            has_horizon and self._now_ms >= batch.base_timestamp,
            self._kept,
        )
        self.counts[keys.COUNT_READ] += count
        self.counts[keys.COUNT_KEPT] += stay
        self.counts[keys.COUNT_KEYLESS] += keyless
        self.counts[keys.COUNT_TOMBSTONES] += tombstones
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
        """Write the records marked in `_kept`, or all, under a new header."""
        run = decoder.parse(index)
        count = run.end
        kept = self._kept if is_decided else bytearray(b"\x01" * count)
        start = 0 if batch.codec else batch.position + HEADER_SIZE
        end = len(run.data) if batch.codec else batch.position + batch.size
        records = bytearray(end - start + count * keys.GROWTH_PER_RECORD)
        size = keys.copy_records(
            run.data, start, end, run.table, count, kept, is_rebased, self._new_horizon, records, 0
        )
        payload: bytes | memoryview = memoryview(records)[:size]
        if batch.codec:
            payload = compress(Codec(batch.codec), payload)
        if is_rebased:
            header = replace(
                header,
                attributes=header.attributes | DELETE_HORIZON,
                base_timestamp=self._new_horizon,
            )
        header = replace(header, batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload))
        whole = bytearray(encode_batch_header(header)) + payload
        seal(whole)
        self.counts[keys.COUNT_CHANGED_BATCHES] += 1
        write(memoryview(whole))

    def _write_emptied(self, decoder: BatchDecoder, batch: BatchInfo, write: WriteBatches) -> None:
        """Drop the batch, or keep its header without records if the header is needed."""
        is_needed = batch.next_offset - 1 in self._retained or (
            batch.is_control and self._marker_epochs.get(batch.producer_id) == batch.producer_epoch
        )
        if is_needed and not batch.record_count:
            write(_whole(decoder, batch))
            return
        self.counts[keys.COUNT_CHANGED_BATCHES] += 1
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

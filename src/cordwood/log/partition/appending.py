"""Appending: how records of the library and batches of clients get into a log."""

import operator
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cordwood.errors import CordwoodError, InvalidRecordError, UnexpectedOffsetError
from cordwood.format import kernels
from cordwood.format.batch_builder import BatchStyle, build_batch, build_batches, scratch_size
from cordwood.format.compression import Codec
from cordwood.format.record import Header, Record
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.batch_group import BatchGroup, producer_facts
from cordwood.log.partition.batch_writer import BatchWriter
from cordwood.log.partition.group_commit import GroupCommit, PendingAppend
from cordwood.log.partition.log_parts import LogParts
from cordwood.log.partition.log_producers import LogProducers
from cordwood.log.partition.producer_snapshots import finish_marker
from cordwood.log.partition.promises import Promises
from cordwood.log.partition.state_holder import StateHolder
from cordwood.log.partition.truncation import Truncation
from cordwood.log.rules.append_checks import BatchBytes, check_produced_batch, check_timestamp
from cordwood.log.rules.appended import Appended, AppendedRange
from cordwood.log.rules.producer_entry import Duplicate
from cordwood.log.rules.producer_state import AppendOrigin, MarkerFacts
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import NO_PRODUCER_ID, LeaderEpoch, Offset, TimestampMs

_NEEDS_KEY: Final = "a compacted topic needs a key"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedBatch:
    """Where a client's batch is stored, now or, for a duplicate, since it came first."""

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: TimestampMs
    is_duplicate: bool = False


def batch_style(config: TopicConfig) -> BatchStyle:
    return BatchStyle(
        bytes_max=min(config.max_message_bytes, config.segment_bytes_effective),
        codec=config.codec or Codec.NONE,
        level=config.compression_level,
        is_log_append_time=config.is_log_append_time,
    )


class _Scratch(threading.local):
    """A buffer for each thread that appends: one for each log would be too many."""

    def __init__(self) -> None:
        self.buffer = bytearray(0)


_SCRATCH: Final = _Scratch()


def _scratch_for(style: BatchStyle) -> bytearray:
    size = scratch_size(style)
    if len(_SCRATCH.buffer) != size:
        _SCRATCH.buffer = bytearray(size)
    return _SCRATCH.buffer


class Appending:
    """Appends to one log. Any thread may call it.

    Each method encodes or checks first, without a lock; then gives offsets and writes under the
    log's lock; then waits for the promise.
    """

    def __init__(
        self,
        parts: LogParts,
        holder: StateHolder,
        *,
        writer: BatchWriter,
        commits: GroupCommit,
        promises: Promises,
        producers: LogProducers,
        truncation: Truncation,
    ) -> None:
        self._partition = parts.partition
        self._clock = parts.clock
        self._holder = holder
        self._writer = writer
        self._commits = commits
        self._promises = promises
        self._producers = producers
        self._truncation = truncation
        self.style = batch_style(parts.config)  # replaced with the configuration

    # --- records of the library --------------------------------------------------------------

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | Mapping[str, bytes | None],
        timestamp_ms: int | None,
        expected_offset: int | None,
    ) -> Appended:
        """Append one record. See `PartitionLog.append`."""
        holder = self._holder
        config = holder.config
        now_ms = self._clock.now_ms()
        if timestamp_ms is not None:
            timestamp_ms = operator.index(timestamp_ms)
            check_timestamp(timestamp_ms, config, now_ms=now_ms)
        if isinstance(headers, Mapping):
            headers = tuple(headers.items())
        if key is None and config.is_compacted:
            raise InvalidRecordError(_NEEDS_KEY, [(0, _NEEDS_KEY)])
        built = build_batch([Record(value, key, headers, timestamp_ms)], now_ms, self.style)
        data = built.data
        batch = UnplacedBatch(len(data), 1, built.max_timestamp)
        if config.durability == "disk":
            item = PendingAppend(data, batch, now_ms, expected_offset)
            self._commits.commit(item)
            if item.error is not None:
                raise item.error
            return Appended(self._partition, item.offset, batch.max_timestamp)
        with holder.lock:
            self._check_expected(expected_offset)
            offset = self._writer.write(data, batch, now_ms)
        self._promises.await_kept(Offset(offset + 1))
        return Appended(self._partition, offset, batch.max_timestamp)

    def append_many(self, records: Iterable[Any], expected_offset: int | None) -> AppendedRange:
        """Append records in order, all or none. See `PartitionLog.append_many`."""
        now_ms = self._clock.now_ms()
        items: list[Any] = records if isinstance(records, list) else list(records)
        self._check_many(items, now_ms)
        holder, style = self._holder, self.style
        with holder.lock:
            first = self._check_expected(expected_offset)
            try:
                for built in build_batches(items, now_ms, style, scratch=_scratch_for(style)):
                    batch = UnplacedBatch(len(built.data), built.record_count, built.max_timestamp)
                    self._writer.write(built.data, batch, now_ms, is_visible=False)
            except BaseException:
                if holder.state.end != first:
                    self._truncation.take_back(first)
                raise
            end = holder.state.end
            self._writer.show()
        self._promises.await_kept(end)
        return AppendedRange(
            partition=self._partition, first_offset=first, next_offset=end, timestamp_ms=now_ms
        )

    def _check_expected(self, expected_offset: int | None) -> Offset:
        """Where the next record goes, if it may. Holds the lock."""
        self._holder.check_appendable()
        end = self._holder.state.end
        if expected_offset is not None and expected_offset != end:
            raise UnexpectedOffsetError(expected=Offset(expected_offset), actual=end)
        return end

    def _check_many(self, items: list[Any], now_ms: TimestampMs) -> None:
        config = self._holder.config
        oldest, newest, keyless = kernels.survey_records(items, Record)
        if keyless >= 0 and config.is_compacted:
            raise InvalidRecordError(_NEEDS_KEY, [(keyless, _NEEDS_KEY)])
        for timestamp in (oldest, newest):
            if timestamp is not None:
                check_timestamp(timestamp, config, now_ms=now_ms)

    # --- batches of clients ------------------------------------------------------------------

    def append_batch(
        self, data: BatchBytes, leader_epoch: int | None, *, wait: bool
    ) -> AppendedBatch:
        """Append one encoded batch. See `PartitionLog.append_batch`."""
        now_ms = self._clock.now_ms()
        checked = check_produced_batch(data, self._holder.config, now_ms=now_ms)
        batch = checked.unplaced
        with self._holder.lock:
            self._holder.check_appendable(wait=wait)
            duplicate = self._check_producer(batch)
            if duplicate is None:
                epoch = None if leader_epoch is None else LeaderEpoch(leader_epoch)
                base = self._writer.write(checked.data, batch, now_ms, leader_epoch=epoch)
                appended = AppendedBatch(
                    base_offset=base,
                    last_offset=Offset(base + batch.record_count - 1),
                    timestamp_ms=batch.max_timestamp,
                )
            else:
                appended = AppendedBatch(
                    base_offset=duplicate.first_offset,
                    last_offset=duplicate.last_offset,
                    timestamp_ms=duplicate.timestamp,
                    is_duplicate=True,
                )
        if wait:
            # A duplicate too: the first copy may still be on its way to the disk.
            self._promises.await_kept(Offset(appended.last_offset + 1))
        return appended

    def append_group(self, group: BatchGroup) -> list[Offset | Exception]:
        """Append batches that were checked before. See `PartitionLog.append_group`."""
        now_ms = self._clock.now_ms()
        batches = group.batches
        with self._holder.lock:
            try:
                self._holder.check_appendable(wait=False)
            except CordwoodError as error:
                return [error] * len(batches)
            return self._writer.write_group(
                group.data,
                batches,
                now_ms,
                admit=lambda index: self._answer_known(batches[index]),
                is_admitted=not group.is_numbered or self._are_all_new(batches),
            )

    def _are_all_new(self, batches: Sequence[UnplacedBatch]) -> bool:
        """Whether none is refused or was stored before. Holds the lock.

        The first batch of each producer decides: the others continue its sequence.
        """
        seen: set[int] = set()
        for batch in batches:
            if batch.producer_id not in seen:
                seen.add(batch.producer_id)
                if self._answer_known(batch) is not None:
                    return False
        return True

    def _answer_known(self, batch: UnplacedBatch) -> Offset | Exception | None:
        """Where a batch was stored before, or why it is refused; None: write it. Holds the lock."""
        try:
            duplicate = self._check_producer(batch)
        except CordwoodError as error:
            return error
        return None if duplicate is None else duplicate.first_offset

    def _check_producer(self, batch: UnplacedBatch) -> Duplicate | None:
        """Refuse a batch out of sequence; return where a duplicate is. Holds the lock."""
        if batch.producer_id == NO_PRODUCER_ID:
            return None
        facts = producer_facts(batch, self._holder.state.end)
        return self._producers.states.check(facts, origin=AppendOrigin.CLIENT)

    def append_marker(self, data: bytearray | memoryview, marker: MarkerFacts) -> Offset:
        """Append the control batch that ends a transaction. See `PartitionLog.append_marker`."""
        now_ms = self._clock.now_ms()
        with self._holder.lock:
            self._holder.check_turn()
            states = self._producers.states
            states.check_marker(marker)
            batch = UnplacedBatch(len(data), 1, marker.timestamp)
            offset = self._writer.write(data, batch, now_ms, is_visible=False)
            placed = MarkerFacts(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                offset=offset,
                timestamp=marker.timestamp,
                is_abort=marker.is_abort,
            )
            finish_marker(states, self._holder.state.segments.active, placed)
            self._writer.show()
        self._promises.await_kept(Offset(offset + 1))
        return offset

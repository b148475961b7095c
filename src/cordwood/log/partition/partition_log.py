"""A partition's log, opened for writing: how records and batches get in."""

import operator
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cordwood.errors import (
    CordwoodError,
    DiskFullError,
    InvalidRecordError,
    RecordTooLargeError,
    UnexpectedOffsetError,
)
from cordwood.format import record_encoding
from cordwood.format.batch_builder import BatchStyle, build_batch, build_batches, scratch_size
from cordwood.format.batch_header import BatchHeader, stamp
from cordwood.format.compression import Codec
from cordwood.format.record import Header, Record
from cordwood.log.partition.batch_group import BatchGroup, producer_facts
from cordwood.log.partition.durable_log import FULL_DISK_ERRNOS, LogParts
from cordwood.log.partition.group_commit import PendingAppend
from cordwood.log.partition.log_loader import LoadedLog
from cordwood.log.partition.producer_snapshots import finish_marker
from cordwood.log.partition.publishable_log import PublishableLog
from cordwood.log.rules.append_checks import (
    BatchBytes,
    BatchSurvey,
    CheckedBatch,
    check_produced_batch,
    check_timestamp,
)
from cordwood.log.rules.appended import Appended, AppendedRange
from cordwood.log.rules.producer_entry import Duplicate
from cordwood.log.rules.producer_state import AppendOrigin, BatchFacts, MarkerFacts
from cordwood.log.rules.roll_policy import Incoming, RollReason, roll_reason
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import NO_PRODUCER_ID, LeaderEpoch, Offset, TimestampMs
from cordwood.storage.checkpoint_file import write_epoch_checkpoint
from cordwood.storage.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedBatch:
    """The place a client's batch was given, now or, for a duplicate, when it first came."""

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


class PartitionLog(PublishableLog):
    """One partition, for its one writer process. Readers elsewhere use `ReadOnlyLog`."""

    def __init__(self, parts: LogParts, loaded: LoadedLog) -> None:
        super().__init__(parts, loaded)
        self._style = batch_style(parts.config)

    def reconfigure(self, config: TopicConfig) -> None:
        """Go by another configuration from here on.

        Where the topic now promises the disk, what was promised less is brought there first.
        """
        with self._lock:
            self._config = config
            self._style = batch_style(config)
        if config.durability == "disk":
            self.await_durable(self._end)

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] | Mapping[str, bytes | None] = (),
        timestamp_ms: int | None = None,
        expected_offset: int | None = None,
    ) -> Appended:
        """Append one record; return its place once the topic's durability is reached.

        With `expected_offset` the record is refused unless it would get that offset.
        """
        now_ms = self._clock.now_ms()
        if timestamp_ms is not None:
            timestamp_ms = operator.index(timestamp_ms)
            check_timestamp(timestamp_ms, self._config, now_ms=now_ms)
        if isinstance(headers, Mapping):
            headers = tuple(headers.items())
        if key is None and self._config.is_compacted:
            raise InvalidRecordError(
                "a compacted topic needs a key", [(0, "a compacted topic needs a key")]
            )
        batch = build_batch([Record(value, key, headers, timestamp_ms)], now_ms, self._style)
        if self._config.durability == "disk":
            item = PendingAppend(batch.data, 1, batch.max_timestamp, now_ms, expected_offset)
            self._commits.commit(item, self._serve)
            if item.error is not None:
                raise item.error
            return Appended(self.partition, item.offset, batch.max_timestamp)
        with self._lock:
            self._check_appendable()
            offset = self._end
            if expected_offset is not None and expected_offset != offset:
                raise UnexpectedOffsetError(expected=Offset(expected_offset), actual=offset)
            self._write(batch.data, batch.record_count, batch.max_timestamp, now_ms)
            self._after_append()
        self._await_promised(Offset(offset + 1))
        return Appended(self.partition, offset, batch.max_timestamp)

    def append_many(
        self, records: Iterable[Any], *, expected_offset: int | None = None
    ) -> AppendedRange:
        """Append `Record`s or (key, value) pairs in order, all or none of them.

        All become visible at once, when the topic's durability is reached.
        """
        now_ms = self._clock.now_ms()
        items: list[Any] = records if isinstance(records, list) else list(records)
        self._check_many(items, now_ms)
        with self._lock:
            self._check_appendable()
            first = self._end
            if expected_offset is not None and expected_offset != first:
                raise UnexpectedOffsetError(expected=Offset(expected_offset), actual=first)
            try:
                scratch = _scratch_for(self._style)
                for batch in build_batches(items, now_ms, self._style, scratch=scratch):
                    self._write(batch.data, batch.record_count, batch.max_timestamp, now_ms)
            except BaseException:
                if self._end != first:
                    self._take_back(first)
                raise
            end = self._end
            self._after_append()
        self._await_promised(end)
        return AppendedRange(
            partition=self.partition, first_offset=first, next_offset=end, timestamp_ms=now_ms
        )

    def _check_many(self, items: list[Any], now_ms: TimestampMs) -> None:
        oldest, newest, keyless = record_encoding.survey_records(items, Record)
        if keyless >= 0 and self._config.is_compacted:
            reason = "a compacted topic needs a key"
            raise InvalidRecordError(reason, [(keyless, reason)])
        for timestamp in (oldest, newest):
            if timestamp is not None:
                check_timestamp(timestamp, self._config, now_ms=now_ms)

    def append_batch(
        self, data: BatchBytes, *, leader_epoch: int | None = None, wait: bool = True
    ) -> AppendedBatch:
        """Append one encoded batch from a client, after every check a broker makes.

        A writable `data` is stamped in place and written from there. A batch that an idempotent
        producer sends again is not stored again: the answer is where the first one went.

        Without `wait` it returns at once: not durable, and with a `LogHeldError` while a
        publication is under way.
        """
        now_ms = self._clock.now_ms()
        checked = check_produced_batch(data, self._config, now_ms=now_ms)
        with self._lock:
            self._check_appendable(wait=wait)
            appended = self._append_checked(checked, now_ms, leader_epoch)
        if wait:
            # A duplicate too: the first copy may still be on its way to the disk.
            self._await_promised(Offset(appended.last_offset + 1))
        return appended

    def _append_checked(
        self, checked: CheckedBatch, now_ms: TimestampMs, leader_epoch: int | None
    ) -> AppendedBatch:
        """Holds the lock. The batch goes in, unless its producer sent it before."""
        header = checked.header
        facts = _facts(header, self._end)
        is_numbered = header.producer_id != NO_PRODUCER_ID
        if is_numbered:
            duplicate = self._producers.check(facts, origin=AppendOrigin.CLIENT)
            if duplicate is not None:
                return _duplicate(duplicate)
        base = self._write(
            checked.data, header.record_count, header.max_timestamp, now_ms, leader_epoch
        )
        if is_numbered:
            self._producers.update(facts)
        self._after_append()
        return AppendedBatch(
            base_offset=base, last_offset=Offset(self._end - 1), timestamp_ms=header.max_timestamp
        )

    def append_group(self, group: BatchGroup) -> list[Offset | Exception]:
        """Append clients' batches that were looked over before, in one write where that can be.

        An answer for each, in order: its base offset, or why it was refused. Does not wait for
        the disk: see `has_promised`.
        """
        now_ms = self._clock.now_ms()
        with self._lock:
            try:
                self._check_appendable(wait=False)
            except CordwoodError as error:
                return [error] * len(group)
            known = self._stored_or_refused(group)
            if known or not self._write_group(group, now_ms):
                self._write_one_by_one(group, known, now_ms)
                self._after_append()
                return [known[index] for index in range(len(group))]
            bases = self._note_group(group)
            self._after_append()
        return bases

    def _stored_or_refused(self, group: BatchGroup) -> dict[int, Offset | Exception]:
        """Holds the lock. Of the batches that are not to be written: where they are, or why."""
        known: dict[int, Offset | Exception] = {}
        if not group.is_numbered:
            return known
        seen: set[int] = set()
        for index, (_, _, survey) in enumerate(group.batches):
            # What goes on where its producer stands in the group may be written where that may.
            if survey[4] == NO_PRODUCER_ID or survey[4] in seen:
                continue
            seen.add(survey[4])
            answer = self._place_or_fault(survey)
            if answer is not None:
                known[index] = answer
        return known

    def _place_or_fault(self, survey: BatchSurvey) -> Offset | Exception | None:
        """Holds the lock. Where a numbered batch was stored before, why not; None: it may be."""
        facts = producer_facts(survey, self._end)
        try:
            duplicate = self._producers.check(facts, origin=AppendOrigin.CLIENT)
        except CordwoodError as error:
            return error
        return None if duplicate is None else duplicate.first_offset

    def _write_group(self, group: BatchGroup, now_ms: TimestampMs) -> bool:
        """Holds the lock. All of it in one write; False when that cannot be, or failed."""
        end = Offset(self._end + group.record_count)
        if len(group.data) > self._config.segment_bytes_effective:
            return False
        if self._why_roll(
            len(group.data), group.max_timestamp, Offset(end - 1), group.record_count, now_ms
        ):
            return False
        offset, epoch = self._end, self._epoch
        for position, _, survey in group.batches:
            stamp(group.data, position, offset, epoch)
            offset = Offset(offset + survey[0])
        segment = self._view.segments.active
        try:
            segment.append_joined(
                group.data,
                ((size, survey[0], TimestampMs(survey[1])) for _, size, survey in group.batches),
            )
        except OSError:
            self._undo(segment)  # each is then tried by itself and has an error of its own
            return False
        self._end = end
        return True

    def _note_group(self, group: BatchGroup) -> list[Offset | Exception]:
        """Holds the lock. The group was written and ends where the log does."""
        bases: list[Offset | Exception] = []
        base = Offset(self._end - group.record_count)
        is_numbered = group.is_numbered
        for _, _, survey in group.batches:
            bases.append(base)
            if is_numbered and survey[4] != NO_PRODUCER_ID:
                self._producers.update(producer_facts(survey, base))
            base = Offset(base + survey[0])
        return bases

    def _write_one_by_one(
        self, group: BatchGroup, known: dict[int, Offset | Exception], now_ms: TimestampMs
    ) -> None:
        """Holds the lock. Each batch that has no answer yet is written and gets one."""
        data = memoryview(group.data)
        for index, (position, size, survey) in enumerate(group.batches):
            if index in known:
                continue
            if self._failure is not None:
                known[index] = self._failure
                continue
            is_numbered = survey[4] != NO_PRODUCER_ID
            # Once more: one of the same producer before it may have been refused meanwhile.
            answer = self._place_or_fault(survey) if is_numbered else None
            if answer is not None:
                known[index] = answer
                continue
            part = data[position : position + size]
            try:
                base = self._write(part, survey[0], TimestampMs(survey[1]), now_ms)
            except (OSError, CordwoodError) as error:
                known[index] = error
                continue
            if is_numbered:
                self._producers.update(producer_facts(survey, base))
            known[index] = base

    def append_marker(self, data: bytearray | memoryview, marker: MarkerFacts) -> Offset:
        """Append the control batch that ends a transaction; return its offset."""
        now_ms = self._clock.now_ms()
        with self._lock:
            self._check_turn()
            self._producers.check_marker(marker)
            offset = self._write(data, 1, marker.timestamp, now_ms)
            placed = MarkerFacts(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                offset=offset,
                timestamp=marker.timestamp,
                is_abort=marker.is_abort,
            )
            finish_marker(self._producers, self._view.segments.active, placed)
            self._after_append()
        self._await_promised(Offset(offset + 1))
        return offset

    def _place(self, group: list[PendingAppend]) -> None:
        items = [item for item in group if item.data is not None]
        if not items:
            return
        try:
            self._check_appendable()
        except CordwoodError as error:
            for item in items:
                item.error = error
            return
        if not self._write_together(items):
            for item in items:
                self._write_alone(item)
        self._after_append()

    def _write_together(self, items: list[PendingAppend]) -> bool:
        """One write for the whole group; False when it has to be taken one by one."""
        if any(item.expected_offset is not None for item in items):
            return False
        sizes = [len(item.data) for item in items if item.data is not None]
        if sum(sizes) > self._config.segment_bytes_effective:
            return False
        newest = max(item.max_timestamp for item in items)
        count = sum(item.record_count for item in items)
        if self._why_roll(
            sum(sizes), newest, Offset(self._end + count - 1), count, items[-1].now_ms
        ):
            return False
        end = self._end
        for item in items:
            assert item.data is not None
            stamp(item.data, 0, end, self._epoch)
            item.offset = end
            end = Offset(end + item.record_count)
        segment = self._view.segments.active
        try:
            segment.append_all([(i.data, i.record_count, i.max_timestamp) for i in items if i.data])
        except OSError as error:
            self._fail_all(items, segment, error)
            return True
        self._end = end
        return True

    def _fail_all(self, items: list[PendingAppend], segment: Segment, error: OSError) -> None:
        try:
            self._append_failed(segment, error)
        except (OSError, CordwoodError) as refused:
            for item in items:
                item.error = refused

    def _write_alone(self, item: PendingAppend) -> None:
        assert item.data is not None
        try:
            if item.expected_offset is not None and item.expected_offset != self._end:
                raise UnexpectedOffsetError(expected=Offset(item.expected_offset), actual=self._end)
            item.offset = self._write(item.data, item.record_count, item.max_timestamp, item.now_ms)
        except (OSError, CordwoodError) as error:
            item.error = error

    def _write(
        self,
        data: bytearray | memoryview,
        record_count: int,
        max_timestamp: TimestampMs,
        now_ms: TimestampMs,
        leader_epoch: int | None = None,
    ) -> Offset:
        """Give a batch its place and write it. Holds the lock; nobody sees the batch yet."""
        size = len(data)
        if size > self._config.segment_bytes_effective:
            raise RecordTooLargeError(
                size=size, limit=self._config.segment_bytes_effective, key="segment.bytes"
            )
        base = self._end
        end = Offset(base + record_count)
        if self._why_roll(size, max_timestamp, Offset(end - 1), record_count, now_ms):
            self._roll(now_ms)
        epoch = self._epoch if leader_epoch is None else LeaderEpoch(leader_epoch)
        if leader_epoch is not None and self._epochs.assign(epoch, base):
            write_epoch_checkpoint(self._fs, self.directory, self._epochs.entries)
            self._epoch = epoch
        stamp(data, 0, base, epoch)
        segment = self._view.segments.active
        try:
            segment.append(
                data, next_offset=end, max_timestamp=max_timestamp, record_count=record_count
            )
        except OSError as error:
            self._append_failed(segment, error)
        self._end = end
        return base

    def _why_roll(
        self,
        size: int,
        max_timestamp: TimestampMs,
        last_offset: Offset,
        record_count: int,
        now_ms: TimestampMs,
    ) -> RollReason | None:
        return roll_reason(
            self._segment_facts(),
            Incoming(
                size=size,
                max_timestamp=max_timestamp,
                last_offset=last_offset,
                record_count=record_count,
            ),
            self._config,
            now_ms=now_ms,
            jitter_ms=self._jitter_ms,
        )

    def _after_append(self) -> None:
        """Show the batches to readers, where the topic promises no more than that."""
        self._producers.advance_to(self._end)
        self._view.segments.active.flush_index()
        if self._config.durability == "os":
            self._publish(self._end)

    def _append_failed(self, segment: Segment, error: OSError) -> None:
        error.add_note(f"while appending to {self.name}")
        self._undo(segment)
        if error.errno in FULL_DISK_ERRNOS:
            raise DiskFullError(self.name) from error
        raise error

    def _undo(self, segment: Segment) -> None:
        """A write failed: cut off what of it is in the file, or stop for good."""
        try:
            segment.repair()
        except OSError as error:
            self._fail(f"a write failed and could not be undone: {error}")

    def close(self) -> None:
        """Sync everything and let go; a restart then re-reads nothing. Safe to repeat.

        A log that failed is let go as it is: its files decide at the next start.
        """
        if self._is_closed:
            return
        self.checkpoint()
        with self._sync_lock, self._lock:
            self._is_closed = True
            self._complete_time_index()
            for segment in self._view.segments:
                segment.close()
            self._marks.close()
        with self._progress:
            self._progress.notify_all()
        self._tell_watcher()

    def abandon(self) -> None:
        """Let go as a crash would: nothing is synced or completed. Safe to repeat."""
        with self._sync_lock, self._lock:
            self._is_closed = True
            for segment in self._view.segments:
                segment.close()
            self._marks.close()
        with self._progress:
            self._progress.notify_all()
        self._tell_watcher()

    def _complete_time_index(self) -> None:
        """A log closed in order names its largest timestamp: Kafka trusts that on a clean start."""
        if self._failure is not None:
            return
        active = self._view.segments.active
        try:
            if active.complete_time_index():
                active.sync_index()
        except OSError as error:
            self._fail(f"the time index could not be completed: {error}")


def _duplicate(duplicate: Duplicate) -> AppendedBatch:
    return AppendedBatch(
        base_offset=duplicate.first_offset,
        last_offset=duplicate.last_offset,
        timestamp_ms=duplicate.timestamp,
        is_duplicate=True,
    )


def _facts(header: BatchHeader, base_offset: Offset) -> BatchFacts:
    return BatchFacts(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        first_offset=base_offset,
        last_offset=Offset(base_offset + header.last_offset_delta),
        max_timestamp=header.max_timestamp,
        is_transactional=header.is_transactional,
    )

"""A partition's log, opened for writing: ties the modules here together, holds no policy.

Offsets kept, and who moves them:

    start           first offset still readable; only deletion moves it, only up
    high_watermark  first offset readers may not see; with durability=disk only a sync moves it
    durable         everything below was synced
    end             offset the next record will get; only an append moves it

Invariant: ``start <= high_watermark <= end`` and ``durable <= end``.

Threads: any number append; `_lock` orders them. Syncing takes `_sync_lock` first and holds
`_lock` only to look and to publish, so appends go on while the disk works. Readers take none.
"""

import errno
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from varve.clock import Clock
from varve.errors import (
    DiskFullError,
    InvalidRecordError,
    LogClosedError,
    LogFailedError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnexpectedOffsetError,
)
from varve.format.batch_builder import BatchStyle, build_batch, build_batches
from varve.format.batch_header import BatchHeader, stamp
from varve.format.compression import Codec
from varve.format.file_names import DELETED
from varve.format.record import Header, Record
from varve.log.append_checks import BatchBytes, check_produced_batch, check_timestamp
from varve.log.appended import Appended, AppendedRange
from varve.log.leader_epochs import LeaderEpochs
from varve.log.log_loader import LoadedLog
from varve.log.log_reader import LogReader, LogView
from varve.log.producer_snapshots import (
    finish_marker,
    load_newest,
    remove_snapshot,
    replay,
    snapshot_path,
    write_snapshot,
)
from varve.log.producer_state import AppendOrigin, BatchFacts, MarkerFacts, ProducerStates
from varve.log.roll_policy import (
    Incoming,
    RollReason,
    SegmentFacts,
    draw_jitter_ms,
    due_for_timer_roll,
    roll_reason,
)
from varve.log.segment_list import SegmentList
from varve.log.topic_config import TopicConfig
from varve.quantities import (
    NO_PRODUCER_ID,
    FilePosition,
    LeaderEpoch,
    Offset,
    TimestampMs,
)
from varve.storage.checkpoint_file import write_epoch_checkpoint
from varve.storage.files import FileSystem
from varve.storage.flusher import Syncable
from varve.storage.handle_cache import HandleCache
from varve.storage.high_watermark_file import HighWatermarkFile
from varve.storage.recovery import Damage, find_files, walk_segment
from varve.storage.segment import Segment, SegmentLimits

logger = logging.getLogger(__name__)

_FULL_DISK: frozenset[int] = frozenset({errno.ENOSPC, errno.EDQUOT})


class FlushQueue(Protocol):
    """Who syncs logs that ask for it. See `storage.flusher`."""

    def request(self, log: Syncable) -> None: ...


class LogOwner(Protocol):
    """The log directory, which keeps the checkpoints of all its logs."""

    def save_recovery_points(self) -> None: ...
    def save_log_starts(self) -> None: ...
    def delete_later(self, paths: Sequence[str], delay_ms: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogParts:
    """What a log is made of and works with."""

    topic: str
    partition: int
    directory: str
    config: TopicConfig
    fs: FileSystem
    clock: Clock
    handles: HandleCache
    flusher: FlushQueue
    owner: LogOwner
    marks: HighWatermarkFile
    random: Random


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedBatch:
    """The place a client's batch was given, now or, for a duplicate, when it first came."""

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: TimestampMs
    is_duplicate: bool = False


def segment_limits(config: TopicConfig) -> SegmentLimits:
    return SegmentLimits(
        index_bytes_max=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
    )


def batch_style(config: TopicConfig) -> BatchStyle:
    return BatchStyle(
        bytes_max=min(config.max_message_bytes, config.segment_bytes_effective),
        codec=config.codec or Codec.NONE,
        level=config.compression_level,
        is_log_append_time=config.is_log_append_time,
    )


class PartitionLog(LogReader):
    """One partition, for its one writer process. Readers elsewhere use `ReadOnlyLog`."""

    def __init__(self, parts: LogParts, loaded: LoadedLog) -> None:
        self.topic = parts.topic
        self.partition = parts.partition
        self.directory = parts.directory
        self.damages: list[Damage] = loaded.damages
        self._fs = parts.fs
        self._clock = parts.clock
        self._handles = parts.handles
        self._flusher = parts.flusher
        self._owner = parts.owner
        self._marks = parts.marks
        self._random = parts.random
        self._producers: ProducerStates = loaded.producers
        self._epochs: LeaderEpochs = loaded.epochs
        self._epoch = LeaderEpoch(0)
        self._config = parts.config
        self._style = batch_style(parts.config)
        self._jitter_ms = draw_jitter_ms(parts.config, parts.random)
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._progress = threading.Condition()
        self._failure: LogFailedError | None = None
        self._is_closed = False
        self._end = loaded.end
        self._durable = loaded.end
        self._recovery_point = loaded.end
        self._last_sync_s = parts.clock.monotonic()
        self._unsealed: list[Segment] = []
        self._is_directory_dirty = False
        self._wants_sync = False
        self._waiters = 0
        self._view = LogView(
            segments=loaded.segments, start=loaded.start, high_watermark=loaded.end
        )
        self._has_been_compacted = False
        self._marks.publish(high_watermark=loaded.end, log_start=loaded.start, durable=loaded.end)
        self._start_epoch()

    # --- facts ---------------------------------------------------------------------------------

    def view(self) -> LogView:
        return self._view

    @property
    def end_offset(self) -> Offset:
        """The offset the next record will get."""
        return self._end

    @property
    def durable_offset(self) -> Offset:
        """Everything below was synced to the disk."""
        return self._durable

    @property
    def recovery_point(self) -> Offset:
        """Where re-reading would start after a crash now."""
        return self._recovery_point

    @property
    def last_stable_offset(self) -> Offset:
        """First offset that an open transaction may still undo; the high watermark without one."""
        with self._lock:
            high_watermark = self._view.high_watermark
            unstable = self._producers.first_unstable_offset(high_watermark)
        if unstable is None:
            return high_watermark
        return Offset(max(min(unstable, high_watermark), self._view.start))

    @property
    def config(self) -> TopicConfig:
        return self._config

    @property
    def leader_epochs(self) -> LeaderEpochs:
        return self._epochs

    @property
    def failure(self) -> LogFailedError | None:
        """Why the log takes no appends; None while it does."""
        return self._failure

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def allows_gaps(self) -> bool:
        return self._config.is_compacted or self._has_been_compacted

    def note_compacted(self) -> None:
        """The log was compacted at some time: missing offsets are no damage."""
        self._has_been_compacted = True

    def _bound(self, segment: Segment) -> int:
        return segment.size

    def reconfigure(self, config: TopicConfig) -> None:
        """Go by another configuration from here on."""
        with self._lock:
            self._config = config
            self._style = batch_style(config)

    # --- appending -----------------------------------------------------------------------------

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
        expected_offset: int | None = None,
    ) -> Appended:
        """Append one record; return its place once the topic's durability is reached.

        With `expected_offset` the record is refused unless it would get that offset.
        """
        now_ms = self._clock.now_ms()
        if timestamp_ms is not None:
            check_timestamp(timestamp_ms, self._config, now_ms=now_ms)
        if key is None and self._config.is_compacted:
            raise InvalidRecordError(
                "a compacted topic needs a key", [(0, "a compacted topic needs a key")]
            )
        batch = build_batch([Record(value, key, headers, timestamp_ms)], now_ms, self._style)
        with self._lock:
            self._check_writable()
            offset = self._end
            if expected_offset is not None and expected_offset != offset:
                raise UnexpectedOffsetError(expected=Offset(expected_offset), actual=offset)
            self._write(batch.data, batch.record_count, batch.max_timestamp, now_ms)
            self._after_append()
        self._await_promised(Offset(offset + 1))
        return Appended(self.partition, offset, batch.max_timestamp)

    def append_many(
        self, records: list[Any], *, expected_offset: int | None = None
    ) -> AppendedRange:
        """Append `Record`s or (key, value) pairs in order, all or none of them.

        All become visible at once, when the topic's durability is reached.
        """
        now_ms = self._clock.now_ms()
        self._check_many(records, now_ms)
        with self._lock:
            self._check_writable()
            first = self._end
            if expected_offset is not None and expected_offset != first:
                raise UnexpectedOffsetError(expected=Offset(expected_offset), actual=first)
            try:
                for batch in build_batches(records, now_ms, self._style):
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

    def _check_many(self, records: list[Any], now_ms: TimestampMs) -> None:
        config = self._config
        if config.is_compacted:
            missing = [
                (i, "a compacted topic needs a key")
                for i, r in enumerate(records)
                if (r.key if isinstance(r, Record) else r[0]) is None
            ]
            if missing:
                raise InvalidRecordError(missing[0][1], missing[:100])
        for record in records:
            if type(record) is Record and record.timestamp_ms is not None:
                check_timestamp(record.timestamp_ms, config, now_ms=now_ms)

    def append_batch(
        self, data: BatchBytes, *, leader_epoch: int | None = None, wait: bool = True
    ) -> AppendedBatch:
        """Append one encoded batch from a client, after every check a broker makes.

        A writable `data` is stamped in place and written from there. A batch that an idempotent
        producer sends again is not stored again: the answer is where the first one went.
        """
        now_ms = self._clock.now_ms()
        checked = check_produced_batch(data, self._config, now_ms=now_ms)
        header = checked.header
        with self._lock:
            self._check_writable()
            facts = _facts(header, self._end)
            if header.producer_id != NO_PRODUCER_ID:
                duplicate = self._producers.check(facts, origin=AppendOrigin.CLIENT)
                if duplicate is not None:
                    return AppendedBatch(
                        base_offset=duplicate.first_offset,
                        last_offset=duplicate.last_offset,
                        timestamp_ms=duplicate.timestamp,
                        is_duplicate=True,
                    )
            base = self._write(
                checked.data, header.record_count, header.max_timestamp, now_ms, leader_epoch
            )
            if header.producer_id != NO_PRODUCER_ID:
                self._producers.update(facts)
            end = self._end
            self._after_append()
        if wait:
            self._await_promised(end)
        return AppendedBatch(
            base_offset=base, last_offset=Offset(end - 1), timestamp_ms=header.max_timestamp
        )

    def append_marker(self, data: bytearray | memoryview, marker: MarkerFacts) -> Offset:
        """Append the control batch that ends a transaction; return its offset."""
        now_ms = self._clock.now_ms()
        with self._lock:
            self._check_writable()
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
        self._roll_if_due(size, max_timestamp, Offset(end - 1), record_count, now_ms)
        epoch = self._epoch if leader_epoch is None else LeaderEpoch(leader_epoch)
        if leader_epoch is not None and self._epochs.assign(epoch, base):
            write_epoch_checkpoint(self._fs, self.directory, self._epochs.entries)
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

    def _after_append(self) -> None:
        """Show the batches to readers, where the topic promises no more than that."""
        self._producers.advance_to(self._end)
        self._view.segments.active.flush_index()
        if self._config.durability == "os":
            self._publish(self._end)

    def _append_failed(self, segment: Segment, error: OSError) -> None:
        error.add_note(f"while appending to {self.name}")
        try:
            segment.repair()
        except OSError as second:
            self._fail(f"a write failed and could not be undone: {second}")
        if error.errno in _FULL_DISK:
            raise DiskFullError(self.name) from error
        raise error

    def _take_back(self, offset: Offset) -> None:
        """Undo the batches of an append that failed half-way; none of them was seen."""
        try:
            self._cut(offset)
        except OSError as error:
            self._fail(f"an append failed half-way and could not be undone: {error}")

    # --- durability ------------------------------------------------------------------------------

    def _await_promised(self, end: Offset) -> None:
        """Return once [.., end) has reached the topic's durability."""
        config = self._config
        if config.durability == "os" and end - self._durable < config.flush_messages:
            self._sync_soon()
        else:
            self.await_durable(end)

    def _sync_soon(self) -> None:
        """A segment was sealed: have it synced, off the append path."""
        if self._wants_sync:
            self._wants_sync = False
            self._flusher.request(self)

    def await_durable(self, end: Offset) -> None:
        """Return once everything below `end` is on the disk; raise if that cannot be had."""
        if self._durable >= end:
            return
        self._flusher.request(self)
        with self._progress:
            while self._durable < end and self._failure is None and not self._is_closed:
                self._progress.wait()
        if self._durable >= end:
            return
        raise self._failure or LogClosedError(self.name)

    def sync(self) -> None:
        """Make everything appended so far durable."""
        self._check_open()
        end = self._end
        self.await_durable(end)

    def sync_pending(self) -> None:
        """Called by the flusher: sync what was appended so far. Never raises."""
        with self._sync_lock:
            try:
                self._sync()
            except OSError as error:
                self._fail(f"a sync failed: {error}")

    def _sync(self) -> None:
        """Holds the sync lock. Old segments first, then names, then the active segment."""
        with self._lock:
            if self._failure is not None or self._is_closed:
                return
            end, unsealed = self._end, list(self._unsealed)
            active, is_dirty = self._view.segments.active, self._is_directory_dirty
            self._is_directory_dirty = False
        for segment in unsealed:
            segment.seal()
        if is_dirty:
            self._fs.sync_directory(self.directory)
        active.sync_log()
        with self._lock:
            self._unsealed = [s for s in self._unsealed if s not in unsealed]
            self._durable = min(end, self._end)
            self._last_sync_s = self._clock.monotonic()
            if self._config.durability == "disk":
                self._publish(self._durable)
            else:
                self._marks.publish(durable=self._durable)
        with self._progress:
            self._progress.notify_all()

    def flush_if_due(self) -> None:
        """By the housekeeping: honour `flush.ms`."""
        age_ms = (self._clock.monotonic() - self._last_sync_s) * 1000
        if self._durable < self._end and age_ms >= self._config.flush_ms:
            self._flusher.request(self)

    def checkpoint(self) -> bool:
        """Move the recovery point up to what is durable; True when that is news.

        Indexes and producer state are synced with it: recovery starts there and nowhere else.
        """
        with self._sync_lock:
            if self._failure is not None or self._is_closed:
                return False
            if self._recovery_point == self._end and self._durable == self._end:
                return False
            try:
                self._sync()
                return self._checkpoint()
            except OSError as error:
                self._fail(f"a checkpoint failed: {error}")
                return False

    def _checkpoint(self) -> bool:
        with self._lock:
            point, active = self._durable, self._view.segments.active
            snapshot = None
            if self._producers.map_end_offset == point and self._producers.needs_snapshot:
                snapshot = write_snapshot(self._fs, self.directory, self._producers, sync=False)
        active.sync_index()
        if snapshot is not None:
            file = self._fs.open_write(snapshot)
            file.sync()
            file.close()
            self._drop_stray_snapshots(keep=point)
        self._fs.sync_directory(self.directory)
        self._recovery_point = point
        return True

    def _drop_stray_snapshots(self, keep: Offset) -> None:
        bases = {segment.base_offset for segment in self._view.segments}
        for offset in find_files(self._fs, self.directory).snapshots:
            if offset != keep and offset not in bases:
                remove_snapshot(self._fs, self.directory, offset)

    def _publish(self, high_watermark: Offset) -> None:
        """Holds the lock. Let readers here and elsewhere see up to `high_watermark`."""
        view = self._view
        assert view.start <= high_watermark <= self._end, (view, high_watermark, self._end)
        self._view = LogView(
            segments=view.segments, start=view.start, high_watermark=high_watermark
        )
        self._marks.publish(high_watermark=high_watermark, durable=self._durable)
        if self._waiters:
            with self._progress:
                self._progress.notify_all()

    def wait_beyond(self, offset: Offset, timeout_s: float | None) -> bool:
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        with self._progress:
            self._waiters += 1
            try:
                while self._view.high_watermark <= offset and not self._is_closed:
                    left = None if deadline is None else deadline - self._clock.monotonic()
                    if left is not None and left <= 0:
                        return False
                    self._progress.wait(left)
            finally:
                self._waiters -= 1
        return not self._is_closed

    def _fail(self, reason: str) -> None:
        """Stop acknowledging for good: what was written last may or may not be on the disk."""
        if self._failure is None:
            logger.error("%s: %s", self.name, reason)
            self._failure = LogFailedError(self.name, reason)
        with self._progress:
            self._progress.notify_all()

    # --- rolling ---------------------------------------------------------------------------------

    def roll(self) -> Offset:
        """Seal the active segment now, if it holds anything; return the active base offset."""
        with self._lock:
            self._check_writable()
            if self._view.segments.active.size:
                self._roll(self._clock.now_ms())
        self._sync_soon()
        return self._view.segments.active.base_offset

    def roll_if_due(self) -> bool:
        """By the housekeeping: a segment that is old enough is sealed without an append."""
        with self._lock:
            if self._is_closed or self._failure is not None:
                return False
            now_ms = self._clock.now_ms()
            facts = self._segment_facts()
            if not due_for_timer_roll(
                facts, self._config, now_ms=now_ms, jitter_ms=self._jitter_ms
            ):
                return False
            self._roll(now_ms)
        self._sync_soon()
        return True

    def _segment_facts(self) -> SegmentFacts:
        segment = self._view.segments.active
        return SegmentFacts(
            base_offset=segment.base_offset,
            size=segment.size,
            record_count=segment.record_count,
            first_batch_timestamp=segment.first_batch_timestamp,
            created_ms=segment.created_ms,
            index_full=segment.is_index_full,
        )

    def _roll_if_due(
        self,
        size: int,
        max_timestamp: TimestampMs,
        last_offset: Offset,
        record_count: int,
        now_ms: TimestampMs,
    ) -> RollReason | None:
        reason = roll_reason(
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
        if reason is not None:
            self._roll(now_ms)
        return reason

    def _roll(self, now_ms: TimestampMs) -> None:
        """Holds the lock. The new segment's files come first: if they cannot be had, nothing changed."""
        segments = self._view.segments
        old = segments.active
        if old.base_offset == self._end:
            return
        try:
            new = Segment.create(
                self._fs,
                self.directory,
                self._end,
                handles=self._handles,
                limits=segment_limits(self._config),
                now_ms=now_ms,
            )
        except OSError as error:
            error.add_note(f"while starting a segment of {self.name}")
            if error.errno in _FULL_DISK:
                raise DiskFullError(self.name) from error
            raise
        old.freeze()
        self._is_directory_dirty = True
        self._unsealed.append(old)
        self._jitter_ms = draw_jitter_ms(self._config, self._random)
        self._replace_view(segments=segments.plus(new))
        self._producers.advance_to(self._end)
        try:
            write_snapshot(self._fs, self.directory, self._producers, sync=False)
        except OSError as error:
            # Derived: without it a restart replays a little more.
            logger.warning("%s: no producer snapshot at %d: %s", self.name, self._end, error)
        self._wants_sync = True

    def _replace_view(
        self, *, segments: SegmentList | None = None, start: Offset | None = None
    ) -> None:
        view = self._view
        self._view = LogView(
            segments=view.segments if segments is None else segments,
            start=view.start if start is None else start,
            high_watermark=view.high_watermark,
        )

    # --- cutting -----------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Throw away everything from `offset` on; the batch that holds it goes whole.

        The marks that vouch for it go first: a crash in between leaves a longer log, never one
        that claims what it lost.
        """
        with self._sync_lock, self._lock:
            self._check_writable()
            if offset < self._view.start:
                raise OffsetOutOfRangeError(Offset(offset), start=self._view.start, end=self._end)
            if offset < self._end:
                self._lower_marks(Offset(offset))
            if self._epochs.truncate_from_end(Offset(offset)):
                write_epoch_checkpoint(self._fs, self.directory, self._epochs.entries)
            if offset < self._end:
                self._cut(Offset(offset))
                self._reload_producers()
        self._owner.save_recovery_points()

    def _lower_marks(self, offset: Offset) -> None:
        point = min(self._recovery_point, self._view.segments.active.base_offset, offset)
        index = self._view.segments.floor(Offset(point))
        self._recovery_point = min(point, self._view.segments[max(index, 0)].base_offset)
        self._durable = min(self._durable, offset)
        high_watermark = min(self._view.high_watermark, offset)
        self._view = LogView(
            segments=self._view.segments, start=self._view.start, high_watermark=high_watermark
        )
        self._marks.publish(high_watermark=high_watermark, durable=self._durable)
        self._marks.sync()
        self._owner.save_recovery_points()

    def _cut(self, offset: Offset) -> None:
        """Holds the lock. Later segments go first, then the tail of the one that holds `offset`."""
        segments = self._view.segments
        index = max(segments.floor(offset), 0)
        for segment in list(segments)[index + 1 :]:
            self._unsealed = [s for s in self._unsealed if s is not segment]
            self._owner.delete_later(segment.mark_deleted(), 0)
            remove_snapshot(self._fs, self.directory, segment.base_offset)
        segment = segments[index]
        if not segment.is_active:
            segment = self._reopen(segment)
        reader = segment.reader()
        position = reader.locate(offset, segment.hint(offset))
        if position is not None:
            end = self._offset_at(segment, position)
            segment.truncate_to(position, end)
            self._rewalk(segment)
        segment.sync_log()
        self._fs.sync_directory(self.directory)
        self._end = segment.next_offset
        self._durable = min(self._durable, self._end)
        self._view = LogView(
            segments=segments.before(index).plus(segment),
            start=self._view.start,
            high_watermark=Offset(min(self._view.high_watermark, self._end)),
        )
        self._marks.publish(high_watermark=self._view.high_watermark, durable=self._durable)

    def _offset_at(self, segment: Segment, position: FilePosition) -> Offset:
        header = segment.file().read_at(position, 8)
        return Offset(int.from_bytes(header, "big"))

    def _reopen(self, segment: Segment) -> Segment:
        """A sealed segment becomes the active one again."""
        again = Segment.open_sealed(
            self._fs,
            self.directory,
            segment.base_offset,
            size=segment.size,
            next_offset=segment.next_offset,
            handles=self._handles,
            limits=segment_limits(self._config),
        )
        if segment in self._unsealed:
            segment.seal()
            self._unsealed.remove(segment)
        again.activate(now_ms=self._clock.now_ms())
        self._rewalk(again)
        return again

    def _rewalk(self, segment: Segment) -> None:
        walk_segment(segment, segment.next_offset, lambda _decoder, _first, _stop: None)

    def _reload_producers(self) -> None:
        snapshots = find_files(self._fs, self.directory).snapshots
        self._producers = load_newest(
            self._fs,
            self.directory,
            snapshots,
            log_start=self._view.start,
            log_end=self._end,
            now_ms=self._clock.now_ms(),
        )
        replay(self._producers, self._view.segments, self._end)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Throw everything away; the log goes on, empty, at `offset`."""
        with self._sync_lock, self._lock:
            self._check_writable()
            old = self._view.segments
            new_offset = Offset(offset)
            self._recovery_point = self._durable = Offset(0)
            self._marks.publish(high_watermark=new_offset, log_start=new_offset, durable=Offset(0))
            self._owner.save_recovery_points()
            for segment in old:
                self._owner.delete_later(segment.mark_deleted(), 0)
                remove_snapshot(self._fs, self.directory, segment.base_offset)
            self._unsealed = []
            new = Segment.create(
                self._fs,
                self.directory,
                new_offset,
                handles=self._handles,
                limits=segment_limits(self._config),
                now_ms=self._clock.now_ms(),
            )
            self._fs.sync_directory(self.directory)
            self._end = self._durable = self._recovery_point = new_offset
            self._view = LogView(
                segments=SegmentList([new]), start=new_offset, high_watermark=new_offset
            )
            self._producers.reset(new_offset)
            self._epochs.clear()
            write_epoch_checkpoint(self._fs, self.directory, self._epochs.entries)
            self._marks.publish(durable=new_offset)
        self._owner.save_log_starts()
        self._owner.save_recovery_points()

    def delete_before(self, offset: int) -> Offset:
        """Make offsets below `offset` unreadable and remove segments that hold nothing else.

        Returns the new start. Durable on return: what was deleted does not come back.
        """
        with self._sync_lock:
            with self._lock:
                self._check_writable()
                view = self._view
                if not 0 <= offset <= view.high_watermark:
                    raise OffsetOutOfRangeError(
                        Offset(offset), start=view.start, end=view.high_watermark
                    )
                if offset <= view.start:
                    return view.start
                self._replace_view(start=Offset(offset))
                self._marks.publish(log_start=Offset(offset))
                if self._epochs.truncate_from_start(Offset(offset)):
                    write_epoch_checkpoint(self._fs, self.directory, self._epochs.entries)
            self._owner.save_log_starts()
            self.drop_deleted_segments()
        return self._view.start

    def drop_deleted_segments(self) -> int:
        """Remove segments that lie wholly below the start; return their bytes."""
        with self._lock:
            segments, start = self._view.segments, self._view.start
            count = 0
            while count + 1 < len(segments) and segments[count + 1].base_offset <= start:
                count += 1
            if not count:
                return 0
            gone = list(segments)[:count]
            self._unsealed = [s for s in self._unsealed if s not in gone]
            self._replace_view(segments=segments.behind(count))
            self._producers.move_log_start(start)
            for segment in gone:
                paths = segment.mark_deleted()
                snapshot = snapshot_path(self.directory, segment.base_offset)
                if self._fs.exists(snapshot):
                    self._fs.rename(snapshot, snapshot + DELETED)
                    paths.append(snapshot + DELETED)
                self._owner.delete_later(paths, self._config.file_delete_delay_ms)
            return sum(segment.size for segment in gone)

    # --- leader epochs -------------------------------------------------------------------------------

    def _start_epoch(self) -> None:
        """This process writes on in the epoch the log was left in, 0 for a new one."""
        latest = self._epochs.latest
        self._epoch = LeaderEpoch(0) if latest is None else latest.epoch
        if self._epochs.assign(self._epoch, self._end):
            write_epoch_checkpoint(self._fs, self.directory, self._epochs.entries)

    # --- closing -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Sync everything and let go; a restart then re-reads nothing. Safe to repeat.

        A log that failed is let go as it is: its files decide at the next start.
        """
        if self._is_closed:
            return
        self.checkpoint()
        with self._sync_lock, self._lock:
            self._is_closed = True
            for segment in self._view.segments:
                segment.close()
            self._marks.close()
        with self._progress:
            self._progress.notify_all()

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosedError(self.name)

    def _check_writable(self) -> None:
        if self._is_closed:
            raise LogClosedError(self.name)
        if self._failure is not None:
            raise self._failure


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

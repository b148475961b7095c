"""A log's state and how it becomes durable: what is written, visible, synced.

Offsets kept, and who moves them:

    start           first offset still readable; only deletion moves it, only up
    high_watermark  first offset readers may not see; with durability=disk only a sync moves it
    durable         everything below was synced
    end             offset the next record will get; only an append moves it
    held_from       while a publication is under way, where its batches begin: not shown yet

Invariant: ``start <= high_watermark <= end`` and ``durable <= end``; readers here and elsewhere
see nothing from ``held_from`` on.

Threads: any number append; `_lock` orders them. Syncing takes `_sync_lock` first and holds
`_lock` only to look and to publish, so appends go on while the disk works. Readers take none.
Where both are needed, `_sync_lock` comes first.
"""

import errno
import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Final, Protocol

from cordwood.clock import Clock
from cordwood.errors import (
    CorruptSegmentError,
    DiskFullError,
    FormatError,
    LogClosedError,
    LogFailedError,
    LogHeldError,
    StorageError,
)
from cordwood.format.index_entry import AbortedTransaction
from cordwood.log.partition.group_commit import CommitQueue, PendingAppend
from cordwood.log.partition.log_loader import LoadedLog
from cordwood.log.partition.producer_snapshots import remove_snapshot, sync_snapshot, write_snapshot
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchiveJoin
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.log_source import LogView
from cordwood.log.reading.segment_list import SegmentList
from cordwood.log.rules.duration_histogram import SharedHistogram
from cordwood.log.rules.leader_epochs import LeaderEpochs
from cordwood.log.rules.producer_state import ProducerStates
from cordwood.log.rules.roll_policy import SegmentFacts, draw_jitter_ms, due_for_timer_roll
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import LeaderEpoch, Offset, ProducerId, TimestampMs
from cordwood.storage.checkpoint_file import write_epoch_checkpoint
from cordwood.storage.files import FileSystem
from cordwood.storage.flusher import Syncable
from cordwood.storage.handle_cache import HandleCache
from cordwood.storage.high_watermark_file import HighWatermarkFile
from cordwood.storage.recovery import Damage, find_files, rebuild_indexes
from cordwood.storage.segment import Segment, SegmentLimits

logger = logging.getLogger(__name__)

FULL_DISK_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class FlushQueue(Protocol):
    """Who syncs logs that ask for it. See `storage.flusher`."""

    def request(self, log: Syncable) -> None: ...


class LogOwner(Protocol):
    """The log directory, which keeps the checkpoints of all its logs."""

    @property
    def free_bytes_short_of(self) -> int:
        """How many free bytes the disk should have and has not; 0 while there are enough."""
        ...

    def save_recovery_points(self) -> None: ...
    def save_log_starts(self) -> None: ...
    def save_cleaned(self) -> None: ...
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
    sync_times: SharedHistogram
    held_from: Offset | None = None


def segment_limits(config: TopicConfig, *, allows_gaps: bool) -> SegmentLimits:
    return SegmentLimits(
        index_bytes_max=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        is_dense=not allows_gaps,
    )


class DurableLog(LogReader):
    """The state of a log for its one writer process, and its way to the disk.

    `PartitionLog` adds appending, `CuttableLog` taking away.
    """

    def __init__(self, parts: LogParts, loaded: LoadedLog) -> None:
        super().__init__(parts.topic, parts.partition, self)
        self.directory = parts.directory
        self.damages: list[Damage] = [
            damage
            for damage in loaded.damages  # what is held was promised to nobody, and is cut
            if parts.held_from is None or damage.first_offset < parts.held_from
        ]
        self._fs = parts.fs
        self._clock = parts.clock
        self._handles = parts.handles
        self._flusher = parts.flusher
        self._owner = parts.owner
        self._marks = parts.marks
        self._random = parts.random
        self._sync_times = parts.sync_times
        self._producers: ProducerStates = loaded.producers
        self._epochs: LeaderEpochs = loaded.epochs
        self._epoch = LeaderEpoch(0)
        self._config = parts.config
        self._jitter_ms = draw_jitter_ms(parts.config, parts.random)
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._turn = threading.Condition(self._lock)  # to append, once nothing is held
        self._held_from = parts.held_from
        self._progress = threading.Condition()
        self._commits = CommitQueue()
        self._failure: LogFailedError | None = None
        self._is_closed = False
        self._end = loaded.end
        self._durable = loaded.durable
        self._recovery_point = loaded.recovery_point
        self._last_sync_s = parts.clock.monotonic()
        self._unsealed: list[Segment] = list(loaded.unsealed)
        self._unindexable: set[int] = set()  # by id: segments that no key index can be made of
        self._unsynced_snapshots: list[str] = []
        self._is_directory_dirty = bool(loaded.unsealed)
        self._wants_sync = bool(loaded.unsealed)
        self._waiters = 0
        self._watcher: Callable[[], None] | None = None
        shown = Offset(max(self._shown(loaded.end), loaded.start))
        self._view = LogView(segments=loaded.segments, start=loaded.start, high_watermark=shown)
        self._cleaned_up_to: Offset | None = None
        self._cut_count = 0
        self._archive: ArchiveJoin | None = None
        self._marks.publish(
            high_watermark=shown, log_start=loaded.start, durable=self._shown(loaded.durable)
        )
        self._start_epoch()

    # --- facts -------------------------------------------------------------------------------

    def view(self) -> LogView:
        """The whole log: what only the archive has, then the local segments."""
        archive = self._archive
        return self._view if archive is None else archive.over(self._view)

    def attach_archive(self, source: ArchivedSegments | None) -> None:
        """Read what `source` holds as the beginning of this log; None: nothing from here on."""
        self._archive = None if source is None else ArchiveJoin(source)

    @property
    def local_view(self) -> LogView:
        """The part of the log that lies in its own directory."""
        return self._view

    @property
    def local_start_offset(self) -> Offset:
        """The first offset held in the log's own directory."""
        return self._view.start

    @property
    def high_watermark(self) -> Offset:
        """First offset readers may not see. No archive has a say in it."""
        return self._view.high_watermark

    @property
    def known_start_offset(self) -> Offset:
        """As `start_offset`, for those who cannot wait for an archive that does not answer."""
        try:
            return self.view().start
        except (OSError, StorageError) as error:
            logger.warning("%s: where its archive starts is not known: %s", self.name, error)
            return self._view.start

    @property
    def archived_up_to(self) -> Offset | None:
        """Local copies of segments that end here or before may go; None without an archive."""
        archive = self._archive
        if archive is None:
            return None
        try:
            return archive.source.state().end
        except (OSError, StorageError) as error:
            logger.warning("%s: what is archived is not known: %s", self.name, error)
            return Offset(0)

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
    def leader_epoch(self) -> LeaderEpoch:
        """The epoch that is written in now."""
        return self._epoch

    def largest_producer_id(self, *, below: int) -> ProducerId:
        """Of the producers whose batches are remembered; NO_PRODUCER_ID without any."""
        with self._lock:
            return self._producers.largest_producer_id(below=below)

    @property
    def failure(self) -> LogFailedError | None:
        """Why the log takes no appends; None while it does."""
        return self._failure

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def allows_gaps(self) -> bool:
        return self._config.is_compacted or self._cleaned_up_to is not None

    @property
    def cleaned_up_to(self) -> Offset | None:
        """How far the log was compacted; None: never."""
        return self._cleaned_up_to

    @property
    def compacted_up_to(self) -> Offset | None:
        return self._cleaned_up_to if self._config.is_compacted else None

    def note_compacted(self, up_to: Offset) -> None:
        """The log was compacted at some time: missing offsets are no damage."""
        self._cleaned_up_to = up_to

    def _note_cut(self, offset: Offset) -> None:
        """Holds the locks. Offsets from `offset` on are about to be given anew."""
        self._cut_count += 1
        if self._cleaned_up_to is not None and self._cleaned_up_to > offset:
            self._cleaned_up_to = offset
            self._owner.save_cleaned()

    def readable_bytes(self, segment: Segment) -> int:
        return segment.size

    def largest_timestamp(self, segment: Segment) -> tuple[TimestampMs, Offset]:
        return segment.largest_timestamp

    def aborted_transactions(self, start: Offset, stop: Offset) -> list[AbortedTransaction]:
        return self.view().segments.aborted_transactions(start, stop)

    def refresh(self) -> None:
        """This process makes the changes to the files; those of the archive it has to look up."""
        if self._archive is not None:
            self._archive.source.refresh()

    # --- durability --------------------------------------------------------------------------

    def _await_promised(self, end: Offset) -> None:
        """Return once [.., end) has reached the topic's durability."""
        config = self._config
        if config.durability == "os" and end - self._durable < config.flush_messages:
            self._sync_soon()
        else:
            self.await_durable(end)

    def has_promised(self, end: Offset) -> bool:
        """Whether [.., end) has reached the topic's durability, without waiting for it.

        If not, it needs a sync: `begin_sync` or `request_sync`. Whoever watches is told when it
        is done, see `watch`.
        """
        config = self._config
        if self._durable >= end:
            return True
        if config.durability == "os" and end - self._durable < config.flush_messages:
            self._sync_soon()
            return True
        return False

    def request_sync(self) -> None:
        """Have everything appended so far synced soon, by the flusher. Returns at once."""
        self._flusher.request(self)

    def watch(self, watcher: Callable[[], None] | None) -> None:
        """Have `watcher` called when the high watermark moves, a sync ends, or the log does.

        It is called from whichever thread that happens in, with locks held: it must return at
        once and ask nothing of this log.
        """
        self._watcher = watcher

    def _tell_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher()

    def _sync_soon(self) -> None:
        """A segment was sealed: have it synced, off the append path."""
        if self._wants_sync:
            self._wants_sync = False
            self._flusher.request(self)

    def await_durable(self, end: Offset) -> None:
        """Return once everything below `end` is on the disk; raise if that cannot be had."""
        if self._durable < end:
            now_ms = self._clock.now_ms()
            self._commits.commit(PendingAppend(None, 0, now_ms, now_ms, None), self._serve)
        if self._durable < end:
            raise self._failure or LogClosedError(self.name)

    def _serve(self, group: list[PendingAppend]) -> None:
        """Leading a group commit: give the batches their places, then sync once."""
        with self._sync_lock:
            with self._lock:
                self._place(group)
            try:
                self._sync()
            except OSError as error:
                self._fail(f"a sync failed: {error}")
        for item in group:
            if item.error is None and item.data is not None:
                item.error = self._failure

    @abstractmethod
    def _place(self, group: list[PendingAppend]) -> None:
        """Holds the lock. Write what has data; an error goes to the item it concerns."""

    def sync(self) -> None:
        """Make everything appended so far durable."""
        self._check_open()
        end = self._end
        self.await_durable(end)

    def sync_pending(self) -> None:
        """Called by the flusher: sync what was appended so far. Never raises."""
        if self._held_from is not None:
            return  # its publication syncs all there is; other logs need not wait for that
        with self._sync_lock:
            try:
                self._sync()
            except OSError as error:
                self._fail(f"a sync failed: {error}")

    def begin_sync(self) -> "SyncUnderWay | None":
        """Begin a sync whose waiting is done elsewhere: see `SyncUnderWay`.

        None when there is more to be done than to sync one file, or someone is at it: then
        `request_sync` is the way.
        """
        if not self._sync_lock.acquire(blocking=False):
            return None
        with self._lock:
            is_plain = not (
                self._unsealed
                or self._is_directory_dirty
                or self._unsynced_snapshots
                or self._held_from is not None
            )
            if is_plain and self._failure is None and not self._is_closed:
                return SyncUnderWay(self, self._view.segments.active, self._end)
        self._sync_lock.release()
        return None

    def finish_sync(self, end: Offset, took_s: float, error: OSError | None) -> None:
        """By `SyncUnderWay`, which holds the sync lock for us."""
        try:
            if error is not None:
                self._fail(f"a sync failed: {error}")
                return
            with self._lock:
                if self._failure is None and not self._is_closed:
                    self._note_synced(end, took_s)
        finally:
            self._sync_lock.release()

    def _note_synced(self, end: Offset, took_s: float) -> None:
        """Holds the lock. Everything below `end` is on the disk."""
        self._durable = min(end, self._end)
        self._last_sync_s = self._clock.monotonic()
        self._sync_times.observe(took_s)
        if self._config.durability == "disk":
            self._publish(self._durable)
        else:
            self._marks.publish(durable=self._shown(self._durable))
            self._tell_watcher()

    def _sync(self) -> None:
        """Holds the sync lock. Old segments first, then names, then the active segment."""
        with self._lock:
            if self._failure is not None or self._is_closed:
                return
            end, unsealed = self._end, list(self._unsealed)
            active, is_dirty = self._view.segments.active, self._is_directory_dirty
            snapshots, self._unsynced_snapshots = self._unsynced_snapshots, []
            self._is_directory_dirty = False
        started_s = self._clock.monotonic()
        for segment in unsealed:
            segment.seal()
            if segment.needs_new_indexes:
                rebuild_indexes(segment)
        for path in snapshots:
            sync_snapshot(self._fs, path)
        if is_dirty:
            self._fs.sync_directory(self.directory)
        active.sync_log()
        with self._lock:
            self._unsealed = [
                segment
                for segment in self._unsealed
                if segment not in unsealed or segment.needs_new_indexes
            ]
            self._note_synced(end, self._clock.monotonic() - started_s)

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
            is_synced = self._recovery_point == self._durable == self._end
            if is_synced and not self._producers.needs_snapshot:
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
            sync_snapshot(self._fs, snapshot)
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
        high_watermark = self._shown(high_watermark)
        assert view.start <= high_watermark <= self._end, (view, high_watermark, self._end)
        self._view = LogView(
            segments=view.segments, start=view.start, high_watermark=high_watermark
        )
        self._marks.publish(high_watermark=high_watermark, durable=self._shown(self._durable))
        if self._waiters:
            with self._progress:
                self._progress.notify_all()
        self._tell_watcher()

    def _shown(self, offset: Offset) -> Offset:
        """`offset`, as far as a publication that is under way lets anyone know of it."""
        return offset if self._held_from is None else min(offset, self._held_from)

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
        self._tell_watcher()

    # --- rolling -----------------------------------------------------------------------------

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

    def _roll(self, now_ms: TimestampMs) -> None:
        """Holds the lock. New files come first: if they cannot be had, nothing has changed."""
        segments = self._view.segments
        old = segments.active
        if old.base_offset == self._end:
            return
        try:
            new = self._new_segment(self._end, now_ms)
        except OSError as error:
            error.add_note(f"while starting a segment of {self.name}")
            if error.errno in FULL_DISK_ERRNOS:
                raise DiskFullError(self.name) from error
            raise
        old.freeze()
        self._is_directory_dirty = True
        self._unsealed.append(old)
        self._jitter_ms = draw_jitter_ms(self._config, self._random)
        self._replace_view(segments=segments.plus(new))
        self._producers.advance_to(self._end)
        try:
            # In this order: readers elsewhere take a snapshot to mean that what was aborted
            # before it is in the indexes.
            old.transaction_index.flush()
            snapshot = write_snapshot(self._fs, self.directory, self._producers, sync=False)
            self._unsynced_snapshots.append(snapshot)
        except OSError as error:
            # Derived: without it a restart replays a little more.
            logger.warning("%s: no producer snapshot at %d: %s", self.name, self._end, error)
        self._wants_sync = True

    def _new_segment(self, base_offset: Offset, now_ms: TimestampMs) -> Segment:
        return Segment.create(
            self._fs,
            self.directory,
            base_offset,
            handles=self._handles,
            limits=segment_limits(self._config, allows_gaps=self.allows_gaps),
            now_ms=now_ms,
        )

    def _replace_view(
        self, *, segments: SegmentList | None = None, start: Offset | None = None
    ) -> None:
        view = self._view
        self._view = LogView(
            segments=view.segments if segments is None else segments,
            start=view.start if start is None else start,
            high_watermark=view.high_watermark,
        )

    def _start_epoch(self) -> None:
        """This process writes on in the epoch the log was left in, 0 for a new one."""
        latest = self._epochs.latest
        self._epoch = LeaderEpoch(0) if latest is None else latest.epoch
        if self._epochs.assign(self._epoch, self._end):
            write_epoch_checkpoint(self._fs, self.directory, self._epochs.entries)

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosedError(self.name)

    def _check_writable(self) -> None:
        if self._is_closed:
            raise LogClosedError(self.name)
        if self._failure is not None:
            raise self._failure

    def _check_appendable(self, *, wait: bool = True) -> None:
        """As `_check_turn`, and there is room: the last bytes are for deleting with."""
        self._check_turn(wait=wait)
        short_of = self._owner.free_bytes_short_of
        if short_of:
            raise DiskFullError(self.name, free_bytes_min=short_of)

    def _check_turn(self, *, wait: bool = True) -> None:
        """As `_check_writable`, and no publication is under way.

        Waits for it to end, letting go of the lock meanwhile; without `wait`, refuses.
        """
        self._check_writable()
        while self._held_from is not None:
            if not wait:
                raise LogHeldError(self.name)
            self._turn.wait()
            self._check_writable()

    def sync_marks(self) -> bool:
        """By the housekeeping: make the published marks durable; True when that was needed.

        After a power cut they say what was promised; the younger they are, the less has to be
        taken on trust.
        """
        if self._is_closed or not self._marks.is_unsynced:
            return False
        self._marks.sync()
        return True

    def expire_producers(self, now_ms: TimestampMs) -> int:
        """By the housekeeping: forget producers that have been silent for long."""
        with self._lock:
            return self._producers.expire(now_ms)

    # --- key indexes -------------------------------------------------------------------------

    def remembers_keys(self, view: LogView) -> bool:
        return self._config.key_index

    def index_keys(self, should_stop: Callable[[], bool] = lambda: False) -> int:
        """By the housekeeping: make the key indexes that are missing; return how many.

        Off the append path, one segment at a time; a segment that cannot be read whole stays
        without, and is read when a key is looked for.
        """
        built = 0
        if not self._config.key_index:
            return built
        view, unsealed = self._view, list(self._unsealed)
        for segment in view.segments:
            if segment is view.segments.active or segment in unsealed or should_stop():
                break
            if id(segment) in self._unindexable or segment.key_index.is_usable(segment.size):
                continue
            try:
                segment.build_key_index()
                built += 1
            except FileNotFoundError:
                continue  # deleted or replaced meanwhile
            except (CorruptSegmentError, FormatError) as error:
                logger.warning("%s gets no key index: %s", segment.name, error)
                self._unindexable.add(id(segment))
            if segment not in list(self._view.segments):
                segment.key_index.remove()
        return built


class SyncUnderWay:
    """A sync in three parts, so that only the waiting is done elsewhere.

    Whoever got it from `begin_sync` has `wait` called by any thread, or has the kernel sync
    `descriptor`, and then calls `finish`, always: until then nobody else can sync the log.
    """

    __slots__ = ("_log", "_segment", "_started_s", "end")

    def __init__(self, log: DurableLog, segment: Segment, end: Offset) -> None:
        self._log = log
        self._segment = segment
        self._started_s = perf_counter()
        self.end = end

    @property
    def descriptor(self) -> int | None:
        """What the kernel may sync by itself; None: it takes `wait`."""
        return self._segment.sync_descriptor

    def wait(self) -> OSError | None:
        """Wait for the disk; return what went wrong."""
        try:
            self._segment.sync_log()
        except OSError as error:
            return error
        return None

    def finish(self, error: OSError | None) -> None:
        """Say what is durable now, unless the sync failed, and let others sync."""
        self._log.finish_sync(self.end, perf_counter() - self._started_s, error)

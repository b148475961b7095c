"""The one place that changes the state of a log.

Locks, in the order they are taken:

    sync_lock   held while files change or are synced: a sync, a truncation, a replacement of
                segments, a publication from its beginning to its end
    lock        held while a batch is written and for every change of the state; short

Appending takes `lock` alone, so appends continue while the disk works. Readers take no lock: they
read `state` once and work on that value.

An interrupt may end a change anywhere. Whoever changes files and the state together says so in
`half_done`, puts things right when an exception comes, and clears it at the end. If even that was
interrupted, the next one who takes the lock finds it set, and the log fails: reopening recovers.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from cordwood.errors import (
    LogClosedError,
    LogFailedError,
    LogHeldError,
    NotLeaderError,
    ReplicatedLogError,
    RoleChangedError,
)
from cordwood.format.small_files.segment_manifest import Hole, SegmentManifest
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.log_state import LogState, UnsyncedFiles
from cordwood.log.reading.missing_segments import gaps_end
from cordwood.log.rules.fork_refusal import refuse_after_fork
from cordwood.log.rules.interruption import insist
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import NO_LEADER_EPOCH, LeaderEpoch, Offset
from cordwood.storage.small_files.segment_manifest_file import write_manifest

logger = logging.getLogger(__name__)


class StateHolder:
    """Holds the state and the configuration of one log. Owned by its `PartitionLog`.

    Anyone may read `state` and `config`, at any time; each is replaced, never edited.
    """

    def __init__(
        self,
        parts: LogParts,
        state: LogState,
        *,
        manifest: SegmentManifest | None = None,
        holes: Sequence[Hole] = (),
    ) -> None:
        self.name = parts.name
        self.config: TopicConfig = parts.config
        # Not a plain lock: an interrupted `_turn.wait` must not release what another thread holds.
        self.lock = threading.RLock()
        self.half_done: str | None = None
        self.sync_lock = threading.Lock()
        self.is_sole = parts.role.is_sole
        self.is_led = self.is_sole  # whether this process may append; changed under `lock`
        self.role_epoch = NO_LEADER_EPOCH  # of the last role that a cluster gave; likewise
        self.health = parts.owner.health
        self._clock = parts.clock
        self._fs = parts.fs
        self._directory = parts.directory
        self._marks = parts.marks
        self._turn = threading.Condition(self.lock)  # to append, when no publication is under way
        self._progress = threading.Condition()  # what readers wait for
        self._waiters = 0
        self._watcher: Callable[[], None] | None = None
        self._listeners: tuple[Callable[[], None], ...] = ()
        self.state = state
        # Whether the state lets anyone append; False when in doubt.
        self.is_free = state.is_writable and state.held_from is None
        self.manifest = manifest  # as it is on the disk; changed under `sync_lock`
        self.holes = holes
        self._announce()
        refuse_after_fork(self, parts.name)

    @property
    def allows_gaps(self) -> bool:
        """Whether missing offsets are the work of compaction rather than damage."""
        return self.config.is_compacted or self.state.cleaned_up_to is not None

    @property
    def gaps_below(self) -> Offset:
        """From this offset on, a missing offset is damage."""
        return gaps_end(self.manifest, was_compacted=self.state.cleaned_up_to is not None)

    def write_manifest(self, manifest: SegmentManifest) -> None:
        """Replace the segment manifest, durably. Holds `sync_lock`."""
        write_manifest(self._fs, self._directory, manifest)
        self.manifest = manifest

    # --- changing ----------------------------------------------------------------------------

    def commit(self, new: LogState) -> None:
        """Replace the state. Holds `lock`.

        Publishes the marks for readers in other processes and wakes everyone who waits, if
        anything changed for them.
        """
        old = self.state
        high_watermark, end, durable = new[:3]
        start, held_from, failure, is_closed = new.start, new.held_from, new.failure, new.is_closed
        assert start <= high_watermark <= end, new
        assert new.recovery_point <= durable <= end, new
        self.is_free = False  # first: an interrupt may come at any place
        self.state = new
        self.is_free = failure is None and held_from is None and not is_closed
        try:
            if (
                high_watermark != old.high_watermark
                or durable != old.durable
                or start != old.start
                or held_from != old.held_from
            ):
                self._marks.publish(
                    high_watermark=high_watermark,
                    log_start=None if start == old.start else start,
                    durable=durable if held_from is None else min(durable, held_from),
                )
            elif (
                failure is old.failure
                and not is_closed
                and (self.is_sole or end == old.end)  # other replicas fetch before the sync
            ):
                return
            self._wake()
        except BaseException:
            insist(self._announce)
            raise

    def extend(self, high_watermark: Offset, end: Offset) -> None:
        """Replace the state after an append, as `commit` does: the log now ends at `end`.

        Holds `lock`. Of the marks only the high watermark can have moved. `_replace` is too slow.
        """
        old = self.state
        shown, old_end = old[:2]
        assert shown <= high_watermark <= end, (old, high_watermark, end)
        assert old_end <= end, (old, end)
        self.state = tuple.__new__(LogState, (high_watermark, end, *old[2:]))
        try:
            if high_watermark != shown:
                self._marks.publish_high_watermark(high_watermark)
            elif self.is_sole or end == old_end:
                return  # else other replicas fetch before the sync
            if self._waiters or self._watcher is not None or self._listeners:
                self._wake()
        except BaseException:
            insist(self._announce)
            raise

    def end_sync(self, high_watermark: Offset, durable: Offset, unsynced: UnsyncedFiles) -> None:
        """Replace the state after a sync, as `commit` does. Holds `lock`.

        It is announced even if it moved nothing: another sync may have been faster, and the
        watcher waits for this one.
        """
        old = self.state
        shown, end, was_durable = old[:3]
        assert old.start <= high_watermark <= end, (old, high_watermark)
        assert old.recovery_point <= durable <= end, (old, durable)
        self.state = tuple.__new__(
            LogState, (high_watermark, end, durable, *old[3:7], unsynced, *old[8:])
        )
        held_from = old.held_from
        self.is_free = old.failure is None and held_from is None and not old.is_closed
        try:
            if high_watermark != shown or durable != was_durable:
                self._marks.publish(
                    high_watermark=high_watermark,
                    durable=durable if held_from is None else min(durable, held_from),
                )
            self._wake()
        except BaseException:
            insist(self._announce)
            raise

    def _announce(self) -> None:
        """Publish the state and wake everyone, whatever changed. Holds `lock`."""
        state = self.state
        self._marks.publish(
            high_watermark=state.high_watermark,
            log_start=state.start,
            durable=state.visible(state.durable),
        )
        self._wake()

    def _wake(self) -> None:
        if self._waiters:
            with self._progress:
                self._progress.notify_all()
        watcher = self._watcher  # another thread may take it away
        if watcher is not None:
            watcher()
        for listener in self._listeners:
            listener()

    def fail(self, reason: str) -> None:
        """Stop acknowledging for good. Takes `lock`.

        Nobody knows whether what was written last is on the disk.
        """
        with self.lock:
            self.fail_locked(reason)

    def fail_locked(self, reason: str) -> None:
        """As `fail`. Holds `lock`."""
        if self.state.failure is None:
            failure = LogFailedError(self.name, reason)
            self.commit(self.state._replace(failure=failure))
            logger.error("%s: %s", self.name, reason)

    def settled(self) -> LogState:
        """The state, once it is certain that no change was left half-done. Holds `lock`."""
        if self.half_done is not None:
            self.fail_locked(f"{self.half_done} was interrupted; open the log again to recover")
        return self.state

    @contextmanager
    def changing(self, what: str) -> Iterator[None]:
        """Files and the state change together, or the log fails. Holds `lock`.

        `what` names the change, for the reason of the failure.
        """
        self.half_done = what
        try:
            yield
            self.half_done = None
        except BaseException as error:  # an interrupt too: appends must not continue on top
            reason = f"{what} failed half-way: {error!r}"
            insist(lambda: self.fail_locked(reason))
            raise

    def announce_start(self, offset: Offset) -> None:
        """Make durable that the log will be empty and start at `offset`. Holds both locks.

        Published before the files are removed: recovery must find it if they are gone.
        """
        self._marks.publish(high_watermark=offset, log_start=offset)
        self._marks.sync()

    def sync_marks(self) -> None:
        """Make the published marks durable."""
        self._marks.sync()

    @property
    def has_unsynced_marks(self) -> bool:
        return not self.state.is_closed and self._marks.is_unsynced

    def release_turn(self) -> None:
        """Let appends continue after a publication. Holds `lock`.

        A log that failed stays held: its batches may be undecided, and the published durable mark
        must not pass the high watermark.
        """
        if self.state.failure is None:
            self.commit(self.state._replace(held_from=None))
        self._turn.notify_all()

    def close(self) -> None:
        """Close the log's files; nothing is flushed. Holds both locks."""
        self.commit(self.state._replace(is_closed=True))
        for segment in self.state.segments:
            segment.close()
        self._marks.close()

    # --- who may change ----------------------------------------------------------------------

    def check_open(self) -> None:
        if self.state.is_closed:
            raise LogClosedError(self.name)

    def check_writable(self) -> None:
        """Raise if the log is closed or has failed. Holds `lock`."""
        state = self.settled()
        if state.is_closed:
            raise LogClosedError(self.name)
        if state.failure is not None:
            raise state.failure

    def check_turn(self, *, wait: bool = True) -> None:
        """As `check_writable`, and no publication is under way. Holds `lock`.

        Waits for the publication to end and releases the lock meanwhile; without `wait` it
        raises `LogHeldError`.
        """
        self.check_writable()
        if not self.is_led:
            raise NotLeaderError(self.name, epoch=self.role_epoch)
        while self.state.held_from is not None:
            if not wait:
                raise LogHeldError(self.name)
            self._turn.wait()
            self.check_writable()

    def check_appendable(self, *, wait: bool = True) -> None:
        """As `check_turn`, and the disk is healthy: see `disk_health`."""
        if not self.is_free or self.half_done is not None or not self.is_led:
            self.check_turn(wait=wait)
        refusal = self.health.refusal
        if refusal is not None:
            raise refusal.error_for(self.name)

    def check_led_in(self, epoch: LeaderEpoch) -> None:
        """Raise unless this replica leads in `epoch`. Holds `lock`."""
        if not self.is_led or self.role_epoch != epoch:
            raise NotLeaderError(self.name, epoch=self.role_epoch)

    def check_follows_in(self, epoch: LeaderEpoch) -> None:
        """Raise unless this replica follows the leader of `epoch`. Holds `lock`.

        What was begun for an earlier role ends here.
        """
        if self.is_led or self.role_epoch != epoch:
            raise RoleChangedError(self.name, asked=epoch, current=self.role_epoch)

    def check_sole(self, what: str) -> None:
        """Raise if the log has other replicas, which `what` would not reach."""
        if not self.is_sole:
            raise ReplicatedLogError(self.name, what)

    # --- waiting -----------------------------------------------------------------------------

    def watch(self, watcher: Callable[[], None] | None) -> None:
        """Have `watcher` called when the high watermark moves, a sync ends, or the log does.

        Also when a log with other replicas grows: they fetch before the sync.
        It is called from the thread in which that happens, with locks held: it must return at
        once and must not call this log. None: nobody is called any more, except by a thread that
        has begun.
        """
        self._watcher = watcher

    def add_listener(self, listener: Callable[[], None]) -> None:
        """As `watch`, for any number of them. Takes `lock`."""
        with self.lock:
            self._listeners = (*self._listeners, listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Forget one that was added. Takes `lock`."""
        with self.lock:
            self._listeners = tuple(each for each in self._listeners if each != listener)

    def wait_beyond(self, offset: Offset, timeout_s: float | None) -> bool:
        """Block until the high watermark is past `offset`; False at the timeout or when closed."""
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        with self._progress:
            self._waiters += 1
            try:
                while self.state.high_watermark <= offset and not self.state.is_closed:
                    left = None if deadline is None else deadline - self._clock.monotonic()
                    if left is not None and left <= 0:
                        return False
                    self._progress.wait(left)
            finally:
                self._waiters -= 1
        return not self.state.is_closed

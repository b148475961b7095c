"""Holding a log back while several logs get their part of one publication.

    begin       nobody else appends; everything that was appended before is durable
    add         batches are written behind the others, and nobody sees them
    sync        they are on the disk, and still nobody sees them
    show        they become visible together, and everyone may append again
    undo        they are removed; then `release`: everyone may append again
    give_up     nobody can tell which of both: the log takes no appends until it is reopened

A publication holds the sync lock from `begin` to `show`, `release` or `give_up`. A sync, a
truncation and a close wait there; appends wait in `StateHolder.check_turn`. So only the
publication moves the end of the log in between.
"""

from contextlib import suppress

from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.removal.truncation import Truncation
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.writing.batch_writer import BatchWriter
from cordwood.log.partition.writing.log_sync import LogSync
from cordwood.log.rules.append_checks import CheckedBatch
from cordwood.log.rules.interruption import LockHold, insist
from cordwood.quantities import Offset, TimestampMs


class PublicationHold:
    """Holds one log for one publication at a time."""

    def __init__(
        self,
        parts: LogParts,
        holder: StateHolder,
        *,
        writer: BatchWriter,
        syncing: LogSync,
        truncation: Truncation,
    ) -> None:
        self._name = parts.name
        self._role = parts.role
        self._holder = holder
        self._writer = writer
        self._syncing = syncing
        self._truncation = truncation
        self._hold = LockHold(holder.sync_lock)
        self._has_written = False  # the publication under way may have changed the file

    def check_allowed(self) -> None:
        """Raise if the log has other replicas: they would not hold the batches back."""
        self._holder.check_sole("publish to")

    def begin(self) -> Offset:
        """Hold the log; return where the batches will begin. If it raises, nothing is held."""
        holder = self._holder
        try:
            self._hold.take()
            with holder.lock:
                holder.check_appendable()
                base = holder.state.end
                self._has_written = False
                holder.commit(holder.state._replace(held_from=base))
            if holder.state.durable < base:
                self.sync()
            return base
        except BaseException:
            insist(self.release)
            raise

    @property
    def is_held(self) -> bool:
        """Whether a publication holds the log. Asked by the publication itself."""
        return bool(self._hold)

    def add(self, checked: CheckedBatch, now_ms: TimestampMs) -> None:
        """Write one batch behind the others. Called by one thread."""
        with self._holder.lock:
            assert self._holder.state.held_from is not None, self._name
            self._holder.check_writable()
            header = checked.header
            batch = UnplacedBatch(len(checked.data), header.record_count, header.max_timestamp)
            self._has_written = True
            self._writer.write(checked.data, batch, now_ms, is_visible=False)

    def sync(self) -> None:
        """Make the batches durable."""
        self._syncing.run()
        with self._holder.lock:
            self._holder.check_writable()

    def show(self) -> None:
        """Let everyone see the batches, and release the log. Safe to repeat."""
        if self._hold:
            with self._holder.lock:
                self._show()
            self.release()

    def _show(self) -> None:
        """Holds the lock."""
        state = self._holder.state._replace(held_from=None)
        high_watermark = self._role.high_watermark(
            state, self._holder.config, end=state.end, durable=state.durable
        )
        self._holder.commit(state._replace(high_watermark=high_watermark))

    def undo(self) -> bool:
        """Remove the batches again, durably; False if the log has failed. Safe to repeat.

        A write that failed or was interrupted has removed its own batch from the file, and that
        may not be on the disk: without a sync, a power cut could bring the batch back.
        """
        with self._holder.lock, suppress(OSError):
            state = self._holder.settled()
            held_from = state.held_from
            if state.failure is None and held_from is not None:
                if state.end > held_from:
                    self._truncation.undo_to(held_from)
                elif self._has_written:
                    with self._holder.changing("the undoing of a publication"):
                        state.segments.active.sync_log()
        return self._holder.state.failure is None

    def release(self) -> None:
        """Let everyone append again. Every batch was shown or undone before. Safe to repeat."""
        if self._hold:
            with self._holder.lock:
                self._holder.release_turn()
            self._hold.release()

    def give_up(self, reason: str) -> None:
        """Take no more appends: the next start decides about the batches. Safe to repeat."""
        if self._hold:
            self._holder.fail(reason)
            self.release()

    def drop(self) -> None:
        """Remove what an unfinished publication left. Called by the store when it opens."""
        holder = self._holder
        base = holder.state.held_from
        assert base is not None, self._name
        if base >= holder.state.start and holder.state.end > base:
            self._truncation.truncate_local_to(base)  # the archive has only what was visible
        with holder.lock:
            self._show()

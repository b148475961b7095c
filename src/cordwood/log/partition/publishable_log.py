"""What a publication needs of a log: to take batches that nobody sees until all of it counts.

    hold        nobody else appends; all that was appended before is durable
    add         batches go behind what is there, unseen
    sync_held   they are on the disk, still unseen
    show        they become visible at once, and the log is everyone's again
    undo        they are gone; then `let_go`: the log is everyone's again
    give_up     nobody can tell which of both: the log takes no appends until it is reopened

A publication holds the sync lock from `hold` to `show`, `let_go` or `give_up`. Whoever syncs,
cuts or closes the log waits there; appends wait at a gate of their own, in `_check_turn`. So in
between only the publication moves the end of the log.
"""

from abc import abstractmethod
from contextlib import suppress

from cordwood.log.partition.compactable_log import CompactableLog
from cordwood.log.rules.append_checks import CheckedBatch
from cordwood.quantities import Offset, TimestampMs


class PublishableLog(CompactableLog):
    """A log that can be held while several logs get their part of one publication."""

    @abstractmethod
    def _write(
        self,
        data: bytearray | memoryview,
        record_count: int,
        max_timestamp: TimestampMs,
        now_ms: TimestampMs,
        leader_epoch: int | None = None,
    ) -> Offset:
        """Give a batch its place and write it. Holds the lock; nobody sees the batch yet."""

    def hold(self) -> Offset:
        """Begin; return where the batches to come will begin. Raises, and then holds nothing."""
        self._sync_lock.acquire()
        try:
            with self._lock:
                self._check_appendable()
                self._held_from = base = self._end
            if self._durable < base:
                self.sync_held()
            return base
        except BaseException:
            self.let_go()
            raise

    def add(self, checked: CheckedBatch, now_ms: TimestampMs) -> None:
        """Write one batch behind the others. Held; by one thread."""
        header = checked.header
        with self._lock:
            assert self._held_from is not None, self.name
            self._check_writable()
            self._write(checked.data, header.record_count, header.max_timestamp, now_ms)
            self._producers.advance_to(self._end)
            self._view.segments.active.flush_index()

    def sync_held(self) -> None:
        """Make the batches durable. Held."""
        try:
            self._sync()
        except OSError as error:
            self._fail(f"a sync failed: {error}")
        self._check_writable()

    def show(self) -> None:
        """Let everyone see the batches. Held until here."""
        with self._lock:
            self._held_from = None
            self._publish(self._durable if self._config.durability == "disk" else self._end)
        self.let_go()

    def undo(self) -> bool:
        """Cut the batches off again, durably; False when the log has failed. Held."""
        with self._lock:
            base = self._held_from
            assert base is not None, self.name
            if self._failure is None and self._end > base:
                with suppress(OSError), self._cutting():
                    self._truncate_at(base)
        return self._failure is None

    def let_go(self) -> None:
        """The log is everyone's again. Held until here, with nothing that was not undone."""
        with self._lock:
            self._held_from = None
            self._turn.notify_all()
        self._sync_lock.release()

    def give_up(self, reason: str) -> None:
        """Take no appends any more: what is there is decided at the next start. Held until here."""
        self._fail(reason)
        self.let_go()

    def drop_held(self) -> None:
        """By the store, when it opens: nothing behind the hold counts, and it is cut off."""
        base = self._held_from
        assert base is not None, self.name
        if base >= self.local_start_offset and self._end > base:
            self._truncate_local(base)  # the archive has only what everyone could see
        with self._lock:
            self._held_from = None
            self._publish(self._end)

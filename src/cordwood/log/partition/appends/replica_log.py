"""A log as one replica of many: the role it has, how far it is committed, batches of its leader.

The machines of the cluster decide (`cluster.replication`), this part carries it out. A role is of
one leader epoch, and epochs only grow. Whatever changes the log says for which role it was begun;
if the role has changed since, it is refused. So a job that waited for the disk cannot disturb the
role after it, in whatever order threads run.

    role        appends come from            the high watermark moves
    none        nowhere: the log was opened  never
    leader      clients, stamped here        when the other replicas have fetched
    follower    the leader, verbatim         when the leader says so

What is on the disk if the power fails:

    lead        the epoch is in the checkpoint before the first batch of that epoch is written
    append      as every append: whole batches, or torn ones that recovery cuts off. Behind a gap,
                recovery might take a torn offset for a smaller one (`torn_offset`). Such a batch
                begins a new segment, after everything before it was synced
    truncate    the marks are lowered first, see `truncation`
    restart     the new start is published first, see `truncation`
"""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from cordwood.errors import FormatError, ReplicaMismatchError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import DAMAGE_STOPS, BatchDecoder, describe_stop
from cordwood.format.batch_header import HEADER_SIZE, decode_batch_header
from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.log.partition.derived_state.log_epochs import LogEpochs
from cordwood.log.partition.removal.deletion import Deletion
from cordwood.log.partition.removal.truncation import Truncation
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.writing.batch_writer import BatchWriter
from cordwood.log.partition.writing.rolling import Rolling
from cordwood.log.reading.file_range import FileRange, read_range
from cordwood.log.reading.log_source import LogSource
from cordwood.log.rules.epoch_agreement import EpochHistory, agreed_end
from cordwood.log.rules.leader_epochs import EpochEnd
from cordwood.log.rules.roll_policy import Incoming
from cordwood.quantities import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from cordwood.storage.files import read_whole, replace_file
from cordwood.storage.log_file.torn_offset import is_torn_unnoticed, passes_bound
from cordwood.storage.recovery import Damage

DAMAGED: Final = "cordwood-damaged"
_MARK_BYTES_MAX: Final = 32

# A fetch may cut the last batch anywhere: it is whole in the next one.
_CUT_SHORT: Final = (tables.STOP_SHORT_HEADER, tables.STOP_SHORT_BATCH)


class _Scratch(threading.local):
    """A decoder for each thread that appends: one for each log would be too many."""

    def __init__(self) -> None:
        self.decoder = BatchDecoder()


_SCRATCH: Final = _Scratch()


class _Found(NamedTuple):
    """Batches that may be appended. `is_first_gap`: offsets before the first one are missing."""

    batch_count: int
    is_first_gap: bool


class _DamageMark:
    """Remembers, over restarts, that a replica is damaged, until the damage is cut off.

    Recovery reports damage once: later openings trust what lies below the recovery point. The file
    `cordwood-damaged` has the first offset. It is removed after the damaged batches are: a crash
    in between fills the replica once more.
    """

    def __init__(self, parts: LogParts, damages: list[Damage]) -> None:
        self._fs = parts.fs
        self._path = os.path.join(parts.directory, DAMAGED)
        self._damages = damages
        self.first_offset = min((damage.first_offset for damage in damages), default=None)
        if not parts.role.is_sole:
            self._remember()

    def _remember(self) -> None:
        saved: Offset | None = None
        if self._fs.exists(self._path):
            content = read_whole(self._fs, self._path, limit=_MARK_BYTES_MAX)
            saved = Offset(int(content) if content.strip().isdigit() else 0)
        if saved is not None and (self.first_offset is None or saved <= self.first_offset):
            self.first_offset = saved
        elif self.first_offset is not None:
            replace_file(self._fs, self._path, b"%d\n" % self.first_offset)

    def forget_from(self, end: Offset) -> None:
        """Everything from `end` on was removed, durably."""
        self._damages[:] = [damage for damage in self._damages if damage.first_offset < end]
        if self.first_offset is not None and self.first_offset >= end:
            self._fs.remove(self._path)
            self._fs.sync_directory(os.path.dirname(self._path))
            self.first_offset = None


class ReplicaLog:
    """The replica side of one log. Any thread may call it.

    `lead`, `truncate`, `restart_at` and `adopt_start` wait for the disk, and `append` may: it
    starts segments and notes new epochs. Everything else returns at once, `append_at_once` too.
    """

    def __init__(
        self,
        parts: LogParts,
        holder: StateHolder,
        *,
        writer: BatchWriter,
        rolling: Rolling,
        epochs: LogEpochs,
        truncation: Truncation,
        deletion: Deletion,
        source: LogSource,
        damages: list[Damage],
        sync: Callable[[], None],
    ) -> None:
        self._sync = sync
        self._name = parts.name
        self._owner = parts.owner
        self._clock = parts.clock
        self._holder = holder
        self._writer = writer
        self._rolling = rolling
        self._epochs = epochs
        self._truncation = truncation
        self._deletion = deletion
        self._source = source
        self._damage = _DamageMark(parts, damages)

    # --- facts -------------------------------------------------------------------------------

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The epoch of the last batch, or of a leadership that wrote none; -1 without any."""
        latest = self._epochs.known.latest
        return NO_LEADER_EPOCH if latest is None else latest.epoch

    def end_of(self, epoch: LeaderEpoch) -> EpochEnd:
        """Where `epoch` ended in this log. See `LeaderEpochs.end_offset_for`."""
        return self._epochs.known.end_offset_for(epoch, self._holder.state.end)

    @property
    def damaged_from(self) -> Offset | None:
        """The first offset of a batch that cannot be read; None if the log is whole.

        Such a replica lacks records that it counted as safe: it must not lead, and is filled again.
        """
        return self._damage.first_offset

    @property
    def safe_end(self) -> Offset:
        """How far this replica counts: what is on its disk, or what the topic counts as kept."""
        state = self._holder.state
        return state.durable if self._holder.config.durability == "disk" else state.end

    @property
    def led_in(self) -> LeaderEpoch | None:
        """The epoch in which this log leads; None while it does not."""
        holder = self._holder
        with holder.lock:
            return holder.role_epoch if holder.is_led else None

    def agreed_end(self, epochs: Sequence[EpochEntry], end: Offset) -> Offset:
        """Up to where another log with these `epochs`, which ends at `end`, is the same."""
        state = self._holder.state
        own = EpochHistory(epochs=self._epochs.known.entries, start=state.start, end=state.end)
        return agreed_end(own, EpochHistory(epochs=epochs, start=Offset(0), end=end))

    def read(
        self, offset: Offset, *, max_bytes: int, min_one_batch: bool = True
    ) -> FileRange | None:
        """Batches from `offset` on, up to the end of the log, as far as one file has them.

        None at the end. Raises `OffsetOutOfRangeError` outside of the local log.
        """
        return read_range(self._source, offset, max_bytes=max_bytes, min_one_batch=min_one_batch)

    # --- roles -------------------------------------------------------------------------------

    def lead(self, epoch: LeaderEpoch) -> Offset:
        """Lead in `epoch` from here on; return where it starts. Durable on return.

        Raises `RoleChangedError` if the log had a later role meanwhile, and `OSError` if the disk
        does not take the epoch: then it does not lead.
        """
        holder = self._holder
        with holder.lock:
            holder.check_writable()
            if epoch > holder.role_epoch:
                holder.is_led, holder.role_epoch = False, epoch
            holder.check_follows_in(epoch)
            start = holder.state.end
            self._epochs.lead(epoch, start)
            holder.is_led = True
        return start

    def follow(self, epoch: LeaderEpoch) -> None:
        """Take nothing but the batches of the leader of `epoch`, or, at last, of no leader.

        Nothing that was begun for an earlier role changes the log after this.
        """
        holder = self._holder
        with holder.lock:
            if epoch >= holder.role_epoch:
                holder.is_led, holder.role_epoch = False, epoch
                self._epochs.follow()

    def raise_high_watermark(self, offset: Offset) -> Offset:
        """Everything below `offset` is committed, as far as the log has it. Never goes back.

        Returns the high watermark.
        """
        holder = self._holder
        with holder.lock:
            state = holder.settled()
            reached = min(offset, state.end)
            if reached > state.high_watermark and state.is_writable:
                holder.extend(reached, state.end)
        return holder.state.high_watermark

    # --- following ---------------------------------------------------------------------------

    def append(
        self,
        data: memoryview | bytes,
        *,
        leader_epoch: LeaderEpoch,
        gaps_below: Offset = Offset(0),
    ) -> Offset:
        """Append what was fetched from the leader of `leader_epoch`, verbatim; return the end.

        A batch that is cut short at the end is left out. Raises `RoleChangedError`, and
        `ReplicaMismatchError` or `ChecksumMismatchError` for the first batch that may not be
        appended; those before it were. Not durable: sync the log.

        An empty log that starts inside of the first batch starts with that batch instead: the
        leader deleted up to an offset inside of it.

        Offsets of a compacted topic may be missing. So may those of another one, below
        `gaps_below`, which is how far the leader has committed: the topic may have been compacted
        before. That is noted before the first gap is written, durably: in a log that was never
        compacted a missing offset is damage.
        """
        view = memoryview(data)
        base = self._base_around_start(view)
        if base is not None:
            self.restart_at(base, leader_epoch=leader_epoch)
        while view:
            view = view[self._append(view, leader_epoch, gaps_below, may_wait=True) :]
            if view:  # what is before a new segment must not be lost without it
                self._sync()
        return self._holder.state.end

    def append_at_once(
        self,
        data: memoryview | bytes,
        *,
        leader_epoch: LeaderEpoch,
        gaps_below: Offset = Offset(0),
    ) -> int:
        """As `append`, as far as that need not wait for the disk; return how many bytes were taken.

        The rest begins with a batch that needs a new segment, or begins a new epoch, or follows
        the first gap of the log: it is for `append`.
        """
        view = memoryview(data)
        if self._base_around_start(view) is not None:
            return 0
        return self._append(view, leader_epoch, gaps_below, may_wait=False)

    def _append(
        self, view: memoryview, leader_epoch: LeaderEpoch, gaps_below: Offset, *, may_wait: bool
    ) -> int:
        """Append batches from `view`; return how many of its bytes were taken.

        That is all of them, including a batch that is cut short, unless it must not wait, or the
        log must be synced before the next batch.
        """
        position = 0
        decoder = _SCRATCH.decoder
        holder = self._holder
        try:
            with holder.lock:
                while position < len(view):
                    holder.check_writable()
                    holder.check_follows_in(leader_epoch)
                    found = self._scan(decoder, view, position, leader_epoch, gaps_below)
                    if not found.batch_count:
                        break
                    if may_wait:
                        state = holder.state
                        if state.durable < state.end and self._may_be_torn(decoder, 1):
                            return position
                        count = self._prepare(decoder, found)
                    elif self._would_wait(decoder, found):
                        return position
                    else:
                        count = found.batch_count
                    self._writer.write_scanned(decoder, count)
                    last = decoder.batch(count - 1)
                    position = last.position + last.size
        finally:
            decoder.scan(memoryview(b""), 0, 0)  # the buffer is the caller's
        return len(view)

    def _prepare(self, decoder: BatchDecoder, found: _Found) -> int:
        """Sync what must be on the disk before batches are written; return how many may be."""
        if found.is_first_gap:
            self._allow_gaps()
        count = self._make_room(decoder)
        self._note_epochs(decoder, count)
        return count

    def _would_wait(self, decoder: BatchDecoder, found: _Found) -> bool:
        """Whether a file must be synced before the batches that were found are written."""
        return (
            found.is_first_gap
            or decoder.field(found.batch_count - 1, tables.B_LEADER_EPOCH) != self.last_epoch
            or self._is_roll_due(decoder, found.batch_count, self._clock.now_ms())
        )

    def truncate(self, offset: Offset, *, leader_epoch: LeaderEpoch) -> Offset:
        """Remove everything from `offset` on, and epochs that start there; return the new end.

        A batch that holds `offset` is removed whole. Durable on return.
        """
        self._truncation.truncate_local_to(offset, following=leader_epoch)
        end = self._holder.state.end
        self._damage.forget_from(end)
        return end

    def restart_at(self, offset: Offset, *, leader_epoch: LeaderEpoch) -> None:
        """Remove everything; the log continues, empty, at `offset`. Durable on return."""
        self._truncation.restart_local_at(offset, following=leader_epoch)
        self._damage.forget_from(Offset(0))

    def adopt_start(self, offset: Offset, *, leader_epoch: LeaderEpoch) -> Offset:
        """Delete what the leader of `leader_epoch` deleted; return the start.

        The high watermark rises to the start in the same moment. Durable on return.
        """
        end = self._holder.state.end
        return self._deletion.drop_local_before(min(offset, end), following=leader_epoch)

    # --- how ---------------------------------------------------------------------------------

    def _base_around_start(self, view: memoryview) -> Offset | None:
        """Where the first batch begins, if the log is empty and starts inside of that batch."""
        state = self._holder.state
        if state.start != state.end or len(view) < HEADER_SIZE:
            return None
        header = decode_batch_header(view)
        base = header.base_offset
        is_inside = 0 <= base < state.end <= base + header.last_offset_delta
        return base if is_inside else None

    def _scan(
        self,
        decoder: BatchDecoder,
        view: memoryview,
        position: int,
        leader_epoch: LeaderEpoch,
        gaps_below: Offset,
    ) -> _Found:
        """Find batches that may be appended, and check them; none if only part of one is left."""
        state = self._holder.state
        end = state.end
        may_miss = state.cleaned_up_to is not None
        count = decoder.scan(view, position, len(view), next_offset_min=end, is_dense=not may_miss)
        is_first_gap = (
            not count
            and not may_miss
            and decoder.stop == tables.STOP_BAD_OFFSET
            and self._may_begin_at(_base_at(view, position), gaps_below)
        )
        if is_first_gap:
            count = decoder.scan(view, position, len(view), next_offset_min=end)
        if not count:
            if decoder.stop in _CUT_SHORT:
                return _Found(0, is_first_gap=False)
            if decoder.stop == tables.STOP_BAD_OFFSET:
                base = _base_at(view, position)
                raise ReplicaMismatchError(
                    self._name, f"a batch begins at offset {base}, and the log ends at {end}"
                )
            assert decoder.stop in DAMAGE_STOPS, decoder.stop
            raise FormatError(describe_stop(decoder.stop), position=decoder.position)
        decoder.count = decoder.sound_count()
        if not decoder.count:
            decoder.check_checksum(0)
        self._check_epochs(decoder, decoder.count, leader_epoch)
        return _Found(decoder.count, is_first_gap=is_first_gap)

    def _may_begin_at(self, base: int, gaps_below: Offset) -> bool:
        """Whether offsets before a batch may be missing: they are compacted, or were."""
        end = self._holder.state.end
        return end < base and (self._holder.config.is_compacted or base <= gaps_below)

    def _allow_gaps(self) -> None:
        """Note that offsets may be missing, durably. The caller holds the lock."""
        state = self._holder.state
        self._holder.commit(state._replace(cleaned_up_to=state.start))
        self._owner.save_cleaned()
        state.segments.active.allow_gaps()

    def _check_epochs(self, decoder: BatchDecoder, count: int, leader_epoch: LeaderEpoch) -> None:
        """Epochs never decrease, and none is newer than that of the leader."""
        row = tables.BATCH_ROW
        epochs = decoder.rows[tables.B_LEADER_EPOCH : count * row : row]
        before: int = self.last_epoch
        if min(epochs) == max(epochs) == before:
            return
        for epoch in epochs:
            if not before <= epoch <= leader_epoch:
                raise ReplicaMismatchError(
                    self._name,
                    f"a batch of epoch {epoch} follows one of epoch {before}, "
                    f"fetched from the leader of epoch {leader_epoch}",
                )
            before = epoch

    def _make_room(self, decoder: BatchDecoder) -> int:
        """How many batches go to the active segment, which is rolled first if it is full."""
        now_ms = self._clock.now_ms()
        if not self._is_roll_due(decoder, decoder.count, now_ms):
            return decoder.count
        if self._is_roll_due(decoder, 1, now_ms):
            self._rolling.roll(now_ms)
        fitting, beyond = 1, decoder.count
        while beyond - fitting > 1:
            middle = (fitting + beyond) // 2
            if self._is_roll_due(decoder, middle, now_ms):
                beyond = middle
            else:
                fitting = middle
        return decoder.count if not self._is_roll_due(decoder, decoder.count, now_ms) else fitting

    def _is_roll_due(self, decoder: BatchDecoder, count: int, now_ms: TimestampMs) -> bool:
        row, stop = tables.BATCH_ROW, count * tables.BATCH_ROW
        rows = decoder.rows
        first = rows[tables.B_POSITION]
        last = stop - row
        size = rows[last + tables.B_POSITION] + rows[last + tables.B_SIZE] - first
        state, config = self._holder.state, self._holder.config
        active = state.segments.active
        if count > 1 and not active.size and size > config.segment_bytes_effective:
            return True
        if self._may_be_torn(decoder, count):
            return True
        incoming = Incoming(
            size,
            TimestampMs(max(rows[tables.B_MAX_TIMESTAMP : stop : row], default=NO_TIMESTAMP)),
            Offset(rows[last + tables.B_NEXT_OFFSET] - 1),
            sum(rows[tables.B_RECORD_COUNT : stop : row]),
        )
        return self._rolling.is_due_before(incoming, now_ms)

    def _may_be_torn(self, decoder: BatchDecoder, count: int) -> bool:
        """Whether the offset of one of the batches must not be torn, where it would be written."""
        state = self._holder.state
        end: int = state.end
        if not passes_bound(end, decoder.field(count - 1, tables.B_BASE_OFFSET)):
            return False
        shift = state.segments.active.size - decoder.field(0, tables.B_POSITION)
        for index in range(count):
            base = decoder.field(index, tables.B_BASE_OFFSET)
            if is_torn_unnoticed(shift + decoder.field(index, tables.B_POSITION), base, end):
                return True
            end = decoder.field(index, tables.B_NEXT_OFFSET)
        return False

    def _note_epochs(self, decoder: BatchDecoder, count: int) -> None:
        """Note where new epochs start, durably, before their batches are written."""
        row = tables.BATCH_ROW
        known: int = self.last_epoch
        if decoder.field(count - 1, tables.B_LEADER_EPOCH) == known:
            return
        epochs = decoder.rows[tables.B_LEADER_EPOCH : count * row : row]
        for index, epoch in enumerate(epochs):
            if epoch != known:
                start = Offset(decoder.field(index, tables.B_BASE_OFFSET))
                self._epochs.enter(LeaderEpoch(epoch), start)
                known = epoch


def _base_at(view: memoryview, position: int) -> int:
    """The offset at which the batch there begins."""
    return int.from_bytes(view[position : position + 8], "big", signed=True)

"""The one way to write: batches get their offsets and go to the end of the active segment.

Everything that is appended passes through here: records of the library, batches of clients,
publications, transaction markers. Batches that come together are written together, in one
system call. If that cannot be, because the active segment has no room for all of them or because
the write failed, each is written by itself and has an answer of its own.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn

from cordwood.errors import CordwoodError, DiskFullError, RecordTooLargeError
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_header import stamp, stamp_alone
from cordwood.format.batch_placing import place_batches
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.derived_state.derived_files import DerivedFiles
from cordwood.log.partition.derived_state.log_epochs import LogEpochs
from cordwood.log.partition.derived_state.log_producers import LogProducers
from cordwood.log.partition.derived_state.producer_snapshots import apply_batches
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.writing.rolling import Rolling
from cordwood.log.rules.batch_group import producer_facts
from cordwood.log.rules.interruption import insist
from cordwood.log.rules.roll_policy import Incoming
from cordwood.quantities import (
    NO_PRODUCER_ID,
    LeaderEpoch,
    Offset,
    TimestampMs,
)
from cordwood.storage.disk.disk_errors import FULL_DISK_ERRNOS
from cordwood.storage.recovery import walk_segment
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.segment_indexes import SegmentIndexes

# Asked about the batch of that index just before it is written by itself: None, or its answer.
Admission = Callable[[int], "Offset | Exception | None"]


class BatchWriter:
    """Writes batches to one log. Every method needs the log's lock."""

    def __init__(
        self,
        parts: LogParts,
        holder: StateHolder,
        rolling: Rolling,
        producers: LogProducers,
        epochs: LogEpochs,
    ) -> None:
        self._name = parts.name
        self._role = parts.role
        self._health = parts.owner.health
        # A failure is tried again with the next append. If the disk is failing, a sync says so.
        self._derived = DerivedFiles(parts.name, lambda _error: None)
        self._holder = holder
        self._rolling = rolling
        self._producers = producers
        self._epochs = epochs

    def write(
        self,
        data: bytearray | memoryview,
        batch: UnplacedBatch,
        now_ms: TimestampMs,
        *,
        leader_epoch: LeaderEpoch | None = None,
        is_visible: bool = True,
    ) -> Offset:
        """Write one batch; return its base offset. Raises, and then nothing was written.

        `data` is stamped in place. Without `is_visible` the high watermark stays: see `show`.
        """
        size, record_count, max_timestamp, producer_id, _, _, _ = batch
        if producer_id == NO_PRODUCER_ID and leader_epoch is None:
            return self.write_unnumbered(
                data, record_count, max_timestamp, now_ms, is_visible=is_visible
            )
        base = self._holder.state.end
        end = Offset(base + record_count)
        self._make_room(Incoming(size, max_timestamp, Offset(end - 1), record_count), now_ms)
        try:
            if leader_epoch is not None:
                self._epochs.enter(leader_epoch, base)
            stamp(data, 0, base, self._epochs.current)
            is_numbered = producer_id != NO_PRODUCER_ID
            self._put(data, (batch,), end, is_numbered=is_numbered, is_visible=is_visible)
        except OSError as error:
            self._refuse(error)
        return base

    def write_unnumbered(
        self,
        data: bytearray | memoryview,
        record_count: int,
        max_timestamp: TimestampMs,
        now_ms: TimestampMs,
        *,
        is_visible: bool = True,
    ) -> Offset:
        """As `write`, for a batch without a producer, in the current epoch: the shortest way.

        Every append of the library comes here.
        """
        holder = self._holder
        state = holder.state
        segment, base = state.segments.active, state.end
        end = Offset(base + record_count)
        if not self._rolling.has_room_for(segment, len(data), max_timestamp, end, record_count):
            incoming = Incoming(len(data), max_timestamp, Offset(end - 1), record_count)
            self._make_room(incoming, now_ms)
            state = holder.state
            segment = state.segments.active
        writer = segment.writer
        if writer.indexes.has_many_unflushed:
            self._flush(writer.indexes)
        stamp_alone(data, base, self._epochs.current)
        holder.half_done = "an append"
        try:
            writer.append_one(data, max_timestamp, record_count, base)
            self._producers.states.advance_to(end)
            shown = state.high_watermark
            if is_visible:
                shown = self._role.high_watermark(
                    state, holder.config, end=end, durable=state.durable
                )
            holder.extend(shown, end)
            holder.half_done = None
        except OSError as error:
            self._take_back(segment)
            self._refuse(error)
        except BaseException:
            self._restore(segment, is_numbered=False)
            raise
        return base

    def write_run(
        self,
        data: memoryview,
        batches: Sequence[UnplacedBatch],
        now_ms: TimestampMs,
        *,
        is_visible: bool = True,
    ) -> None:
        """Write batches without a producer that lie one behind the other in `data`.

        In one call if the active segment has room for all of them, else each by itself. If it
        raises, none or the first of them were written: the caller takes them back.
        """
        state = self._holder.state
        first, last = state.end, len(batches) - 1
        count = sum(batch.record_count for batch in batches)
        end, newest = Offset(first + count), max(batch.max_timestamp for batch in batches)
        if last and self._rolling.has_room_for(
            state.segments.active, len(data), newest, end, count
        ):
            self._stamp_all(data, batches, first)
            try:
                self._put(data, batches, end, is_numbered=False, is_visible=is_visible)
            except OSError as error:
                self._refuse(error)
            return
        for index, (size, record_count, max_timestamp, *_) in enumerate(batches):
            part, data = data[:size], data[size:]
            self.write_unnumbered(
                part,
                record_count,
                max_timestamp,
                now_ms,
                is_visible=is_visible and index == last,
            )

    def _stamp_all(
        self, data: memoryview, batches: Sequence[UnplacedBatch], base_offset: Offset
    ) -> None:
        position, epoch = 0, self._epochs.current
        for batch in batches:
            stamp(data, position, base_offset, epoch)
            position += batch.size
            base_offset = Offset(base_offset + batch.record_count)

    def _make_room(self, incoming: Incoming, now_ms: TimestampMs) -> None:
        """Begin a new segment if `incoming` needs one."""
        limit = self._holder.config.segment_bytes_effective
        if incoming.size > limit:
            raise RecordTooLargeError(size=incoming.size, limit=limit, key="segment.bytes")
        if self._rolling.is_due_before(incoming, now_ms):
            self._rolling.roll(now_ms)

    def _refuse(self, error: OSError) -> NoReturn:
        """Raise what a caller gets after a write that failed."""
        self._health.note_failure(error)
        error.add_note(f"while appending to {self._name}")
        if error.errno in FULL_DISK_ERRNOS:
            raise DiskFullError(self._name) from error
        raise error

    def _flush(self, indexes: SegmentIndexes) -> None:
        """Write entries of earlier batches. Before anything has changed: an interrupt may come."""
        self._derived.write("index entries", indexes.flush)

    def write_group(
        self,
        data: bytearray | memoryview,
        batches: list[UnplacedBatch],
        now_ms: TimestampMs,
        *,
        admit: Admission,
        is_admitted: bool,
        answers: list[Offset | Exception],
    ) -> None:
        """Write batches that lie one behind the other in `data`; add an answer for each.

        An answer is the base offset, or why the batch was refused. `is_admitted` says that all of
        them may be written as they are; otherwise, and when they are not written together, `admit`
        decides about each. If an interrupt ends it half-way, `answers` has what was done.
        """
        written = 0, self._holder.state.end  # before the write under way: answers, and the end
        is_together = is_admitted
        try:
            if is_admitted:
                bases = self._write_together(data, batches, now_ms)
                if bases is not None:
                    answers += bases
                    return
            is_together = False
            rest = memoryview(data)
            for index, batch in enumerate(batches):
                part, rest = rest[: batch.size], rest[batch.size :]
                written = index, self._holder.state.end
                answer: Offset | Exception | None = self._holder.state.failure or admit(index)
                if answer is None:
                    try:
                        answer = self.write(part, batch, now_ms)
                    except (OSError, CordwoodError) as error:
                        answer = error
                answers.append(answer)
        except BaseException:
            index, first = written
            if self._holder.state.end > first and len(answers) == index:
                # The interrupt came between the write and its answer.
                for batch in batches if is_together else batches[index : index + 1]:
                    answers.append(first)
                    first = Offset(first + batch.record_count)
            raise

    def _write_together(
        self, data: bytearray | memoryview, batches: list[UnplacedBatch], now_ms: TimestampMs
    ) -> list[Offset] | None:
        """All of them in one write; None if there is no room for all, or the write failed."""
        epoch, first = self._epochs.current, self._holder.state.end
        bases, position, end, newest, is_numbered = place_batches(data, batches, first, epoch)
        active = self._holder.state.segments.active
        if not self._rolling.has_room_for(active, position, newest, end, end - first):
            if position > self._holder.config.segment_bytes_effective:
                return None
            incoming = Incoming(position, newest, Offset(end - 1), end - first)
            if self._rolling.is_due_before(incoming, now_ms):
                return None
        try:
            self._put(data, batches, end, is_numbered=is_numbered, is_visible=True)
        except OSError:
            return None  # each is tried by itself and has an error of its own
        return bases

    def write_scanned(self, decoder: BatchDecoder, count: int) -> None:
        """Write the first `count` batches of a scan as they are; they were written before.

        The active segment has room for them. Raises, and then nothing was written.
        """
        segment = self._holder.state.segments.active
        if segment.indexes.has_many_unflushed:
            self._flush(segment.indexes)
        holder = self._holder
        holder.half_done = "an append"
        try:
            segment.writer.append_scanned(decoder, count)
        except OSError as error:
            self._take_back(segment)
            self._refuse(error)
        except BaseException:
            self._restore(segment, is_numbered=False)
            raise
        try:
            states = self._producers.states
            apply_batches(states, segment, decoder, 0, count)
            states.advance_to(segment.next_offset)
            self._commit(segment.next_offset, is_visible=True)
            holder.half_done = None
        except BaseException:
            self._restore(segment, is_numbered=True)
            raise

    def show(self) -> None:
        """Let readers see what was written, as far as the role allows."""
        end = self._holder.state.end
        self._commit(end, is_visible=True)

    def _put(
        self,
        data: bytearray | memoryview,
        batches: Sequence[UnplacedBatch],
        end: Offset,
        *,
        is_numbered: bool,
        is_visible: bool,
    ) -> None:
        """Write stamped batches to the active segment; the log then ends at `end`.

        An `OSError` means that none of them was written. The state is replaced when they are.
        """
        state = self._holder.state
        segment, base = state.segments.active, state.end
        writer = segment.writer
        if writer.indexes.has_many_unflushed:
            self._flush(writer.indexes)
        holder = self._holder
        holder.half_done = "an append"
        try:
            writer.append(data, batches, base_offset=base)
            states = self._producers.states
            if is_numbered:
                for batch in batches:
                    if batch.producer_id != NO_PRODUCER_ID:
                        states.update(producer_facts(batch, base))
                    base = Offset(base + batch.record_count)
            states.advance_to(end)
            self._commit(end, is_visible=is_visible)
            holder.half_done = None
        except OSError:
            self._take_back(segment)
            raise
        except BaseException:
            self._restore(segment, is_numbered=is_numbered)
            raise

    def _commit(self, end: Offset, *, is_visible: bool) -> None:
        holder = self._holder
        state = holder.state
        shown = state.high_watermark
        if is_visible:
            shown = self._role.high_watermark(state, holder.config, end=end, durable=state.durable)
        holder.extend(shown, end)

    def _take_back(self, segment: Segment) -> None:
        """A write failed: remove what reached the file, or stop the log for good."""
        try:
            insist(segment.writer.repair)
            self._holder.half_done = None
        except OSError as error:
            self._holder.fail_locked(f"a write failed and could not be undone: {error}")

    def _restore(self, segment: Segment, *, is_numbered: bool) -> None:
        """An interrupt came: files, indexes and producers follow the state again, or the log fails.

        The state has the batches or does not have them: it was replaced in one assignment.
        """

        def restore() -> None:
            end = self._holder.state.end
            segment.restore_to(end)
            walk_segment(segment, end, lambda _decoder, _first, _stop: None)
            if is_numbered:
                self._producers.reload()
            else:
                self._producers.states.retreat_to(end)
            self._holder.half_done = None

        try:
            insist(restore)
        except Exception as error:
            self._holder.fail_locked(f"an append was interrupted and not undone: {error!r}")

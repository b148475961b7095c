"""The one way to write: batches get their offsets and go to the end of the active segment.

Everything that is appended passes through here: records of the library, batches of clients,
publications, transaction markers. Batches that come together are written together, in one
system call. If that cannot be, because the active segment has no room for all of them or because
the write failed, each is written by itself and has an answer of its own.
"""

import logging
from collections.abc import Callable, Sequence

from cordwood.errors import CordwoodError, DiskFullError, RecordTooLargeError
from cordwood.format.batch_header import stamp
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.log_epochs import LogEpochs
from cordwood.log.partition.log_parts import FULL_DISK_ERRNOS, LogParts
from cordwood.log.partition.log_producers import LogProducers
from cordwood.log.partition.rolling import Rolling
from cordwood.log.partition.state_holder import StateHolder
from cordwood.log.rules.batch_group import producer_facts
from cordwood.log.rules.roll_policy import Incoming
from cordwood.quantities import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
)
from cordwood.storage.segment import Segment

logger = logging.getLogger(__name__)

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
        end = self._holder.state.end
        if not self._fits(batch.size, batch.record_count, batch.max_timestamp, now_ms):
            limit = self._holder.config.segment_bytes_effective
            if batch.size > limit:
                raise RecordTooLargeError(size=batch.size, limit=limit, key="segment.bytes")
            self._rolling.roll(now_ms)
        if leader_epoch is not None:
            self._epochs.enter(leader_epoch, end)
        try:
            return self._put(data, (batch,), is_visible=is_visible)
        except OSError as error:
            error.add_note(f"while appending to {self._name}")
            if error.errno in FULL_DISK_ERRNOS:
                raise DiskFullError(self._name) from error
            raise

    def write_group(
        self,
        data: bytearray | memoryview,
        batches: Sequence[UnplacedBatch],
        now_ms: TimestampMs,
        *,
        admit: Admission,
        is_admitted: bool,
    ) -> list[Offset | Exception]:
        """Write batches that lie one behind the other in `data`; return an answer for each.

        An answer is the base offset, or why the batch was refused. `is_admitted` says that all of
        them may be written as they are; otherwise, and when they are not written together, `admit`
        decides about each.
        """
        if is_admitted:
            count, newest = 0, NO_TIMESTAMP
            for batch in batches:
                count += batch.record_count
                newest = max(newest, batch.max_timestamp)
            if self._fits(len(data), count, newest, now_ms):
                try:
                    base = self._put(data, batches, is_visible=True)
                except OSError:
                    pass  # each is tried by itself and has an error of its own
                else:
                    return _bases(base, batches)
        answers: list[Offset | Exception] = []
        rest = memoryview(data)
        for index, batch in enumerate(batches):
            part, rest = rest[: batch.size], rest[batch.size :]
            answer: Offset | Exception | None = self._holder.state.failure or admit(index)
            if answer is None:
                try:
                    answer = self.write(part, batch, now_ms)
                except (OSError, CordwoodError) as error:
                    answer = error
            answers.append(answer)
        return answers

    def show(self) -> None:
        """Let readers see what was written, as far as the role allows."""
        state = self._holder.state
        self._holder.commit(state.appended(state.end, self._high_watermark(state.end)))

    def _fits(self, size: int, count: int, newest: TimestampMs, now_ms: TimestampMs) -> bool:
        """Whether the active segment takes these batches."""
        last_offset = Offset(self._holder.state.end + count - 1)
        if size > self._holder.config.segment_bytes_effective:
            return False
        return not self._rolling.is_due_before(Incoming(size, newest, last_offset, count), now_ms)

    def _put(
        self, data: bytearray | memoryview, batches: Sequence[UnplacedBatch], *, is_visible: bool
    ) -> Offset:
        """Write all batches to the active segment. The state is replaced last.

        An `OSError` means that none of them was written.
        """
        state = self._holder.state
        segment, base = state.segments.active, state.end
        position, offset, epoch = 0, base, self._epochs.current
        is_numbered = False
        for batch in batches:
            stamp(data, position, offset, epoch)
            position += batch.size
            offset = Offset(offset + batch.record_count)
            if batch.producer_id != NO_PRODUCER_ID:
                is_numbered = True
        try:
            segment.append(data, batches, base_offset=base)
        except OSError:
            self._take_back(segment)
            raise
        states = self._producers.states
        if is_numbered:
            offset = base
            for batch in batches:
                if batch.producer_id != NO_PRODUCER_ID:
                    states.update(producer_facts(batch, offset))
                offset = Offset(offset + batch.record_count)
        states.advance_to(offset)
        try:
            segment.flush_index()
        except OSError as error:
            # Derived, and tried again with the next append.
            logger.warning("%s: index entries could not be written: %s", self._name, error)
        shown = self._high_watermark(offset) if is_visible else state.high_watermark
        self._holder.commit(state.appended(offset, shown))
        return base

    def _high_watermark(self, end: Offset) -> Offset:
        state = self._holder.state
        return self._role.high_watermark(state, self._holder.config, end=end, durable=state.durable)

    def _take_back(self, segment: Segment) -> None:
        """A write failed: remove what reached the file, or stop the log for good."""
        try:
            segment.repair()
        except OSError as error:
            self._holder.fail_locked(f"a write failed and could not be undone: {error}")


def _bases(base: Offset, batches: Sequence[UnplacedBatch]) -> list[Offset | Exception]:
    bases: list[Offset | Exception] = []
    for batch in batches:
        bases.append(base)
        base = Offset(base + batch.record_count)
    return bases

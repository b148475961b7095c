"""Batches that clients encoded: how they are checked against their producers and appended."""

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from cordwood.checksums import crc32c
from cordwood.errors import (
    CordwoodError,
    FormatError,
    LogHeldError,
    NotLeaderError,
    OutOfOrderSequenceError,
    StorageError,
    UnverifiedTransactionError,
)
from cordwood.format.batch_builder import seal
from cordwood.format.batch_header import (
    CONTROL,
    PRODUCER_POSITION,
    TRANSACTIONAL,
    decode_batch_header,
)
from cordwood.format.control_record import ControlType, EndTransactionMarker, encode_marker
from cordwood.format.record_encoding import encode_sole
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.appends.promises import Promises
from cordwood.log.partition.derived_state.log_producers import LogProducers
from cordwood.log.partition.derived_state.producer_snapshots import finish_marker
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.writing.batch_writer import BatchWriter
from cordwood.log.rules.append_checks import BatchBytes, check_produced_batch
from cordwood.log.rules.batch_group import BatchGroup, producer_facts
from cordwood.log.rules.interruption import insist
from cordwood.log.rules.producer_entry import Duplicate
from cordwood.log.rules.producer_state import AppendOrigin, MarkerFacts, VerificationGuard
from cordwood.log.rules.refused_sequences import RefusedSequences
from cordwood.log.rules.transaction_rules import TransactionRules
from cordwood.quantities import INT32_MAX, NO_PRODUCER_ID, LeaderEpoch, Offset, TimestampMs
from cordwood.value_class import dataclass, replace

# Why a batch may be refused now and accepted when it comes again.
_PASSING: Final = (LogHeldError, NotLeaderError, StorageError, OSError)
_PRODUCER: Final = struct.Struct(">qh")  # the id and the epoch, in the header of a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedBatch:
    """Where a client's batch is stored, now or, for a duplicate, since it came first."""

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: TimestampMs
    is_duplicate: bool = False


class ClientBatches:
    """Appends clients' batches to one log. Any thread may call it."""

    def __init__(
        self,
        parts: LogParts,
        holder: StateHolder,
        *,
        writer: BatchWriter,
        promises: Promises,
        producers: LogProducers,
    ) -> None:
        self._clock = parts.clock
        self._holder = holder
        self._writer = writer
        self._promises = promises
        self._producers = producers
        self._refused = RefusedSequences()

    def append_batch(
        self,
        data: BatchBytes,
        *,
        leader_epoch: int | None = None,
        wait: bool = True,
        is_brief: bool = False,
        is_patient: bool = False,
        transaction: TransactionRules | None = None,
        led_in: LeaderEpoch | None = None,
    ) -> AppendedBatch:
        """Append one encoded batch, after every check a broker makes.

        A writable `data` is stamped in place and written from there. A batch that an idempotent
        producer sends again is not stored again: the answer is where the first one is.

        Without `wait` it returns at once: not durable, and with a `LogHeldError` while a
        publication is under way, unless it `is_patient`. With `is_brief` a batch whose check would
        take long is refused with a `LongCheckError`: for a thread that others wait for.

        Under the rules of a `transaction`, a batch that would begin one without the coordinator's
        consent is refused with an `UnverifiedTransactionError`. The check and the write are one
        step, so a marker that comes in between cannot be missed.

        With `led_in` the batch is refused with a `NotLeaderError` unless this replica leads in that
        epoch. A caller that waits for other replicas then knows the leadership of the batch.
        """
        now_ms = self._clock.now_ms()
        checked = check_produced_batch(data, self._holder.config, now_ms=now_ms, is_brief=is_brief)
        batch = checked.unplaced
        with self._holder.lock:
            try:
                self._holder.check_appendable(wait=wait or is_patient)
                if led_in is not None:
                    self._holder.check_led_in(led_in)
                duplicate = self._check_producer(batch, transaction)
                if duplicate is None:
                    epoch = None if leader_epoch is None else LeaderEpoch(leader_epoch)
                    base = self._writer.write(checked.data, batch, now_ms, leader_epoch=epoch)
            except _PASSING:
                self._note_refused(batch)
                raise
            if duplicate is None:
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

    def append_built(
        self,
        batches: Sequence[tuple[bytearray | memoryview, UnplacedBatch]],
        *,
        transaction: TransactionRules,
    ) -> Offset:
        """Append batches of one producer that this process built; return their base offset.

        Their offsets are consecutive, and readers see all of them at once. Only the producer is
        checked. Does not wait for the disk. After an error some may be in the log: the transaction
        must be aborted.
        """
        now_ms = self._clock.now_ms()
        with self._holder.lock:
            self._holder.check_appendable()
            first = self._holder.state.end
            left = len(batches)
            for data, batch in batches:
                left -= 1
                duplicate = self._check_producer(batch, transaction)
                assert duplicate is None, f"sequence {batch.base_sequence} was used before"
                self._writer.write(data, batch, now_ms, is_visible=not left)
        return first

    def append_group(
        self, group: BatchGroup, *, led_in: LeaderEpoch | None = None
    ) -> list[Offset | Exception]:
        """Append batches that were checked before, in one write if that is possible.

        Returns an answer for each, in order: its base offset, or why it was refused. Does not
        wait for the disk: see `Promises.is_kept`. For `led_in` see `append_batch`.
        """
        now_ms = self._clock.now_ms()
        batches = group.batches
        with self._holder.lock:
            try:
                self._holder.check_appendable(wait=False)
                if led_in is not None:
                    self._holder.check_led_in(led_in)
            except CordwoodError as error:
                if isinstance(error, _PASSING):
                    self._note_all_refused(batches)
                return [error] * len(batches)
            answers: list[Offset | Exception] = []
            self._writer.write_group(
                group.data,
                batches,
                now_ms,
                admit=lambda index: self._answer_known(batches[index], group.rules),
                is_admitted=not group.is_numbered or self._are_all_new(batches, group.rules),
                answers=answers,
            )
            if group.is_numbered:
                for batch, answer in zip(batches, answers, strict=True):
                    if isinstance(answer, _PASSING):
                        self._note_refused(batch)
        return answers

    def note_refused(self, batches: Sequence[UnplacedBatch]) -> None:
        """A caller refused batches for a reason that passes: see `refused_sequences`."""
        with self._holder.lock:
            self._note_all_refused(batches)

    def note_refused_bytes(self, data: memoryview) -> None:
        """As `note_refused`, of a batch that nobody has checked."""
        try:
            header = decode_batch_header(data)
        except FormatError:
            return
        if header.base_sequence >= 0:
            batch = UnplacedBatch(
                len(data),
                1,  # what it says is not checked, and only its first sequence counts
                header.max_timestamp,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.is_transactional,
            )
            self.note_refused([batch])

    def _note_all_refused(self, batches: Sequence[UnplacedBatch]) -> None:
        for batch in batches:
            self._note_refused(batch)

    def _note_refused(self, batch: UnplacedBatch) -> None:
        """Remember a batch that would have been the next one of its producer. Holds the lock."""
        producer_id, states = batch.producer_id, self._producers.states
        if producer_id == NO_PRODUCER_ID:
            return
        try:
            if states.check(producer_facts(batch, self._holder.state.end)) is not None:
                return
        except CordwoodError:
            return
        self._refused.note(
            producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            self._clock.monotonic(),
            is_known=states.is_known(producer_id),
        )

    def _are_all_new(
        self, batches: Sequence[UnplacedBatch], rules: Mapping[int, TransactionRules]
    ) -> bool:
        """Whether none is refused or was stored before. Holds the lock.

        The first batch of each producer decides: the others continue its sequence.
        """
        seen: set[int] = set()
        for batch in batches:
            if batch.producer_id not in seen:
                seen.add(batch.producer_id)
                if self._answer_known(batch, rules) is not None:
                    return False
        return True

    def _answer_known(
        self, batch: UnplacedBatch, rules: Mapping[int, TransactionRules]
    ) -> Offset | Exception | None:
        """Where a batch was stored before, or why it is refused; None: write it. Holds the lock."""
        try:
            duplicate = self._check_producer(batch, rules.get(batch.producer_id))
        except CordwoodError as error:
            return error
        return None if duplicate is None else duplicate.first_offset

    def _check_producer(
        self, batch: UnplacedBatch, rules: TransactionRules | None = None
    ) -> Duplicate | None:
        """Refuse a batch out of sequence; return where a duplicate is. Holds the lock."""
        if batch.producer_id == NO_PRODUCER_ID:
            return None
        facts = producer_facts(batch, self._holder.state.end)
        states = self._producers.states
        starts_at_zero = rules is not None and rules.starts_at_zero
        try:
            duplicate = states.check(facts, unknown_starts_at_zero=starts_at_zero)
        except OutOfOrderSequenceError as error:
            if not self._producers.recall(facts):
                self._refused.check_gap(
                    batch.producer_id,
                    batch.producer_epoch,
                    self._clock.monotonic(),
                    expected=error.expected,
                    got=batch.base_sequence,
                )
                raise
            duplicate = states.check(facts, unknown_starts_at_zero=starts_at_zero)
        if self._refused and duplicate is None and not states.is_known(batch.producer_id):
            self._refused.check_first(
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                self._clock.monotonic(),
            )
        if (
            rules is not None
            and duplicate is None
            and batch.is_transactional
            and not rules.may_begin
            and not states.is_in_transaction(batch.producer_id, batch.producer_epoch)
        ):
            raise UnverifiedTransactionError(batch.producer_id)
        if rules is not None and duplicate is None and batch.is_transactional:
            self._check_guard(batch, rules.guard)
        return duplicate

    def _check_guard(self, batch: UnplacedBatch, guard: VerificationGuard | None) -> None:
        """Refuse to begin a transaction that may have ended since its coordinator agreed."""
        states = self._producers.states
        if (
            guard is not None
            and not states.is_in_transaction(batch.producer_id, batch.producer_epoch)
            and not states.is_guarded(batch.producer_id, guard)
        ):
            raise UnverifiedTransactionError(batch.producer_id)

    def append_of_coordinator(
        self,
        data: bytearray | memoryview,
        batch: UnplacedBatch,
        *,
        wait: bool = True,
        led_in: LeaderEpoch | None = None,
        guard: VerificationGuard | None = None,
    ) -> Offset:
        """Append a transactional batch of a group coordinator; return its base offset.

        Such a batch has no sequence numbers. Only its epoch is checked, and its `guard`. For
        `led_in` see `append_batch`.
        """
        now_ms = self._clock.now_ms()
        with self._holder.lock:
            self._holder.check_appendable()
            if led_in is not None:
                self._holder.check_led_in(led_in)
            facts = producer_facts(batch, self._holder.state.end)
            self._producers.states.check(facts, origin=AppendOrigin.COORDINATOR)
            self._check_guard(batch, guard)
            base = self._writer.write(data, batch, now_ms)
        if wait:
            self._promises.await_kept(Offset(base + batch.record_count))
        return base

    def end_transaction(
        self,
        marker: MarkerFacts,
        *,
        transaction_version: int = 1,
        wait: bool = True,
        is_patient: bool = True,
        led_in: LeaderEpoch | None = None,
        begun_in: int | None = None,
    ) -> Offset:
        """Append the marker that ends a transaction; return its offset. See `append_marker`."""
        return self.append_marker(
            _marker_batch(marker),
            marker,
            transaction_version=transaction_version,
            wait=wait,
            is_patient=is_patient,
            led_in=led_in,
            begun_in=begun_in,
        )

    def append_marker(
        self,
        data: bytearray | memoryview,
        marker: MarkerFacts,
        *,
        transaction_version: int = 1,
        wait: bool = True,
        is_patient: bool = True,
        led_in: LeaderEpoch | None = None,
        begun_in: int | None = None,
    ) -> Offset:
        """Append the control batch that ends a transaction; return its offset.

        Without `wait` it is not durable on return. Unless it `is_patient`, a publication under way
        refuses it with a `LogHeldError`. For `led_in` see `append_batch`. With `begun_in` it is
        refused with an `UnverifiedTransactionError` unless it ends a transaction of that epoch.
        """
        now_ms = self._clock.now_ms()
        with self._holder.lock:
            self._holder.check_turn(wait=is_patient)
            if led_in is not None:
                self._holder.check_led_in(led_in)
            states = self._producers.states
            states.check_marker(marker, transaction_version=transaction_version)
            if begun_in is not None and not states.is_in_transaction(marker.producer_id, begun_in):
                raise UnverifiedTransactionError(marker.producer_id)
            offset = self._holder.state.end
            if marker.offset != offset:
                marker = replace(marker, offset=offset)
            if marker.is_abort:
                self._write_marker(data, marker, now_ms)
                with self._holder.changing("the end of a transaction"):
                    finish_marker(states, self._holder.state.segments.active, marker)
                    self._writer.show()
            else:
                self._write_commit(data, marker, now_ms)
        if wait:
            self._promises.await_kept(Offset(offset + 1))
        return offset

    def _write_marker(
        self, data: bytearray | memoryview, marker: MarkerFacts, now_ms: TimestampMs
    ) -> None:
        batch = UnplacedBatch(len(data), 1, marker.timestamp)
        at = self._writer.write(data, batch, now_ms, is_visible=False)
        assert at == marker.offset, (at, marker)

    def _write_commit(
        self, data: bytearray | memoryview, marker: MarkerFacts, now_ms: TimestampMs
    ) -> None:
        """Write the marker of a commit and close its transaction. Holds the lock.

        The caller's thread may be interrupted: what was written is closed all the same.
        """
        states, holder = self._producers.states, self._holder
        completed = states.completed_by(marker)

        def close() -> None:
            if holder.state.end > marker.offset and holder.half_done is None:
                states.commit(marker, completed)
                self._writer.show()

        try:
            self._write_marker(data, marker, now_ms)
            close()
        except BaseException:
            insist(close)
            raise

    def abort_open_transactions(self) -> int:
        """End every open transaction with an abort marker; return how many. Durable on return.

        For a log whose end was cut off: nobody else will end them.
        """
        with self._holder.lock:
            markers = self._producers.states.abort_markers()
        for marker in markers:
            self.append_marker(_marker_batch(marker), marker)
        if markers:
            self._promises.await_durable(self._holder.state.end)
        return len(markers)


def _marker_batch(marker: MarkerFacts) -> bytearray:
    """A control batch of one record: as `build_batch` makes it, in fewer steps."""
    key, value = _marker_record(marker.is_abort, marker.coordinator_epoch)
    timestamp = marker.timestamp
    data = encode_sole(
        value, key, (), timestamp, timestamp, TRANSACTIONAL | CONTROL, INT32_MAX, crc32c
    )
    assert isinstance(data, bytearray)
    _PRODUCER.pack_into(data, PRODUCER_POSITION, marker.producer_id, marker.producer_epoch)
    seal(data)
    return data


@lru_cache(64)
def _marker_record(is_abort: bool, coordinator_epoch: int) -> tuple[bytes, bytes]:
    kind = ControlType.ABORT if is_abort else ControlType.COMMIT
    return encode_marker(EndTransactionMarker(type=kind, coordinator_epoch=coordinator_epoch))

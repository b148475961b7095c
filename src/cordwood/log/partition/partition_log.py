"""A partition's log, opened for writing.

`PartitionLog` is a façade. The state of the log is one frozen value (`log_state`) that is changed
in one place (`state_holder`); each concern is a part of its own that is given both:

    appending      how records and batches get in; `batch_writer` is the one way to write
    promises       what an acknowledgement waits for; `group_commit` shares the sync
    syncing        how what was written becomes durable; checkpoints
    rolling        when a new segment begins
    truncation     taking away the end
    deletion       taking away the beginning
    compaction     replacing segments by compacted ones
    publication    holding the log back for a publication
    upkeep         retention and key indexes
    archive        older segments that lie elsewhere
    producers, epochs
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.record import Header
from cordwood.log.partition.appending import AppendedBatch, Appending, batch_style
from cordwood.log.partition.batch_group import BatchGroup
from cordwood.log.partition.batch_writer import BatchWriter
from cordwood.log.partition.deletion import Deletion
from cordwood.log.partition.group_commit import GroupCommit
from cordwood.log.partition.log_archive import LogArchive
from cordwood.log.partition.log_epochs import LogEpochs
from cordwood.log.partition.log_loader import LoadedLog
from cordwood.log.partition.log_parts import LogParts
from cordwood.log.partition.log_producers import LogProducers
from cordwood.log.partition.log_state import LogState, UnsyncedFiles
from cordwood.log.partition.log_sync import LogSync
from cordwood.log.partition.promises import Promises
from cordwood.log.partition.publication_hold import PublicationHold
from cordwood.log.partition.rolling import Rolling
from cordwood.log.partition.segment_replacement import SegmentReplacement
from cordwood.log.partition.state_holder import StateHolder
from cordwood.log.partition.truncation import Truncation
from cordwood.log.partition.upkeep import Upkeep
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.log_source import LogView
from cordwood.log.rules.append_checks import BatchBytes
from cordwood.log.rules.appended import Appended, AppendedRange
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.segment import Segment


class PartitionLog(LogReader):
    """One partition, for its one writer process. Readers elsewhere use `ReadOnlyLog`."""

    def __init__(self, parts: LogParts, loaded: LoadedLog) -> None:
        super().__init__(parts.topic, parts.partition, self)
        self.directory = parts.directory
        self.damages = [
            damage
            for damage in loaded.damages  # what is held was promised to nobody, and is removed
            if parts.held_from is None or damage.first_offset < parts.held_from
        ]
        holder = StateHolder(parts, _opening_state(parts, loaded))
        self._holder = holder
        self.epochs = LogEpochs(parts, loaded.epochs, loaded.end)
        self.producers = LogProducers(parts, holder, loaded.producers)
        self.archive = LogArchive(holder)
        self.rolling = Rolling(parts, holder, self.producers)
        self.syncing = LogSync(parts, holder, self.producers, self.rolling)
        self.truncation = Truncation(
            parts,
            holder,
            rolling=self.rolling,
            producers=self.producers,
            epochs=self.epochs,
            archive=self.archive,
        )
        self.deletion = Deletion(
            parts, holder, producers=self.producers, epochs=self.epochs, archive=self.archive
        )
        writer = BatchWriter(parts, holder, self.rolling, self.producers, self.epochs)
        commits = GroupCommit(holder, writer, self.syncing)
        self.promises = Promises(parts, holder, commits, self.syncing)
        self.publication = PublicationHold(
            parts, holder, writer=writer, syncing=self.syncing, truncation=self.truncation
        )
        self.compaction = SegmentReplacement(parts, holder, self.producers, self.syncing)
        self.upkeep = Upkeep(
            parts, holder, rolling=self.rolling, deletion=self.deletion, archive=self.archive
        )
        self._appending = Appending(
            parts,
            holder,
            writer=writer,
            commits=commits,
            promises=self.promises,
            producers=self.producers,
            truncation=self.truncation,
        )
        self.watch = holder.watch

    # --- appending ---------------------------------------------------------------------------

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
        return self._appending.append(value, key, headers, timestamp_ms, expected_offset)

    def append_many(
        self, records: Iterable[Any], *, expected_offset: int | None = None
    ) -> AppendedRange:
        """Append `Record`s or (key, value) pairs in order, all or none of them.

        All become visible at once, when the topic's durability is reached.
        """
        return self._appending.append_many(records, expected_offset)

    def append_batch(
        self, data: BatchBytes, *, leader_epoch: int | None = None, wait: bool = True
    ) -> AppendedBatch:
        """Append one encoded batch from a client, after every check a broker makes.

        A writable `data` is stamped in place and written from there. A batch that an idempotent
        producer sends again is not stored again: the answer is where the first one is.

        Without `wait` it returns at once: not durable, and with a `LogHeldError` while a
        publication is under way.
        """
        return self._appending.append_batch(data, leader_epoch, wait=wait)

    def append_group(self, group: BatchGroup) -> list[Offset | Exception]:
        """Append clients' batches that were checked before, in one write if that is possible.

        Returns an answer for each, in order: its base offset, or why it was refused. Does not
        wait for the disk: see `Promises.is_kept`.
        """
        return self._appending.append_group(group)

    def append_marker(self, data: bytearray | memoryview, marker: MarkerFacts) -> Offset:
        """Append the control batch that ends a transaction; return its offset."""
        return self._appending.append_marker(data, marker)

    # --- facts -------------------------------------------------------------------------------

    @property
    def state(self) -> LogState:
        """Everything there is to know of the local log at one moment."""
        return self._holder.state

    @property
    def config(self) -> TopicConfig:
        return self._holder.config

    def view(self) -> LogView:
        """The whole log: what only the archive has, then the local segments."""
        return self.archive.view()

    @property
    def high_watermark(self) -> Offset:
        """First offset that readers may not see."""
        return self._holder.state.high_watermark

    @property
    def end_offset(self) -> Offset:
        """The offset the next record will get."""
        return self._holder.state.end

    @property
    def is_closed(self) -> bool:
        return self._holder.state.is_closed

    @property
    def last_stable_offset(self) -> Offset:
        return self.producers.last_stable_offset

    @property
    def allows_gaps(self) -> bool:
        return self._holder.allows_gaps

    def wait_beyond(self, offset: Offset, timeout_s: float | None) -> bool:
        return self._holder.wait_beyond(offset, timeout_s)

    @property
    def compacted_up_to(self) -> Offset | None:
        return self.state.cleaned_up_to if self.config.is_compacted else None

    def readable_bytes(self, segment: Segment) -> int:
        return segment.size

    def largest_timestamp(self, segment: Segment) -> tuple[TimestampMs, Offset]:
        return segment.largest_timestamp

    def aborted_transactions(self, start: Offset, stop: Offset) -> list[AbortedTransaction]:
        return self.view().segments.aborted_transactions(start, stop)

    def refresh(self) -> None:
        self.archive.refresh()

    def remembers_keys(self, view: LogView) -> bool:
        return self.config.key_index

    # --- the whole log -----------------------------------------------------------------------

    def roll(self) -> Offset:
        """Seal the active segment now, if it holds anything; return the active base offset."""
        self.rolling.roll_if_filled()
        self.syncing.request_after_roll()
        return self.state.segments.active.base_offset

    def sync(self) -> None:
        """Make everything appended so far durable."""
        self._holder.check_open()
        self.promises.await_durable(self.state.end)

    def delete_before(self, offset: int) -> Offset:
        """Make offsets below `offset` unreadable and remove segments that hold nothing else.

        Returns the new start. Durable on return.
        """
        return self.deletion.delete_before(offset)

    def reconfigure(self, config: TopicConfig) -> None:
        """Use another configuration from here on.

        If the topic now promises the disk, everything that was promised less is synced first.
        """
        with self._holder.lock:
            self._holder.config = config
            self._appending.style = batch_style(config)
        if config.durability == "disk":
            self.promises.await_durable(self.state.end)

    def close(self) -> None:
        """Sync everything and close the files; a restart then re-reads nothing. Safe to repeat.

        A log that failed is closed as it is: its files decide at the next start.
        """
        if self.is_closed:
            return
        self.syncing.checkpoint()
        with self._holder.sync_lock, self._holder.lock:
            self._complete_time_index()
            self._holder.close()

    def abandon(self) -> None:
        """Close as a crash would: nothing is synced or completed. Safe to repeat."""
        with self._holder.sync_lock, self._holder.lock:
            self._holder.close()

    def _complete_time_index(self) -> None:
        """A log closed in order names its largest timestamp: Kafka trusts that on a clean start."""
        if self.state.failure is not None:
            return
        active = self.state.segments.active
        try:
            if active.complete_time_index():
                active.sync_index()
        except OSError as error:
            self._holder.fail_locked(f"the time index could not be completed: {error}")


def _opening_state(parts: LogParts, loaded: LoadedLog) -> LogState:
    state = LogState(
        segments=loaded.segments,
        start=loaded.start,
        high_watermark=loaded.start,
        end=loaded.end,
        durable=loaded.durable,
        recovery_point=loaded.recovery_point,
        held_from=parts.held_from,
        unsynced=UnsyncedFiles(tuple(loaded.unsealed), has_names=bool(loaded.unsealed)),
    )
    shown = parts.role.high_watermark(state, parts.config, end=state.end, durable=state.durable)
    return state._replace(high_watermark=max(shown, state.start))

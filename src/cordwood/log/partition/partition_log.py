"""A partition's log, opened for writing.

`PartitionLog` is a façade. The state of the log is one frozen value (`log_state`) that is changed
in one place (`state_holder`). Each concern is a part that is given the state holder; no part
inherits from another:

    appending      records; the façade has its two calls, too
    batches        batches that clients encoded
    promises       what an acknowledgement waits for
    syncing        how what was written becomes durable; checkpoints
    rolling        when a new segment begins
    truncation     taking away the end
    deletion       taking away the beginning
    compaction     replacing segments by compacted ones
    publication    holding the log back for a publication
    upkeep         retention and key indexes
    archive        older segments that lie elsewhere
    producers      what the log remembers of idempotent and transactional producers
    epochs         which leader epoch wrote which offsets
    replica        the log as one replica of many: its role, its high watermark, batches of others

Inside, `batch_writer` is the one way to write, and `group_commit` lets many threads share a sync.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from cordwood.errors import DiskFullError, LogClosedError
from cordwood.format.record import Header
from cordwood.log.partition.appends.appending import Appending
from cordwood.log.partition.appends.client_batches import ClientBatches
from cordwood.log.partition.appends.group_commit import GroupCommit
from cordwood.log.partition.appends.promises import Promises
from cordwood.log.partition.appends.publication_hold import PublicationHold
from cordwood.log.partition.appends.replica_log import ReplicaLog
from cordwood.log.partition.derived_state.log_epochs import LogEpochs
from cordwood.log.partition.derived_state.log_producers import LogProducers
from cordwood.log.partition.log_loader import LoadedLog
from cordwood.log.partition.removal.deletion import Deletion
from cordwood.log.partition.removal.segment_replacement import SegmentReplacement
from cordwood.log.partition.removal.truncation import Truncation
from cordwood.log.partition.removal.upkeep import Upkeep
from cordwood.log.partition.state.disk_health import ShortOfRoom
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.log_state import LogState, UnsyncedFiles
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.view.live_source import LiveSource, ReplicaSource
from cordwood.log.partition.view.log_archive import LogArchive
from cordwood.log.partition.view.segment_gaps import SegmentGaps
from cordwood.log.partition.writing.batch_writer import BatchWriter
from cordwood.log.partition.writing.log_sync import LogSync
from cordwood.log.partition.writing.rolling import Rolling
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.rules.appended import Appended, AppendedRange
from cordwood.log.rules.topic_config import Durability, TopicConfig
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.storage.recovery import Damage


class PartitionLog(LogReader):
    """One partition, for its one writer process. Readers elsewhere use `ReadOnlyLog`."""

    def __init__(self, parts: LogParts, loaded: LoadedLog) -> None:
        self.directory = parts.directory
        self._is_closed_cleanly = False
        self.damages = [
            damage
            for damage in loaded.damages  # what is held was promised to nobody, and is removed
            if parts.held_from is None or damage.first_offset < parts.held_from
        ]
        holder = StateHolder(
            parts, _opening_state(parts, loaded), manifest=loaded.manifest, holes=loaded.holes
        )
        self._holder = holder
        self.epochs = LogEpochs(parts, loaded.epochs, loaded.end)
        self.producers = LogProducers(parts, holder, loaded.producers)
        # The parts of a log do not refer to it: so it is freed when nobody uses it any more, and
        # does not wait for a search for garbage.
        self.archive = archive = LogArchive(holder)
        super().__init__(
            parts.topic, parts.partition, LiveSource(holder, self.archive, self.producers)
        )
        self._gaps = SegmentGaps(self.source, lambda: archive.local_view)
        self.rolling = Rolling(parts, holder, self.producers)
        self.syncing = LogSync(parts, holder, self.producers, self.rolling, self.epochs)
        self.truncation = Truncation(
            parts,
            holder,
            rolling=self.rolling,
            producers=self.producers,
            epochs=self.epochs,
            archive=self.archive,
        )
        self.deletion = Deletion(
            parts,
            holder,
            producers=self.producers,
            epochs=self.epochs,
            archive=self.archive,
            syncing=self.syncing,
        )
        writer = BatchWriter(parts, holder, self.rolling, self.producers, self.epochs)
        commits = GroupCommit(holder, writer, self.syncing)
        self.promises = Promises(parts, holder, commits, self.syncing, self.rolling)
        self.publication = PublicationHold(
            parts, holder, writer=writer, syncing=self.syncing, truncation=self.truncation
        )
        self.compaction = SegmentReplacement(parts, holder, self.producers, self.syncing)
        self.upkeep = Upkeep(
            parts, holder, rolling=self.rolling, deletion=self.deletion, archive=self.archive
        )
        self.appending = Appending(
            parts,
            holder,
            writer=writer,
            commits=commits,
            promises=self.promises,
            truncation=self.truncation,
        )
        self.batches = ClientBatches(
            parts, holder, writer=writer, promises=self.promises, producers=self.producers
        )
        self.replica = ReplicaLog(
            parts,
            holder,
            writer=writer,
            rolling=self.rolling,
            epochs=self.epochs,
            truncation=self.truncation,
            deletion=self.deletion,
            source=ReplicaSource(holder, self.archive, self.producers),
            damages=self.damages,
            sync=self.syncing.sync_pending,
        )

    # --- appending ---------------------------------------------------------------------------

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] | Mapping[str, bytes | None] = (),
        timestamp_ms: int | datetime | None = None,
        expected_offset: int | None = None,
        durability: Durability | None = None,
    ) -> Appended:
        """Append one record; return its place once its durability is reached.

        With `expected_offset` the record is refused unless it would get that offset. `durability`
        is "disk" or "os" for this call; None: the topic's.

        With "os" in a topic of durability "disk", the record survives the end of the process, but
        not a power cut, and readers do not see it before the next sync, which is requested at once.
        With "disk" in a topic of durability "os", the call syncs everything before the record too.
        """
        return self.appending.append(value, key, headers, timestamp_ms, expected_offset, durability)

    def append_many(
        self, records: Iterable[Any], *, expected_offset: int | None = None
    ) -> AppendedRange:
        """Append `Record`s or (key, value) pairs in order, all or none of them.

        All become visible at once, when the topic's durability is reached.
        """
        return self.appending.append_many(records, expected_offset)

    def find_damages(self) -> list[Damage]:
        """What recovery could not read, and what is lost between the segments."""
        if self.state.is_closed:
            raise LogClosedError(self.name)
        return self._gaps.find(lambda: self.damages)

    # --- facts -------------------------------------------------------------------------------

    @property
    def state(self) -> LogState:
        """Everything there is to know of the local log at one moment."""
        return self._holder.state

    @property
    def config(self) -> TopicConfig:
        """The configuration of the topic, as it is now."""
        return self._holder.config

    @property
    def is_failed(self) -> bool:
        """Whether it accepts no appends until a restart, because its disk failed."""
        return self.state.failure is not None or self._holder.health.failure is not None

    @property
    def want_of_room(self) -> DiskFullError | None:
        """Why nothing should be written now: its disk is short of room. None if it is not."""
        refusal = self._holder.health.refusal
        return refusal.error_for(self.name) if isinstance(refusal, ShortOfRoom) else None

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

    def delete_before(self, offset: int, *, led_in: LeaderEpoch | None = None) -> Offset:
        """Make offsets below `offset` unreadable and remove segments that hold nothing else.

        Returns the new start. Durable on return. `led_in` is for a replica of a cluster: nothing
        is deleted unless it leads in that epoch, and `NotLeaderError` is raised.
        """
        return self.deletion.delete_before(offset, led_in=led_in)

    def close(self, *, is_orderly: bool = True) -> bool:
        """Sync everything and close the files; True if a restart re-reads nothing.

        It is False if the log failed or an index could not be written: then the files decide at
        the next start. Without `is_orderly` nothing is synced, as in a crash. Safe to repeat. If
        something raises, the log is closed all the same.
        """
        if self.is_closed:
            return self._is_closed_cleanly
        try:
            if is_orderly:
                self.syncing.checkpoint()
        except BaseException:
            is_orderly = False
            raise
        finally:
            with self._holder.sync_lock, self._holder.lock:
                try:
                    if is_orderly:
                        self.syncing.complete_time_index()
                        self.syncing.trim()
                        self._is_closed_cleanly = self.syncing.is_complete
                finally:
                    self._holder.close()
        return self._is_closed_cleanly


def _opening_state(parts: LogParts, loaded: LoadedLog) -> LogState:
    names = parts.fs.open_directory(parts.directory) if loaded.unsealed else None
    state = LogState(
        segments=loaded.segments,
        start=loaded.start,
        high_watermark=loaded.start,
        end=loaded.end,
        durable=loaded.durable,
        recovery_point=loaded.recovery_point,
        held_from=parts.held_from,
        unsynced=UnsyncedFiles(tuple(loaded.unsealed), names=names),
    )
    mark = parts.marks.read().high_watermark
    shown = parts.role.opening_high_watermark(state, parts.config, mark)
    return state._replace(high_watermark=max(shown, state.start))

"""A store: topics over one or several data directories, held by one writer process."""

import os
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cordwood.errors import (
    ConfigError,
    StorageError,
)
from cordwood.format.file_names import (
    CONSUMER_OFFSETS_TOPIC,
)
from cordwood.log.compaction.cleaner import Cleaner
from cordwood.log.compaction.compaction_run import CompactionResult
from cordwood.log.inbox.change_service import ChangeService
from cordwood.log.inbox.store_change import CommitGroup
from cordwood.log.inbox.topic_change import ForgetGroup
from cordwood.log.inbox.upkeep_change_service import UpkeepChangeService
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.archived_segments import ArchiveStatus
from cordwood.log.rules.compaction_plan import CompactionPlan
from cordwood.log.rules.retention import RetentionPlan
from cordwood.log.rules.work_progress import WorkProgress
from cordwood.log.store.archive_port import Archives
from cordwood.log.store.backup import Backup, StoreSnapshot
from cordwood.log.store.housekeeping import Housekeeping, UpkeepFunction, UpkeepStatus
from cordwood.log.store.opened_directories import OFFSETS_CONFIG, StoreSetup
from cordwood.log.store.publishing_store import PublishingStore
from cordwood.log.store.upkeep_tasks import FREE_BYTES_MIN, UpkeepTasks
from cordwood.log.topics.committed_offsets import CommittedOffsets, Group
from cordwood.log.topics.producer_ids import ProducerIds
from cordwood.log.topics.topic import Topic
from cordwood.quantities import NO_PRODUCER_ID
from cordwood.storage.files import RealFileSystem

__all__ = ["Store", "StoreSetup"]

_CLEANER_S: Final = 15.0  # as Kafka's log.cleaner.backoff.ms
_ARCHIVE_S: Final = 30.0  # as Kafka's remote.log.manager.task.interval.ms
_INBOX_S: Final = 0.25  # how long someone outside may wait for us to see a request
_LEFTOVERS_S: Final = 600.0


class Store(PublishingStore):
    """Topics, groups and their upkeep, for one writer. Any thread may use it."""

    def __init__(self, directories: Sequence[str], setup: StoreSetup) -> None:
        self._is_closing = threading.Event()  # set before the lock is waited for
        super().__init__(directories, setup)
        self.committed_offsets = CommittedOffsets(
            self._offsets_topic, setup.clock, self._id_of_topic
        )
        self.producer_ids = ProducerIds(setup.fs, lambda: self.data_dirs, self._largest_producer_id)
        self._housekeeping = Housekeeping(self.path, setup.clock)
        self._tasks = UpkeepTasks(
            lambda: list(self._directories), setup.clock, free_bytes_min=_free_bytes_min(setup)
        )
        self._tasks.register(self._housekeeping)
        self.cleaner = Cleaner(self._all_logs, self._tasks.steady_clock, setup.cleaner)
        self._housekeeping.add("compaction", _CLEANER_S, self._run_cleaner, takes_long=True)
        if setup.archives is not None:
            self._housekeeping.add("archive", _ARCHIVE_S, self._run_archive, takes_long=True)
        self.changes = ChangeService(
            self,
            setup.fs,
            setup.clock,
            self._commit_group,
            self._forget_group,
            UpkeepChangeService(self),
        )
        self._housekeeping.add(
            "inbox",
            _INBOX_S,
            self._run_inbox,
            takes_long=True,
            is_needed=self.changes.inbox.has_requests,
        )
        self._housekeeping.add("inbox leftovers", _LEFTOVERS_S, self._run_sweep)
        if setup.has_housekeeping:
            self._housekeeping.start()

    # --- groups ------------------------------------------------------------------------------

    def group(self, name: str) -> Group:
        """A consumer group's committed offsets."""
        self._check_open()
        if not name:
            raise ConfigError("group", name, "must not be empty")
        return Group(name, self.committed_offsets)

    def groups(self) -> list[str]:
        """The names of all groups that have committed offsets."""
        self._check_open()
        return self.committed_offsets.groups()

    def ensure_offsets_topic(
        self, *, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> Topic[PartitionLog]:
        """The topic that committed offsets are kept in, created like this if it is not there."""
        with self._lock:
            topic = self._topics.get(CONSUMER_OFFSETS_TOPIC)
            return topic or self.create_topic(
                CONSUMER_OFFSETS_TOPIC,
                partitions=partitions,
                config={**OFFSETS_CONFIG, **(config or {})},
            )

    def delete_topic(self, name: str) -> None:
        """As `TopicStore`; what groups committed for the topic is forgotten too."""
        super().delete_topic(name)
        self.committed_offsets.remove_topic(name)

    def _offsets_topic(self, create: bool) -> Topic[PartitionLog] | None:
        topic = self._topics.get(CONSUMER_OFFSETS_TOPIC)
        return self.ensure_offsets_topic() if topic is None and create else topic

    def _largest_producer_id(self, below: int) -> int:
        known = (log.producers.largest_id(below=below) for log in self._all_logs())
        return max(known, default=NO_PRODUCER_ID)

    def _id_of_topic(self, name: str) -> uuid.UUID | None:
        topic = self._topics.get(name)
        return None if topic is None else topic.topic_id

    # --- changes asked for from outside ------------------------------------------------------

    def serve_changes(self, *, meanwhile: Callable[[], None] | None = None) -> int:
        """Make the changes that wait in the inbox, as the housekeeping does; return how many.

        Those that take long are waited for; `meanwhile` is called now and then.
        """
        self._check_open()
        return self.changes.serve(meanwhile=meanwhile)

    def _commit_group(self, change: CommitGroup) -> None:
        self.group(change.group).commit(change.offsets)

    def _forget_group(self, change: ForgetGroup) -> None:
        group = self.group(change.group)
        places = tuple(group.committed()) if change.places is None else change.places
        if places:
            group.forget(*places)

    def _run_inbox(self) -> None:
        self.changes.serve(wait=False)

    def _run_sweep(self) -> None:
        self.changes.sweep()

    # --- upkeep ------------------------------------------------------------------------------

    def maintain(self) -> None:
        """One pass of everything the background does, now, in this thread.

        Each task runs, also when one before it failed; the first failure is then raised.
        """
        self._check_open()
        self._housekeeping.run_all()

    def upkeep(self) -> list[UpkeepStatus]:
        """What the housekeeping does, when it last did it, how that went, and when it is next."""
        return self._housekeeping.status()

    def add_upkeep(self, name: str, interval_s: float, function: UpkeepFunction) -> None:
        """Have the housekeeping run `function` too, on a thread of its own when it is due.

        It returns the bytes of disk it gave back, or None.
        """
        self._housekeeping.add(name, interval_s, function, takes_long=True)

    def explain_retention(self, topic: str) -> list[RetentionPlan]:
        """For each partition, what retention would do now and why: the plan that runs."""
        now_ms = self._tasks.steady_clock.now_ms()
        return [log.upkeep.plan_retention(now_ms) for log in self.topic(topic).partitions]

    def explain_compaction(self, topic: str, *, force: bool = False) -> list[CompactionPlan]:
        """For each partition, what compaction would do now, or why it would not."""
        now_ms = self._tasks.steady_clock.now_ms()
        return [log.compaction.plan(now_ms, force=force) for log in self.topic(topic).partitions]

    def compact(
        self, topic: str, *, force: bool = False, partitions: Sequence[int] | None = None
    ) -> list[CompactionResult]:
        """Compact the partitions of a topic (None: all) that are due, now, in this thread.

        With `force` all of them, whatever the ratio and the lags, active segments included:
        they are sealed first. Logs that were left alone after a failure are tried again.
        """
        found = self.topic(topic)
        logs = found.partitions if partitions is None else [found.partition(n) for n in partitions]
        return self.cleaner.run_now(logs, force=force)

    def snapshot(
        self, path: str | os.PathLike[str], *, progress: WorkProgress | None = None
    ) -> StoreSnapshot:
        """Copy the store, as it is now, to a new directory that `cordwood.open` opens at once.

        Appends and reads go on meanwhile; topics cannot be created or deleted. Sealed segments
        are shared with the copy where the file system allows. Durable on return; a copy that
        was interrupted is called ``<path>.incomplete``. `progress` is told of bytes.
        """
        target = os.path.abspath(os.fspath(path))
        with self._lock:
            self._check_open()
            for directory in self._directories:
                if os.path.commonpath([directory.path, target]) == directory.path:
                    raise ConfigError("path", target, f"must not lie within {directory.path}")
            logs = [log for topic in self._topics.values() for log in topic.partitions]
            backup = Backup(
                self._fs, target, self._clock, self._is_closing.is_set, progress or WorkProgress()
            )
            return backup.run(logs, self._catalog, self._directories[0].meta, self.publisher)

    def _run_cleaner(self) -> int | None:
        return sum(result.bytes_reclaimed for result in self.cleaner.run_due())

    # --- archive -----------------------------------------------------------------------------

    def archive_now(self, topics: Sequence[str] | None = None) -> list[ArchiveStatus]:
        """Copy what is due into the archives, now, of these topics or all; say how far each is.

        What failed, and why, is in the answer: the other partitions go on.
        """
        self._check_open()
        self._archives.run(self, topics)
        return self._archives.status(self)

    def archive_status(self) -> list[ArchiveStatus]:
        """How far the archive of each partition has come, and what failed last."""
        archives = self._setup.archives
        return [] if archives is None else archives.status(self)

    def restore_topic(
        self,
        name: str,
        url: str,
        *,
        to_timestamp_ms: int | None = None,
        topic_id: uuid.UUID | None = None,
        new_name: str | None = None,
        config: Mapping[str, object] | None = None,
        progress: WorkProgress | None = None,
    ) -> Topic[PartitionLog]:
        """Recreate a topic from its archive at `url`, with its id, configuration and groups.

        With `to_timestamp_ms` each partition ends before the first record that is newer, and
        the batch that holds that record goes whole. The topic is there whole, or not at all.
        `topic_id` chooses among several topics that had the name; else it is the one archived
        last. `config` overrides keys of the archived configuration.

        Under a `new_name` it is another topic, with an id of its own: groups are left where they
        are, and it has no `archive.url` unless `config` gives it one.
        """
        self._check_open()
        return self._archives.restore(
            self,
            name,
            url,
            to_timestamp_ms=to_timestamp_ms,
            topic_id=topic_id,
            new_name=new_name,
            config=config,
            progress=progress or WorkProgress(),
        )

    @property
    def _archives(self) -> Archives:
        archives = self._setup.archives
        if archives is None:
            raise ConfigError("archive.url", "", "this store was opened without archives")
        return archives

    def _run_archive(self) -> None:
        self._archives.run(self)
        failures = [s for s in self._archives.status(self) if s.last_error is not None]
        if failures:
            first = failures[0]
            raise StorageError(f"{first.topic}-{first.partition}: {first.last_error}")

    # --- closing -----------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Also while it closes: what is under way ends soon, and nothing more is begun."""
        return self._is_closed or self._is_closing.is_set()

    def close(self) -> None:
        """Sync everything, mark the directories clean, release them. Safe to repeat."""
        self._is_closing.set()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        if self._setup.archives is not None:
            self._setup.archives.close()
        self.cleaner.stop()
        self._housekeeping.stop()
        self.changes.close()
        self._close_directories()

    def abandon(self) -> None:
        """Let go as a crash would: what the operating system has stays, the rest is recovered.

        For tests of what comes after a crash. Safe to repeat, and after `close`.
        """
        self._is_closing.set()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        if self._setup.archives is not None:
            self._setup.archives.close()
        self.cleaner.stop()
        self._housekeeping.stop()
        self.changes.close()
        self._abandon()


def _free_bytes_min(setup: StoreSetup) -> int:
    if setup.free_bytes_min is not None:
        return setup.free_bytes_min
    return FREE_BYTES_MIN if isinstance(setup.fs, RealFileSystem) else 0

"""A store: topics over one or several data directories, held by one writer process."""

import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from random import Random
from types import TracebackType
from typing import Final, Self

from cordwood.clock import Clock, SystemClock
from cordwood.errors import TopicExistsError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.log.compaction.cleaner import CleanerConfig
from cordwood.log.compaction.compaction_run import CompactionResult
from cordwood.log.inbox.change_service import ChangeService
from cordwood.log.inbox.group_changes import DirectGroupChanges
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.log_parts import FlushQueue
from cordwood.log.partition.state.replica_role import SOLE_REPLICA, ReplicaRole
from cordwood.log.publishing.publication import (
    PublicationId,
    Published,
    Publisher,
    Records,
    part_of_records,
)
from cordwood.log.reading.archived_segments import ArchiveStatus
from cordwood.log.rules.compaction_plan import CompactionPlan
from cordwood.log.rules.duration_histogram import SharedHistogram
from cordwood.log.rules.fork_refusal import is_forked, refuse_after_fork
from cordwood.log.rules.interruption import insist
from cordwood.log.rules.lifetime import Lifetime
from cordwood.log.rules.retention import RetentionPlan
from cordwood.log.rules.steady_clock import SteadyClock
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.rules.work_progress import WorkProgress
from cordwood.log.store.archive_port import Archives, WantedTopic
from cordwood.log.store.archiving import Archiving
from cordwood.log.store.backup import Backup, StoreSnapshot
from cordwood.log.store.housekeeping import Housekeeping
from cordwood.log.store.offline_partitions import OfflinePartitions
from cordwood.log.store.store_opening import StoreOpening
from cordwood.log.store.upkeep_tasks import (
    FREE_BYTES_MIN,
    UpkeepTasks,
    register_catalog,
    register_inbox,
    register_offline,
    register_transactions,
)
from cordwood.log.topics.catalog_files import CatalogKeeper, KeptCatalog
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.log.topics.data_directories import DataDirectories
from cordwood.log.topics.group import Group, checked_group
from cordwood.log.topics.group_members import GroupMembers
from cordwood.log.topics.group_session import ReaderSurroundings
from cordwood.log.topics.offsets_topic import OffsetsTopic
from cordwood.log.topics.partition_opener import LogSurroundings, PartitionOpener
from cordwood.log.topics.producer_ids import ProducerIds
from cordwood.log.topics.saved_configs import SavedConfigs
from cordwood.log.topics.shared_catalog import CatalogOfShare, KeptForOthers
from cordwood.log.topics.store_share import StoreShare
from cordwood.log.topics.time_file import open_steady_clock
from cordwood.log.topics.topic import Topic
from cordwood.log.topics.topic_hosting import TopicHosting
from cordwood.log.topics.topic_registry import TopicRegistry
from cordwood.log.transactions.coordinator import TransactionCoordinator
from cordwood.log.transactions.store_transaction import TIMEOUT_MS, LibraryProducers, Transaction
from cordwood.log.transactions.transaction_topic import TransactionTopic
from cordwood.security.security_file import SecurityFile
from cordwood.storage.disk.disk_errors import refused_when_full
from cordwood.storage.files import FileSystem, RealFileSystem
from cordwood.storage.recovery import Damage
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.value_class import dataclass, field

logger = logging.getLogger(__name__)

OPENING_THREADS: Final = 4


@dataclass(slots=True, kw_only=True)
class StoreSetup:
    """How a store is run. Tests pass their own file system, clock and flusher."""

    fs: FileSystem = field(default_factory=RealFileSystem)
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    defaults: TopicConfig = field(default_factory=TopicConfig)
    flusher: FlushQueue | None = None  # None: a thread for each directory
    has_housekeeping: bool = True
    opening_threads: int = OPENING_THREADS
    archives: Archives | None = None  # None: topics cannot be archived
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
    # log.dir.free.bytes.min: appends are refused below it; None: 16 MiB on real disks, else 0
    free_bytes_min: int | None = None
    sync_times: SharedHistogram = field(default_factory=SharedHistogram)
    role: ReplicaRole = SOLE_REPLICA  # AMONG_OTHERS: a broker of a cluster runs the store
    share: StoreShare | None = None  # several processes run the store; their role is OWNED


class Store:
    """Topics, groups and their upkeep, for one writer. Any thread may use it.

    The methods are the library's public face. Each part below owns one concern; the broker and
    the command line use the parts for everything else.

    directories        the data directories: locks, open logs, state of the disks
    registry           the topics by name, and their crash-safe changes
    hosting            the same for a broker of a cluster, whose controllers decide
    publisher          appends to several partitions, all or nothing
    committed_offsets  the offsets of all groups, in the offsets topic
    group_members      which reader of a group holds which partition
    producer_ids       ids for idempotent producers
    transactions       the coordinator of transactions
    saved_configs      settings that were made while a broker ran
    housekeeping       everything that runs in the background
    cleaner            compaction
    changes            changes that other processes request through the inbox

    is_of_cluster      a broker of a cluster runs it: the controllers decide what is in it
    is_shared          several processes run it, and this one has a share: see `store_share`
    """

    def __init__(self, directories: Sequence[str], setup: StoreSetup) -> None:
        self._fs, self._clock = setup.fs, setup.clock
        self._ending = threading.RLock()
        self._is_released = False
        try:
            self.directories = DataDirectories(
                directories,
                fs=setup.fs,
                clock=setup.clock,
                flusher=setup.flusher,
                process=None if setup.share is None else setup.share.process,
            )
            self._assemble(setup)
        except BaseException:
            insist(self._abandon_opening)
            raise

    def _assemble(self, setup: StoreSetup) -> None:
        fs, clock = setup.fs, setup.clock
        self.data_dirs = self.directories.paths
        self.path = self.data_dirs[0]
        self.cluster_id = self.directories.cluster_id
        self.writer_id = self.directories.writer_id
        self.is_of_cluster = not setup.role.is_sole
        self._share = setup.share
        self.is_shared = setup.share is not None
        self.sync_times = setup.sync_times
        self._lifetime = Lifetime(f"the store in {self.path}")
        self._catalog = _catalog(fs, self.data_dirs, setup.share)
        steady_clock = open_steady_clock(fs, self.data_dirs, clock)
        surroundings = _log_surroundings(setup, steady_clock)
        opener = PartitionOpener(self.directories, self._catalog, surroundings)
        opened = StoreOpening(
            fs,
            self.directories,
            self._catalog,
            opener,
            threads=setup.opening_threads,
            share=setup.share,
        ).run()
        self.registry = TopicRegistry(
            opened.topics,
            fs=fs,
            directories=self.directories,
            catalog=self._catalog,
            opener=opener,
            defaults=setup.defaults,
            lifetime=self._lifetime,
            share=setup.share,
        )
        self.hosting = TopicHosting(
            self.registry, directories=self.directories, catalog=self._catalog, opener=opener
        )
        self.publisher = Publisher(
            fs,
            self.data_dirs,
            clock,
            opened.publications,
            threads=setup.opening_threads,
            lifetime=self._lifetime,
        )
        self.offsets_topic = OffsetsTopic(self.registry)
        self.committed_offsets = CommittedOffsets(self.offsets_topic, clock, self.registry.id_of)
        self.group_members = GroupMembers()
        self._group_readers = ReaderSurroundings(
            offsets=self.committed_offsets,
            members=self.group_members,
            clock=clock,
            lifetime=self._lifetime,
            find_topic=self.registry.get,
            topic_id=self.registry.id_of,
        )
        self.saved_configs = SavedConfigs(fs, self.data_dirs)
        self.producer_ids = ProducerIds(fs, self.data_dirs, self.directories.largest_producer_id)
        self.transactions = TransactionCoordinator(
            topic=TransactionTopic(self.registry),
            find_log=self.registry.log,
            offsets=self.committed_offsets,
            new_producer_id=self.producer_ids.allocate,
            clock=clock,
            has_threads=setup.has_housekeeping,
        )
        self._library_producers = LibraryProducers(
            self.transactions,
            self.committed_offsets,
            self.registry.get,
            clock,
            may_be_lone=lambda topic: setup.role.is_sole and not self.registry.is_adopted(topic),
        )
        self.housekeeping = Housekeeping(self.path, clock)
        self._tasks = UpkeepTasks(
            self.directories,
            clock,
            steady_clock,
            setup.cleaner,
            fs=fs,
            free_bytes_min=_free_bytes_min(setup),
            should_stop=lambda: self.housekeeping.is_stopping,
        )
        self.cleaner = self._tasks.cleaner
        self._archiving = Archiving(setup.archives, self)
        self.changes = ChangeService(self, fs, clock, DirectGroupChanges(self.committed_offsets))
        self._tasks.register(self.housekeeping)
        self._archiving.register(self.housekeeping)
        if setup.share is None or setup.share.index is None:
            register_inbox(self.changes, self.housekeeping)
        register_catalog(self.registry, self.housekeeping)
        offline = OfflinePartitions(
            self.directories,
            self.registry,
            opener,
            self.publisher,
            clock,
            lambda name: self._catalog.topics.get(name),  # noqa: PLW0108 (it is replaced)
            self._admit,
        )
        register_offline(offline, self.housekeeping)
        if setup.role.is_sole:  # else other brokers may coordinate them
            register_transactions(self.transactions, self.housekeeping)
            self.transactions.recover(
                self.directories.logs(),
                self.registry.is_adopted,
                has_all=INTERNAL_TOPICS.issuperset(topic for topic, _ in self.hosting.missing()),
            )
        for part in (
            self._lifetime,
            self.registry,
            self.committed_offsets,
            self.group_members,
            self.producer_ids,
            self.transactions,
        ):
            refuse_after_fork(part, f"the store in {self.path}")
        if setup.has_housekeeping:
            self.housekeeping.start()

    def _admit(self, log: PartitionLog) -> None:
        """A partition came online late. In a cluster, coordinators elsewhere end transactions."""
        if not self.is_of_cluster:
            self.transactions.admit(log, is_adopted=self.registry.is_adopted(log.topic))

    def _abandon_opening(self) -> None:
        """Release what was opened so far. Safe to repeat."""
        if "housekeeping" in vars(self):
            self.housekeeping.stop()
        if "transactions" in vars(self):
            self.transactions.close(finishes=False)
        if "directories" in vars(self):
            self.directories.abandon()

    @property
    def file_system(self) -> FileSystem:
        """The port to the disk, for small files of the store's owner."""
        return self._fs

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"topics={len(self.registry.names())}"
        return f"Store({self.path!r}, {state})"

    # --- topics ------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Topic[PartitionLog]:
        """The topic of that name. Raises `UnknownTopicError`, which is a `KeyError`."""
        return self.topic(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.topics(include_internal=True)

    def __iter__(self) -> Iterator[str]:
        """The names of all topics, in order."""
        return iter(self.topics())

    def topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, in order."""
        return self.registry.names(include_internal=include_internal)

    def topic(self, name: str) -> Topic[PartitionLog]:
        """The topic of that name. Raises `UnknownTopicError`."""
        return self.registry.get(name)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        exist_ok: bool = False,
    ) -> Topic[PartitionLog]:
        """Create a topic. `config` maps Kafka's keys to values; sizes and times may have units.

        With `exist_ok`, a topic of that name is returned as it is, if there is one.
        """
        if exist_ok:
            found = self.registry.find(name)
            if found is not None:
                return found
        try:
            return self._create_topic(name, partitions, config)
        except TopicExistsError:
            if not exist_ok:
                raise
            return self.registry.get(name)  # another thread was faster

    def _create_topic(
        self, name: str, partitions: int, config: Mapping[str, object] | None
    ) -> Topic[PartitionLog]:
        with refused_when_full(f"topic {name!r}", "creating"):
            return self.registry.create(name, partitions=partitions, config=config)

    def alter_topic(
        self,
        name: str,
        *,
        config: Mapping[str, object | None] | None = None,
        partitions: int | None = None,
    ) -> Topic[PartitionLog]:
        """Set configuration keys (None: back to the default), or add partitions."""
        with refused_when_full(f"topic {name!r}", "changing"):
            return self.registry.alter(name, config=config, partitions=partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and the offsets that groups committed for it.

        Its name is free at once; its files are unlinked after `file.delete.delay.ms`.
        """
        self.delete_topics([name])

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics, all of them or, if one does not exist, none."""
        with self.registry.changing:
            ids = [self.registry.get(name).topic_id for name in names]
            self.registry.delete(names)
            for topic_id in ids:
                self.publisher.forget_topic(topic_id)
        self.committed_offsets.remove_topics(names)

    def publish(
        self, application: str, number: int, records: Mapping[tuple[str, int], Records]
    ) -> Published:
        """Append records, by (topic, partition), as one: readers see all of them or none.

        A crash at any moment leaves all of them or none, so a caller in doubt publishes again.
        If `number` is not higher than the last one that `application` published, it was
        published before: nothing is done, and the result says so.
        """
        self._lifetime.check_open()
        parts = [
            part_of_records(self.topic(topic), partition, items, self._clock)
            for (topic, partition), items in records.items()
            if len(items)
        ]
        with refused_when_full(f"{application!r}", "publishing for"):
            return self.publisher.publish(
                PublicationId(application=application, number=number), parts
            )

    def transaction(self, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> Transaction:
        """A transaction over partitions and committed offsets, as a context manager.

        It is committed at the end of the block and aborted if the block raises. The first one of
        an id fences producers of the same id, here or at a broker. If it stays open for longer
        than `timeout_ms`, it is aborted.
        """
        self._lifetime.check_open()
        return self._library_producers.begin(transactional_id, timeout_ms)

    # --- groups ------------------------------------------------------------------------------

    def group(self, name: str) -> Group:
        """A consumer group: its committed offsets, and readers that commit by themselves."""
        self._lifetime.check_open()
        offsets, readers = self.committed_offsets, self._group_readers
        return Group(checked_group(name), offsets, self._lifetime, readers)

    def groups(self) -> list[str]:
        """The names of all groups that have committed offsets."""
        self._lifetime.check_open()
        return self.committed_offsets.groups()

    # --- upkeep ------------------------------------------------------------------------------

    def maintain(self) -> None:
        """Run every background task once, now, in this thread.

        A failure does not stop the other tasks; the first one is raised at the end.
        """
        self._lifetime.check_open()
        with refused_when_full(self.path, "maintaining"):
            self.housekeeping.run_all()

    def damages(self) -> list[Damage]:
        """Acknowledged records that cannot be read: found by recovery, or lost between segments.

        The first call reads a few kilobytes of each sealed segment. `verify` reads all of them.
        """
        self._lifetime.check_open()
        return self.directories.damages()

    def explain_retention(self, topic: str) -> list[RetentionPlan]:
        """For each partition, what retention would do now and why: the plan that runs."""
        now_ms = self._tasks.steady_clock.now_ms()
        return [log.upkeep.plan_retention(now_ms) for log in self.topic(topic).partitions]

    def explain_compaction(self, topic: str, *, force: bool = False) -> list[CompactionPlan]:
        """For each partition, what compaction would do now, or why it would do nothing."""
        now_ms = self._tasks.steady_clock.now_ms()
        return [log.compaction.plan(now_ms, force=force) for log in self.topic(topic).partitions]

    def compact(
        self, topic: str, *, force: bool = False, partitions: Sequence[int] | None = None
    ) -> list[CompactionResult]:
        """Compact the partitions of a topic (None: all) that are due, now, in this thread.

        With `force`, compact all of them, whatever the ratio and the lags. Active segments are
        sealed first, to be compacted too. Logs that failed before are tried again.
        """
        found = self.topic(topic)
        logs = found.partitions if partitions is None else [found.partition(n) for n in partitions]
        return self.cleaner.run_now(logs, force=force)

    def snapshot(
        self,
        path: str | os.PathLike[str],
        *,
        progress: WorkProgress | None = None,
        directory_id: uuid.UUID | None = None,
        include_security: bool = False,
    ) -> StoreSnapshot:
        """Copy the store, as it is now, to a new directory that `cordwood.open` opens at once.

        Appends and reads continue meanwhile; topics cannot be created or deleted. Sealed
        segments are shared with the copy if the file system allows it. Durable on return; an
        interrupted copy is called ``<path>.incomplete``. `progress` counts bytes. The copy's
        `meta.properties` gets `directory_id`; None: a new one.

        The copy has the settings that were made while a broker ran. It has users, access rules and
        quotas only with `include_security`: anyone who can read that file can guess passwords
        without being noticed, so keep such a copy as safe as the store.
        """
        with self.registry.changing:
            self._lifetime.check_open()
            backup = Backup(
                self._fs,
                os.path.abspath(os.fspath(path)),
                self._clock,
                lambda: self._lifetime.is_closing,
                progress or WorkProgress(),
                directory_id=directory_id,
            )
            copy_beside = [self.saved_configs.copy_to]
            if include_security:
                copy_beside.append(self.open_security().copy_to)
            return backup.run(
                self.directories,
                self._catalog.catalog,
                self.publisher,
                self.transactions,
                copy_beside,
            )

    # --- archive -----------------------------------------------------------------------------

    def archive_now(self, topics: Sequence[str] | None = None) -> list[ArchiveStatus]:
        """Copy segments that are due to the archives, now. None: of all topics.

        Returns the state of each partition. A failure is in it and does not stop the others.
        """
        self._lifetime.check_open()
        return self._archiving.run_now(topics)

    def archive_status(self) -> list[ArchiveStatus]:
        """How far the archive of each partition has come, and its last failure."""
        self._lifetime.check_open()
        return self._archiving.status()

    def restore_topic(
        self,
        name: str,
        url: str,
        *,
        to_timestamp_ms: int | None = None,
        topic_id: uuid.UUID | None = None,
        new_name: str | None = None,
        config: Mapping[str, object] | None = None,
        new_id: uuid.UUID | None = None,
        take_over: bool = False,
        progress: WorkProgress | None = None,
    ) -> Topic[PartitionLog]:
        """Recreate a topic from its archive at `url`, with its id, configuration and groups.

        With `to_timestamp_ms`, each partition ends before the batch of the first newer record.
        The topic is restored whole, or not at all. `topic_id` chooses among several topics that
        had the name; the default is the one archived last. `config` overrides archived keys.

        The topic is a copy and has no `archive.url`: another store may still write the archive.
        With `take_over` this store owns the archive from now on and continues it; archiving in
        the store that owned it ends with an error. A store that restores its own topic continues
        without it.

        With `new_name` it becomes another topic with an id of its own, `new_id` or a random one;
        groups are not restored.
        """
        self._lifetime.check_open()
        wanted = WantedTopic(
            name=name,
            url=url,
            to_timestamp_ms=to_timestamp_ms,
            topic_id=topic_id,
            new_name=new_name,
            new_id=new_id,
            config=config or {},
            take_over=take_over,
        )
        return self._archiving.restore(wanted, progress or WorkProgress())

    # --- closing -----------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """True from the start of `close` on: long work ends early, and none is begun."""
        return self._lifetime.is_closing

    def open_security(self) -> SecurityFile:
        """Users, access rules and quotas of a broker over this store. One broker opens them.

        Raises `FormatError` or `OSError` if there are some that cannot be read.
        """
        self._lifetime.check_open()
        file = SecurityFile(self._fs, self.data_dirs)
        if self._share is not None and self._share.security is not None:
            file.follow(self._share.security)
        return file

    def close(self, *, archive_timeout_s: float | None = None) -> None:
        """Sync everything, mark the directories clean, release them. Safe to repeat.

        Waits for at most `archive_timeout_s` for archives that do not answer; None: 30 s.
        In a forked child it does nothing: the store is its parent's.
        """
        self._end(self._close, archive_timeout_s, finishes=True)

    def _close(self) -> None:
        try:
            self.registry.sync()
        except OSError as error:
            logger.warning("the topic catalog could not be synced at the end: %s", error)
        self._tasks.save_time()
        self.directories.close()

    def abandon(self) -> None:
        """Release everything as a crash would: nothing is synced, the next opening recovers.

        For tests of recovery. Safe to repeat, and after `close`.
        """
        self._end(self.directories.abandon, finishes=False)

    def _end(
        self,
        release: Callable[[], None],
        archive_timeout_s: float | None = None,
        *,
        finishes: bool,
    ) -> None:
        """Each step is safe to repeat: after an interrupt, the next call finishes the rest."""
        if is_forked(self._lifetime):
            return  # the files and the lock are the parent's
        self._lifetime.begin_closing()
        with self.registry.changing:
            self._lifetime.end()
        with self._ending:
            if self._is_released:
                return
            self.registry.end()
            with ExitStack() as ends:  # the last one first; a failure does not stop the others
                ends.callback(release)
                ends.callback(self.transactions.close, finishes=finishes)
                ends.callback(self.changes.close)
                ends.callback(self.housekeeping.stop)
                ends.callback(self.cleaner.stop)
                ends.callback(self._archiving.close, archive_timeout_s)
            self._is_released = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _catalog(fs: FileSystem, directories: Sequence[str], share: StoreShare | None) -> KeptCatalog:
    """Who writes the catalog: this process, or the keeper of several."""
    if share is None:
        return CatalogKeeper(fs, directories)
    if share.index is None:
        return KeptForOthers(CatalogKeeper(fs, directories), share)
    return CatalogOfShare(fs, directories, share)


def _log_surroundings(setup: StoreSetup, steady_clock: SteadyClock) -> LogSurroundings:
    return LogSurroundings(
        fs=setup.fs,
        clock=setup.clock,
        steady_clock=steady_clock,
        random=setup.random,
        handles=HandleCache(),
        sync_times=setup.sync_times,
        defaults=setup.defaults,
        find_archive=None if setup.archives is None else setup.archives.source,
        role=setup.role,
    )


def _free_bytes_min(setup: StoreSetup) -> int:
    if setup.free_bytes_min is not None:
        return setup.free_bytes_min
    return FREE_BYTES_MIN if isinstance(setup.fs, RealFileSystem) else 0

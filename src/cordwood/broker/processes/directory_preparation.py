"""Data directories before and after several processes share them.

Before: a single process opens the whole store, recovers it, finishes what a crash left, and closes
it. So everything that concerns more than one partition is done by the code that always does it.
Then the state is split among the processes. After: `LogDirectory.open` merges it again, whoever
comes next; the keeper does so at once if all went well.
"""

import logging
from collections.abc import Sequence
from typing import Self

from cordwood.broker.config.store_config import StoreConfig
from cordwood.broker.processes.held_files import HeldFileSystem
from cordwood.errors import ConfigError
from cordwood.format.file_names import TRANSACTION_STATE_TOPIC
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.cluster_mark import refuse_cluster_directories
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.topics.catalog_files import read_catalog
from cordwood.log.topics.process_state import (
    PartitionName,
    is_split_among,
    merge_state,
    split_state,
)
from cordwood.log.topics.store_share import KEEPER, owner_of, worker_name
from cordwood.storage.disk.directory_lock import DirectoryLock, lock_directory
from cordwood.storage.disk.disk_errors import FULL_DISK_ERRNOS
from cordwood.storage.disk.file_access import FileAccess
from cordwood.storage.files import make_durable_directory

logger = logging.getLogger(__name__)


class HeldDirectories:
    """The data directories of a node, locked by its keeper. For one thread."""

    def __init__(self, config: StoreConfig) -> None:
        self.paths = list(config.log_dirs)
        self.access = FileAccess(config.log_dir_access)
        self.fs = HeldFileSystem(self.access)
        self._locks: list[DirectoryLock] = []
        refuse_cluster_directories(self.fs, self.paths)
        try:
            for path in self.paths:
                make_durable_directory(self.fs, path)
                self._locks.append(lock_directory(path, self.access))
        except BaseException:
            self.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def share(self, count: int, topics: Sequence[str]) -> None:
        """Give each of `count` workers its part, and let them lock their slots.

        The store is closed; `topics` are those that exist.
        """
        known = frozenset(topics)

        def owner(name: PartitionName) -> str | None:
            return worker_name(owner_of(*name, count)) if name[0] in known else None

        processes = [KEEPER, *map(worker_name, range(count))]
        for path in self.paths:
            if not is_split_among(self.fs, path, processes):
                merge_state(self.fs, path)  # the processes of the last life were others
                split_state(self.fs, path, processes, owner)
        for lock in self._locks:
            lock.narrow()

    def take_back(self) -> None:
        """All workers have ended: merge what they left.

        Raises `DirectoryLockedError` if one is still there. Without room on the disk, the next
        start merges.
        """
        for path, lock in zip(self.paths, self._locks, strict=True):
            lock.widen(path)
        for path in self.paths:
            try:
                merge_state(self.fs, path)
            except OSError as error:
                if error.errno not in FULL_DISK_ERRNOS:
                    raise
                logger.warning("%s: its state is merged at the next start: %s", path, error)

    def release(self) -> None:
        """Safe to repeat."""
        for lock in self._locks:
            lock.release()


def prepare_store(
    directories: HeldDirectories,
    config: StoreConfig,
    defaults: TopicConfig,
    *,
    has_transactions: bool,
) -> tuple[int, list[str]]:
    """Recover the store as a single process, and close it.

    Returns the epoch in which its partitions are led next, and its topics. Raises `ConfigError` for
    what several processes cannot serve yet: archives, and without `has_transactions` those.
    """
    _refuse_archives(directories, defaults)
    setup = StoreSetup(
        fs=directories.fs,
        defaults=defaults,
        has_housekeeping=False,
        opening_threads=config.num_recovery_threads_per_data_dir,
        free_bytes_min=config.log_dir_free_bytes_min,
    )
    with Store(directories.paths, setup) as store:
        if not has_transactions:
            _refuse_transactions(store)
        store.producer_ids.record_known()
        latest = [log.epochs.current for log in store.directories.logs()]
        return max(latest, default=-1) + 1, store.topics(include_internal=True)


def _refuse_archives(directories: HeldDirectories, defaults: TopicConfig) -> None:
    catalog = read_catalog(directories.fs, directories.paths)
    archived = [] if catalog is None else catalog.topics.values()
    names = [entry.name for entry in archived if entry.config.get("archive.url")]
    if names or defaults.archive_url is not None:
        raise ConfigError(
            "--processes",
            "",
            "topics with archive.url cannot be served by several processes yet: "
            f"{', '.join(names) or 'it is the default of all topics'}. Serve without --processes",
        )


def _refuse_transactions(store: Store) -> None:
    if store.registry.find(TRANSACTION_STATE_TOPIC) is not None:
        raise ConfigError(
            "--processes",
            "",
            "several processes serve transactions only if they have a PLAINTEXT listener for each "
            f"other and no authorizer, and {store.path} has transactions. Serve without "
            "--processes",
        )

"""The archives of one store: copying to them, their state, and restoring topics from them."""

from collections.abc import Sequence
from typing import Final

from cordwood.errors import ConfigError, StorageError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.archived_segments import ArchiveStatus
from cordwood.log.rules.work_progress import WorkProgress
from cordwood.log.store.archive_port import ArchivableStore, Archives, WantedTopic
from cordwood.log.store.housekeeping import Housekeeping, PartialFailureError
from cordwood.log.topics.topic import Topic

ARCHIVE_S: Final = 30.0  # as Kafka's remote.log.manager.task.interval.ms


class Archiving:
    """Archives, applied to one store. Any thread may use it."""

    def __init__(self, archives: Archives | None, store: ArchivableStore) -> None:
        """Without `archives`, every use but `status` raises `ConfigError`."""
        self._archives = archives
        self._store = store

    def register(self, housekeeping: Housekeeping) -> None:
        if self._archives is not None:
            housekeeping.add("archive", ARCHIVE_S, self.run_due, takes_long=True)

    def run_due(self) -> None:
        """One pass over all topics. Reports the first failure after all were tried."""
        self._required().run(self._store, None, patience_s=ARCHIVE_S)
        for status in self.status():
            if status.last_error is not None:
                place = f"{status.topic}-{status.partition}"
                raise PartialFailureError(StorageError(f"{place}: {status.last_error}"))

    def run_now(self, topics: Sequence[str] | None) -> list[ArchiveStatus]:
        self._required().run(self._store, topics)
        return self.status()

    def status(self) -> list[ArchiveStatus]:
        return [] if self._archives is None else self._archives.status(self._store)

    def restore(self, wanted: WantedTopic, progress: WorkProgress) -> Topic[PartitionLog]:
        return self._required().restore(self._store, wanted, progress)

    def close(self, timeout_s: float | None) -> None:
        if self._archives is not None:
            self._archives.close(timeout_s)

    def _required(self) -> Archives:
        if self._archives is None:
            raise ConfigError("archive.url", "", "this store was opened without archives")
        return self._archives

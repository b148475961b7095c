"""The data directories of a store, locked by this process: their logs, their state, their end."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

from cordwood.clock import Clock
from cordwood.errors import LogClosedError, StorageError
from cordwood.format.small_files.meta_properties import MetaProperties
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.log_parts import FlushQueue
from cordwood.log.rules.interruption import insist
from cordwood.log.topics.log_directory import DirectoryStatus, LogDirectory, PartitionName
from cordwood.quantities import NO_PRODUCER_ID
from cordwood.storage.disk.flusher import Flusher
from cordwood.storage.files import FileSystem
from cordwood.storage.recovery import Damage

logger = logging.getLogger(__name__)


class FutureReplica(NamedTuple):
    """A replica that is not complete yet. `lag` counts committed offsets that it does not have."""

    size_bytes: int
    lag: int


class DataDirectories:
    """The usable directories in the order given, and why the others are not usable.

    Opening takes the lock of each. A directory that fails stays offline if there are others.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        fs: FileSystem,
        clock: Clock,
        flusher: FlushQueue | None,
        process: str | None = None,
    ) -> None:
        """Without a `flusher`, each directory gets a flusher thread of its own.

        `process` is for one of several processes of a node: see `process_state`.
        """
        self._flushers: list[Flusher] = []
        self._unusable: dict[str, OSError] = {}
        self._directories: list[LogDirectory] = []
        absolute = list(dict.fromkeys(os.path.abspath(path) for path in paths))
        try:
            for path in absolute:
                own_flusher = flusher or self._new_flusher(path)
                directory = LogDirectory(fs, path, clock, own_flusher, process)
                self._open(directory, is_only=len(absolute) == 1)
            if not self._directories:
                raise StorageError(f"no data directory can be used: {self._unusable}")
        except BaseException:
            insist(self._release)
            raise

    def _new_flusher(self, path: str) -> Flusher:
        flusher = Flusher(path)
        self._flushers.append(flusher)
        return flusher

    def _open(self, directory: LogDirectory, *, is_only: bool) -> None:
        meta = self.meta if self._directories else None
        self._directories.append(directory)  # first, to be released whatever happens
        try:
            directory.open(None if meta is None else meta.cluster_id)
        except OSError as error:
            if is_only:
                raise
            logger.error("data directory %s is offline: %s", directory.path, error)
            self._directories.remove(directory)
            self._unusable[directory.path] = error

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._directories)

    # --- facts -------------------------------------------------------------------------------

    @property
    def paths(self) -> list[str]:
        return [directory.path for directory in self._directories]

    @property
    def meta(self) -> MetaProperties | None:
        """The `meta.properties` of the first directory."""
        return self._directories[0].meta

    @property
    def are_all_usable(self) -> bool:
        """Whether a partition that is in none of the directories does not exist."""
        return not self._unusable

    @property
    def cluster_id(self) -> str:
        return (self.meta.cluster_id or "") if self.meta is not None else ""

    @property
    def writer_id(self) -> str:
        """Identifies this store to archives; see `MetaProperties.writer_id`."""
        return "" if self.meta is None else self.meta.writer_id

    def status(self) -> list[DirectoryStatus]:
        """The state of every directory that was given, including the unusable ones."""
        unusable = [DirectoryStatus.unusable(path, e) for path, e in self._unusable.items()]
        return [directory.status() for directory in self._directories] + unusable

    def partition_sizes(self) -> dict[str, dict[PartitionName, int]]:
        """The size in bytes of every partition, by directory path."""
        return {
            directory.path: dict.fromkeys(list(directory.unopened), 0)
            | {name: log.state.segments.size for name, log in list(directory.logs.items())}
            for directory in self._directories
        }

    def future_replicas(self) -> dict[str, dict[PartitionName, FutureReplica]]:
        """New replicas that are being filled, by the path of the directory that they are in."""
        found: dict[str, dict[PartitionName, FutureReplica]] = {}
        for directory in self._directories:
            for name, log in list(directory.futures.items()):
                old = next((d.logs[name] for d in self._directories if name in d.logs), None)
                lag = 0 if old is None else max(old.high_watermark - log.end_offset, 0)
                size = log.state.segments.size
                found.setdefault(directory.path, {})[name] = FutureReplica(size, lag)
        return found

    def logs(self) -> list[PartitionLog]:
        """All open logs. Partitions that are not open have no records."""
        return [log for d in self._directories for log in list(d.logs.values())]

    def damages(self) -> list[Damage]:
        """Acknowledged records that cannot be read, as far as this is known without reading all.

        The first call reads a few kilobytes of each sealed segment.
        """
        found: list[Damage] = []
        for log in self.logs():
            with suppress(LogClosedError):  # its topic was deleted meanwhile
                found += log.find_damages()
        return found

    def largest_producer_id(self, below: int) -> int:
        """The largest producer id below `below` that any log has records of; -1 for none."""
        known = (log.producers.largest_id(below=below) for log in self.logs())
        return max(known, default=NO_PRODUCER_ID)

    def why_offline(self, topic: str, number: int) -> str:
        """The reason why a partition of a known topic is not open."""
        for directory in self._directories:
            error = directory.offline.get((topic, number))
            if error is not None:
                return f"{directory.path} cannot be read: {error}"
        if self._unusable:
            return ", ".join(f"{path} cannot be used: {e}" for path, e in self._unusable.items())
        return "its directory is missing"

    # --- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Sync all logs, mark the directories clean if all went well, and release them.

        A failure does not stop the others; the first one is raised at the end.
        """
        failure: Exception | None = None
        for directory in self._directories:
            try:
                _close(directory)
            except Exception as error:
                failure = failure or error
        self._release()
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Release everything without syncing or marking anything clean, as a crash would."""
        with ExitStack() as release:
            release.callback(self._release)
            for directory in self._directories:
                release.callback(directory.close_futures)
            for log in self.logs():
                release.callback(log.close, is_orderly=False)

    def _release(self) -> None:
        for directory in self._directories:
            directory.release()
        for flusher in self._flushers:
            flusher.stop()


def _close(directory: LogDirectory) -> None:
    """Close all logs, then the directory. A log that cannot be closed does not stop the others.

    An interrupt leaves the lock with us, because logs may still be open: close again then.
    """
    if not directory.is_held:
        return
    failure: Exception | None = None
    is_orderly = directory.health.failure is None  # otherwise the next start recovers
    is_clean = not directory.offline
    directory.close_futures()
    for log in list(directory.logs.values()):
        try:
            is_clean = log.close(is_orderly=is_orderly) and is_clean
        except Exception as error:
            logger.error("%s could not be closed in order: %r", log.name, error)
            error.add_note(f"while closing {log.name}")
            failure = failure or error
            with suppress(Exception):  # it takes no more appends at least
                log.close(is_orderly=False)
    directory.close(is_clean=is_clean and failure is None)
    if failure is not None:
        raise failure

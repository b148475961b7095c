"""One data directory: its lock, its checkpoints, its flusher, and files to unlink later.

.lock                              one writer per directory
.kafka_cleanshutdown               the last owner closed it; absent while it is open
meta.properties                    which store this directory belongs to
recovery-point-offset-checkpoint   per log: below this everything was synced
log-start-offset-checkpoint        per log: below this everything was deleted
replication-offset-checkpoint      per log: the high watermark, for Kafka
cleaner-offset-checkpoint          per log that was ever compacted: compacted up to here
"""

import logging
import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from cordwood.clock import Clock
from cordwood.errors import FormatError
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START,
    META_PROPERTIES,
    RECOVERY_POINT,
    deleted_directory_name,
    partition_directory_name,
    stray_directory_name,
)
from cordwood.format.small_files.meta_properties import (
    MetaProperties,
    parse_meta_properties,
    render_clean_shutdown,
    render_meta_properties,
)
from cordwood.format.small_files.partition_metadata import encode_topic_id, new_topic_id
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.disk_health import DiskHealth
from cordwood.log.partition.state.log_parts import FlushQueue
from cordwood.log.topics.process_state import (
    merge_state,
    read_offsets,
    state_path,
    unmark_processes,
)
from cordwood.quantities import MIB, Offset
from cordwood.storage.disk.disk_errors import FULL_DISK_ERRNOS
from cordwood.storage.files import (
    FileSystem,
    LockHandle,
    make_durable_directory,
    read_whole,
    replace_file,
)
from cordwood.storage.small_files.checkpoint_file import write_offset_checkpoint
from cordwood.value_class import dataclass, field

logger = logging.getLogger(__name__)

PartitionName = tuple[str, int]

_NO_BROKER_EPOCH = -1

_NEARLY_FULL: Final = 1 * MIB  # free bytes: deleted files are then unlinked at once
HANGS_AFTER_S: Final = 10.0  # a call to the disk that takes longer is reported


@dataclass(slots=True)
class Checkpoints:
    """The checkpoints of the last owner; empty if a file is missing or cannot be read."""

    recovery_points: dict[PartitionName, Offset] = field(default_factory=dict)
    log_starts: dict[PartitionName, Offset] = field(default_factory=dict)
    cleaned: dict[PartitionName, Offset] = field(default_factory=dict)
    has_recovery_points: bool = False


def read_checkpoints(fs: FileSystem, directory: str) -> Checkpoints:
    """Read all checkpoints. They are derived data: without one, opening takes longer."""
    points = read_offsets(fs, directory, RECOVERY_POINT)
    return Checkpoints(
        recovery_points=points,
        log_starts=read_offsets(fs, directory, LOG_START),
        cleaned=read_offsets(fs, directory, CLEANER),
        has_recovery_points=bool(points),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryStatus:
    """The state of a data directory."""

    path: str
    error: str | None  # why it cannot be used; None if it can
    was_clean: bool  # whether nothing had to be recovered at opening
    partition_count: int
    offline: tuple[PartitionName, ...]  # partitions whose files cannot be read
    failed: tuple[PartitionName, ...]  # partitions that take no more appends: a sync failed
    free_bytes: int
    total_bytes: int
    is_short_of_room: bool  # appends are refused

    @classmethod
    def unusable(cls, path: str, error: OSError) -> "DirectoryStatus":
        return cls(
            path=path,
            error=str(error),
            was_clean=False,
            partition_count=0,
            offline=(),
            failed=(),
            free_bytes=0,
            total_bytes=0,
            is_short_of_room=False,
        )


def read_meta_properties(fs: FileSystem, directory: str) -> MetaProperties:
    """The identity of a directory. Raises `FileNotFoundError` or `FormatError`."""
    content = read_whole(fs, os.path.join(directory, META_PROPERTIES), limit=MIB)
    try:
        return parse_meta_properties(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError(f"{META_PROPERTIES} is not text: {error}") from error


class LogDirectory:
    """A data directory held by this process. Open it before its logs, close it after them.

    state_path  where its checkpoints are: of all partitions, or of those of one process
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        clock: Clock,
        flusher: FlushQueue,
        process: str | None = None,
    ) -> None:
        """With `process`, other processes of this node share the directory: see `process_state`."""
        self.path = path
        self.state_path = path if process is None else state_path(path, process)
        self.flusher = flusher
        self.health = DiskHealth(path)
        self.checkpoints = Checkpoints()
        self.was_clean = False
        self.logs: dict[PartitionName, PartitionLog] = {}
        self.unopened: set[PartitionName] = set()  # partitions without records, not open
        self.offline: dict[PartitionName, Exception] = {}
        self.futures: dict[PartitionName, PartitionLog] = {}  # new replicas beside the old ones
        self.meta: MetaProperties | None = None
        self._fs = fs
        self._clock = clock
        self._lock: LockHandle | None = None
        self._files = threading.Lock()
        self._free_bytes = self._total_bytes = 0  # when they were counted last
        self._check_began_s: float | None = None  # a count that is under way
        self._is_hanging = False  # at the last count
        self._doomed: list[tuple[float, str]] = []
        self._outdated: set[PartitionName] = set()  # deleted, and still in the checkpoint files
        self._saved_points: dict[PartitionName, Offset] | None = None  # None: not known
        self._is_unmerged = False  # the checkpoints are those of processes: there was no room

    def open(self, cluster_id: str | None) -> None:
        """Take the lock, read the checkpoints, and remove the clean-shutdown marker."""
        if not self._fs.exists(os.path.join(self.path, META_PROPERTIES)):
            make_durable_directory(self._fs, self.path)
        self._lock = self._fs.lock(self.path)
        try:
            self.meta = self._load_meta(cluster_id)
            if self.state_path == self.path:
                self._merge_if_there_is_room()
            marker = os.path.join(self.state_path, CLEAN_SHUTDOWN)
            if self._is_unmerged:
                self.was_clean = unmark_processes(self._fs, self.path)
            else:
                self.was_clean = self._fs.exists(marker)
            self.checkpoints = read_checkpoints(self._fs, self.state_path)
            self._saved_points = dict(self.checkpoints.recovery_points)
            if self.was_clean and not self._is_unmerged:
                self._fs.remove(marker)
            # Also after a kill: from here on the checkpoints are relied on, and the rename that
            # put one in place may never have been synced.
            self._fs.sync_directory(self.state_path)
            self._count_free_bytes()
        except BaseException:
            self.release()
            raise

    def _merge_if_there_is_room(self) -> None:
        try:
            merge_state(self._fs, self.path)
        except OSError as error:
            if error.errno not in FULL_DISK_ERRNOS:
                raise
            logger.warning(
                "%s has no room for its checkpoints; those of its processes are used: %s",
                self.path,
                error,
            )
            self._is_unmerged = True

    def _write_offsets(self, name: str, offsets: Mapping[PartitionName, Offset]) -> None:
        """Called with `_files`. What processes left would count more, so it is merged before."""
        if self._is_unmerged:
            merge_state(self._fs, self.path)
            self._is_unmerged = False
        write_offset_checkpoint(self._fs, self.state_path, name, offsets)

    def _load_meta(self, cluster_id: str | None) -> MetaProperties:
        path = os.path.join(self.path, META_PROPERTIES)
        try:
            return read_meta_properties(self._fs, self.path)
        except FileNotFoundError:
            pass
        except FormatError as error:
            logger.warning("replacing %s, which cannot be read: %s", path, error)
        meta = MetaProperties(
            cluster_id=cluster_id or encode_topic_id(new_topic_id()),
            node_id=1,
            directory_id=new_topic_id(),
        )
        text = render_meta_properties(meta, written_ms=self._clock.now_ms())
        replace_file(self._fs, path, text.encode())
        return meta

    def forget(self, name: PartitionName) -> None:
        """Remove a partition from the checkpoints, because a new one of that name begins.

        Also on disk: after a crash, the old offsets must not be taken for the new partition's.
        """
        known = (
            self.checkpoints.recovery_points,
            self.checkpoints.log_starts,
            self.checkpoints.cleaned,
        )
        forgotten = [offsets.pop(name, None) for offsets in known]
        if name in self._outdated or any(offset is not None for offset in forgotten):
            self.save_checkpoints()

    def remove(self, name: PartitionName, delay_ms: int) -> None:
        """Take away the directory of a deleted partition. Not durable.

        The checkpoint files still have it. That does no harm before another partition of that
        name begins: see `forget`.
        """
        self.unopened.discard(name)
        self.offline.pop(name, None)
        self._outdated.add(name)
        path = os.path.join(self.path, partition_directory_name(*name))
        gone = os.path.join(self.path, deleted_directory_name(*name, uuid.uuid4().hex))
        self._fs.rename(path, gone)
        self.delete_later([gone], delay_ms)

    def set_aside(self, name: PartitionName) -> str:
        """Keep the directory of a partition that is not one any more; its new path. Durable."""
        self.unopened.discard(name)
        self.offline.pop(name, None)
        self._outdated.add(name)
        path = os.path.join(self.path, partition_directory_name(*name))
        kept = os.path.join(self.path, stray_directory_name(*name, uuid.uuid4().hex))
        self._fs.rename(path, kept)
        self._fs.sync_directory(self.path)
        return kept

    def save_checkpoints(self) -> None:
        """Write the checkpoints after partitions were added or removed. Durable on return."""
        outdated = frozenset(self._outdated)
        self.save_recovery_points()
        self.save_log_starts()
        self.save_cleaned()
        self._outdated -= outdated

    # --- what logs ask of their directory ----------------------------------------------------

    def save_recovery_points(self) -> None:
        """Record how far each log is synced. Durable on return."""
        with self._files:
            self._write_recovery_points(self._recovery_points())

    def save_unsaved_recovery_points(self) -> None:
        with self._files:
            points = self._recovery_points()
            if points != self._saved_points:
                self._write_recovery_points(points)

    def _recovery_points(self) -> dict[PartitionName, Offset]:
        points = {name: log.state.recovery_point for name, log in list(self.logs.items())}
        return points | self._of_offline(self.checkpoints.recovery_points)

    def _write_recovery_points(self, points: dict[PartitionName, Offset]) -> None:
        self._saved_points = None
        self._write_offsets(RECOVERY_POINT, points)
        self._saved_points = points

    def _of_offline(self, offsets: Mapping[PartitionName, Offset]) -> dict[PartitionName, Offset]:
        """The recorded offsets of offline logs, which stay as they are."""
        return {name: offset for name, offset in offsets.items() if name in self.offline}

    def save_log_starts(self) -> None:
        """Record where each log starts. Durable on return.

        This includes logs that start with their first file: the mapped mark may be older than
        the deletion of earlier files, and would make them look lost.
        """
        with self._files:
            self._write_offsets(LOG_START, self._log_starts())

    def save_found_log_starts(self) -> None:
        """Record starts that only a mapped mark knew, once all logs are open."""
        starts = self._log_starts()
        if any(self.checkpoints.log_starts.get(name) != start for name, start in starts.items()):
            self.save_log_starts()

    def _log_starts(self) -> dict[PartitionName, Offset]:
        starts = {
            name: log.state.start for name, log in list(self.logs.items()) if log.state.start > 0
        }
        return starts | self._of_offline(self.checkpoints.log_starts)

    def save_cleaned(self) -> None:
        """Record how far each log is compacted. Durable on return."""
        with self._files:
            offsets = {
                name: log.state.cleaned_up_to
                for name, log in list(self.logs.items())
                if log.state.cleaned_up_to is not None
            }
            offsets |= self._of_offline(self.checkpoints.cleaned)
            self._write_offsets(CLEANER, offsets)

    def save_high_watermarks(self) -> None:
        with self._files:
            marks = {name: log.high_watermark for name, log in list(self.logs.items())}
            self._write_offsets(HIGH_WATERMARK_CHECKPOINT, marks)

    def delete_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Unlink files or directories after `delay_ms`, so that readers can finish.

        On a disk without room they are unlinked at once: other processes look again, and readers
        here hold their files open.
        """
        if self.health.is_short_of_room or self._is_nearly_full():
            delay_ms = 0
        due = self._clock.monotonic() + delay_ms / 1000
        with self._files:
            self._doomed += [(due, path) for path in paths]
        if delay_ms == 0:
            self.delete_due()

    def delete_due(self, *, everything: bool = False) -> int:
        """Unlink the paths whose delay has passed, or all; return how many."""
        now = self._clock.monotonic()
        with self._files:
            due = [path for at, path in self._doomed if everything or at <= now]
            self._doomed = [(at, p) for at, p in self._doomed if not everything and at > now]
        for path in due:
            try:
                self._fs.remove_tree(path) if path.endswith("-delete") else self._fs.remove(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                logger.warning("could not remove %s, the next start will: %s", path, error)
        return len(due)

    def status(self) -> DirectoryStatus:
        """Touches no disk: a directory that hangs must not delay who asks."""
        logs = list(self.logs.items())
        failure = self.health.failure
        silent_s = self._silent_s()
        error: str | None = None
        if failure is not None:
            error = str(failure)
        elif silent_s >= HANGS_AFTER_S:
            error = f"it has not responded for {silent_s:.0f} s"
        return DirectoryStatus(
            path=self.path,
            error=error,
            was_clean=self.was_clean,
            partition_count=len(logs) + len(self.unopened),
            offline=tuple(self.offline),
            failed=tuple(name for name, log in logs if log.is_failed),
            free_bytes=self._free_bytes,
            total_bytes=self._total_bytes,
            is_short_of_room=self.health.is_short_of_room,
        )

    @property
    def is_usable(self) -> bool:
        """Whether new partitions may be placed here."""
        began_s = self._check_began_s
        is_silent = began_s is not None and self._clock.monotonic() - began_s >= HANGS_AFTER_S
        return self.health.failure is None and not self._is_hanging and not is_silent

    def _silent_s(self) -> float:
        """How long the longest call to the disk that is under way has taken."""
        began = [log.syncing.began_s for log in list(self.logs.values())]
        began.append(self._check_began_s)
        first = min((at for at in began if at is not None), default=None)
        return 0.0 if first is None else self._clock.monotonic() - first

    # --- room --------------------------------------------------------------------------------

    def check_room(self, free_bytes_min: int) -> None:
        """Refuse appends while fewer than `free_bytes_min` bytes are free.

        If so, files that wait to be unlinked are unlinked at once.
        """
        self._is_hanging = self._silent_s() >= HANGS_AFTER_S
        self._check_began_s = self._clock.monotonic()
        try:
            free_bytes = self._count_free_bytes()
            if free_bytes < max(free_bytes_min, _NEARLY_FULL) and self.delete_due(everything=True):
                free_bytes = self._count_free_bytes()
            is_short = free_bytes < free_bytes_min
        except OSError as error:
            self.health.note_failure(error)
            raise
        finally:
            self._check_began_s = None
        self.health.note_room(is_short=is_short, free_bytes_min=free_bytes_min)

    def _is_nearly_full(self) -> bool:
        try:
            return self._fs.free_bytes(self.path) < _NEARLY_FULL
        except OSError:
            return False

    def _count_free_bytes(self) -> int:
        self._total_bytes = self._fs.total_bytes(self.path)
        self._free_bytes = self._fs.free_bytes(self.path)
        return self._free_bytes

    def checkpoint(self) -> None:
        """Sync all logs with their indexes and write the checkpoints.

        A failure of one log does not stop the others; the first one is raised at the end.
        """
        failure: Exception | None = None
        for log in list(self.logs.values()):
            try:
                log.syncing.checkpoint()
            except Exception as error:
                error.add_note(f"while syncing {log.name}")
                failure = failure or error
        if self._recovery_points() != self._saved_points:
            self.save_high_watermarks()
            self.save_recovery_points()  # last: unless it succeeds, both are tried again
        if failure is not None:
            raise failure

    # --- the end -----------------------------------------------------------------------------

    def close_futures(self) -> None:
        """Give up new replicas that were not complete; the next start removes their files."""
        while self.futures:
            _, log = self.futures.popitem()
            log.close(is_orderly=False)

    def close(self, *, is_clean: bool) -> None:
        """Release the lock. If `is_clean`, first write the checkpoints and the clean marker.

        Without space for them the directory is not clean, and the next opening recovers.
        """
        try:
            if is_clean:
                self.delete_due(everything=True)
                self.save_recovery_points()
                self.save_high_watermarks()
                marker = os.path.join(self.state_path, CLEAN_SHUTDOWN)
                replace_file(self._fs, marker, render_clean_shutdown(_NO_BROKER_EPOCH).encode())
        except OSError as error:
            if error.errno not in FULL_DISK_ERRNOS:
                raise
            logger.warning("%s could not be marked as closed cleanly: %s", self.path, error)
        finally:
            self.release()

    @property
    def is_held(self) -> bool:
        """Whether this process has the lock."""
        return self._lock is not None

    def release(self) -> None:
        """Release the lock. Safe to repeat."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

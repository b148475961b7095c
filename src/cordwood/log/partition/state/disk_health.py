"""The health of the disk under a data directory, as its writes have shown it.

healthy          appends are accepted
short of room    fewer bytes are free than `log.dir.free.bytes.min`: appends are refused until
                 there are enough; the rest is reserved for deletion. Followers and copies of
                 replicas wait, too
failing          a write or a sync failed as on a broken disk: appends are refused until a
                 restart. What can still be read is served
"""

import logging
import threading
from collections.abc import Callable

from cordwood.errors import DiskFullError, LogFailedError, StorageError
from cordwood.storage.disk.disk_errors import FAILING_DISK_ERRNOS
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortOfRoom:
    """Refuses appends until more bytes are free."""

    free_bytes_min: int

    def error_for(self, log: str) -> DiskFullError:
        return DiskFullError(log, free_bytes_min=self.free_bytes_min)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingDisk:
    """Refuses appends until the directory is opened again."""

    path: str
    cause: OSError

    def error_for(self, log: str) -> StorageError:
        return LogFailedError(log, f"data directory {self.path} is offline: {self.cause}")


class DiskHealth:
    """The health of one data directory. Any thread may use it.

    refusal         why appends are refused; None if they are accepted. Every append reads it
    when_failed     called once, by any thread, when the directory goes offline
    free_bytes_min  with fewer bytes free appends are refused; 0 until they were counted
    """

    def __init__(self, path: str) -> None:
        self.refusal: ShortOfRoom | FailingDisk | None = None
        self.when_failed: Callable[[OSError], None] = lambda _error: None
        self.free_bytes_min = 0
        self._path = path
        self._lock = threading.Lock()  # of changes

    @property
    def failure(self) -> OSError | None:
        """The error that took the directory offline."""
        refusal = self.refusal
        return refusal.cause if isinstance(refusal, FailingDisk) else None

    @property
    def is_short_of_room(self) -> bool:
        return isinstance(self.refusal, ShortOfRoom)

    def note_failure(self, error: OSError) -> None:
        """A write or a sync failed: take the directory offline if its disk is failing."""
        if error.errno not in FAILING_DISK_ERRNOS:
            return
        with self._lock:
            if self.failure is not None:
                return
            self.refusal = FailingDisk(path=self._path, cause=error)
        logger.error(
            "data directory %s is offline: %s; its partitions accept no appends until a "
            "restart, the other directories are not affected",
            self._path,
            error,
        )
        self.when_failed(error)

    def note_room(self, *, is_short: bool, free_bytes_min: int) -> None:
        """The free bytes were counted. A failing disk stays offline."""
        self.free_bytes_min = free_bytes_min
        with self._lock:
            if self.failure is not None:
                return
            is_news = is_short != self.is_short_of_room
            self.refusal = ShortOfRoom(free_bytes_min=free_bytes_min) if is_short else None
        if is_news:
            logger.log(
                logging.ERROR if is_short else logging.INFO,
                "%s has %s than %d bytes free; appends are %s",
                self._path,
                "fewer" if is_short else "more",
                free_bytes_min,
                "refused" if is_short else "accepted again",
            )

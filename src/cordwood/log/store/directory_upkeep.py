"""The housekeeping of one data directory, on threads of its own: see `upkeep_tasks`."""

import logging
from collections.abc import Callable
from typing import Final

from cordwood.clock import Clock
from cordwood.errors import CordwoodError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.steady_clock import SteadyClock
from cordwood.log.store.housekeeping import PartialFailureError
from cordwood.log.topics.log_directory import LogDirectory
from cordwood.log.topics.time_file import TimeFile

logger = logging.getLogger(__name__)

# Syncing a mark costs the disk about as much as syncing an append, and appends come first.
_MARKS_BUDGET_S: Final = 0.020


class DirectoryUpkeep:
    """The tasks over the logs of one directory.

    A log that fails does not stop the others and does not slow the task down; the first failure
    is reported at the end. A directory that is offline is left alone.
    """

    def __init__(
        self,
        directory: LogDirectory,
        clock: Clock,
        steady_clock: SteadyClock,
        time_file: TimeFile,
        *,
        free_bytes_min: int,
        should_stop: Callable[[], bool],
    ) -> None:
        self.directory = directory
        self._clock = clock
        self._steady_clock = steady_clock
        self._time_file = time_file
        self._free_bytes_min = free_bytes_min
        self._should_stop = should_stop
        self._marks_turn = 0

    def logs(self) -> list[PartitionLog]:
        """The logs that can be worked on."""
        logs = list(self.directory.logs.values())
        return [log for log in logs if not log.is_closed and not log.is_failed]

    def run_timers(self) -> None:
        self._steady_clock.now_ms()  # frequent readings let it notice a jump of the clock
        self.directory.delete_due()

        def run(log: PartitionLog) -> None:
            try:
                log.rolling.roll_if_due()
            finally:
                log.syncing.flush_if_due()
                log.syncing.trim_if_idle()

        self._for_each("rolling", run)

    def sync_marks(self) -> None:
        """Sync the marks of some logs, in turns, for as long as the time budget lasts."""
        logs = self.logs()
        started_s = self._clock.monotonic()
        failure: Exception | None = None
        for step in range(len(logs)):
            turn = (self._marks_turn + step) % len(logs)
            log = logs[turn]
            did_sync = False
            try:
                did_sync = log.syncing.sync_marks()
            except Exception as error:
                if not log.is_closed:  # else it was closed meanwhile, which synced it
                    error.add_note(f"while syncing the marks of {log.name}")
                    self._note(error)
                    failure = failure or error
            if did_sync and self._clock.monotonic() - started_s >= _MARKS_BUDGET_S:
                self._marks_turn = turn + 1
                break
        if failure is not None:
            raise PartialFailureError(failure)

    def check_room(self) -> None:
        if self.directory.health.failure is None:
            self.directory.check_room(self._free_bytes_min)

    def index_keys(self) -> None:
        self._for_each("indexing the keys of", lambda log: log.upkeep.index_keys(self._should_stop))

    def run_retention(self) -> int:
        """Apply retention to every log; return the bytes that were freed."""
        now_ms = self._steady_clock.now_ms()
        return self._for_each(
            "deleting from", lambda log: log.upkeep.apply_retention(now_ms).local_bytes_reclaimed
        )

    def write_checkpoint(self) -> None:
        if self.directory.health.failure is not None:
            return
        try:
            self.directory.checkpoint()
            self._time_file.save_if_outdated(self._steady_clock.read())
        except Exception as error:
            self._note(error)
            raise PartialFailureError(error) from error

    def save_time(self) -> None:
        """Save the time for the next opening. Without it, that one trusts the wall clock more."""
        if self.directory.health.failure is not None or not self.directory.is_held:
            return
        try:
            self._time_file.save(self._steady_clock.read())
        except OSError as error:
            logger.warning("%s: could not save the time: %s", self.directory.path, error)

    def expire_producers(self) -> None:
        now_ms = self._steady_clock.now_ms()
        self._for_each("forgetting producers of", lambda log: log.producers.expire(now_ms))

    def _for_each(self, action: str, run: Callable[[PartitionLog], int | None]) -> int:
        """Call `run` with every log; return the sum of what it returns."""
        total = 0
        failure: Exception | None = None
        for log in self.logs():
            if self._should_stop():
                break
            try:
                total += run(log) or 0
            except Exception as error:  # whatever it is: the other logs are not concerned
                if log.is_closed and isinstance(error, (OSError, CordwoodError)):
                    continue
                error.add_note(f"while {action} {log.name}")
                self._note(error)
                failure = failure or error
        if failure is not None:
            raise PartialFailureError(failure, bytes_reclaimed=total)
        return total

    def _note(self, error: Exception) -> None:
        if isinstance(error, OSError):
            self.directory.health.note_failure(error)

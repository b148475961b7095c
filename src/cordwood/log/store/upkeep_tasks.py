"""The tasks of every store's housekeeping.

    task             every    what
    timers           1 s      unlink deleted files, roll segments that are old enough, `flush.ms`
    checkpoint       60 s     sync indexes, write recovery points: a crash then costs little
    catalog          60 s     sync the second copies of the topic catalog, forget deleted topics
    retention        30 s     delete segments by the policies of each topic
    key index        5 s      index the keys of newly sealed segments (key.index=true)
    marks            1 s      sync the mapped marks of logs that changed, some at a time
    disk             1 s      refuse appends while fewer than log.dir.free.bytes.min are free
    producers        10 min   forget producers that have been silent for a day
    compaction       15 s     compact the logs that are due
    archive          30 s     copy segments that are due; see `archiving.py`
    inbox            0.25 s   make the changes that other processes requested
    inbox leftovers  10 min   remove files of requests whose process died

Retention looks every 30 s, not every 5 minutes as Kafka does. With nothing to delete a look
costs microseconds, and a retention of ten minutes should not take a quarter of an hour.
"""

import logging
from collections.abc import Callable
from typing import Final

from cordwood.clock import Clock
from cordwood.errors import CordwoodError
from cordwood.log.compaction.cleaner import Cleaner, CleanerConfig
from cordwood.log.inbox.change_service import ChangeService
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.steady_clock import SteadyClock
from cordwood.log.store.housekeeping import Housekeeping
from cordwood.log.topics.data_directories import DataDirectories
from cordwood.log.topics.topic_registry import TopicRegistry
from cordwood.quantities import MIB

logger = logging.getLogger(__name__)

TIMERS_S: Final = 1.0
MARKS_S: Final = 1.0
DISK_S: Final = 1.0
KEY_INDEX_S: Final = 5.0
RETENTION_S: Final = 30.0
CHECKPOINT_S: Final = 60.0
PRODUCERS_S: Final = 600.0
CLEANER_S: Final = 15.0  # as Kafka's log.cleaner.backoff.ms
INBOX_S: Final = 0.25  # the longest time until a request is seen
LEFTOVERS_S: Final = 600.0

FREE_BYTES_MIN: Final = 16 * MIB

# Syncing a mark costs the disk about as much as syncing an append, and appends come first.
_MARKS_BUDGET_S: Final = 0.020


class UpkeepTasks:
    """The tasks over all logs of a store, and the cleaner that compacts them."""

    def __init__(
        self,
        directories: DataDirectories,
        clock: Clock,
        cleaner: CleanerConfig,
        *,
        free_bytes_min: int,
        should_stop: Callable[[], bool],
    ) -> None:
        """`should_stop` tells a long task to end early."""
        self.steady_clock = SteadyClock(clock)
        self.cleaner = Cleaner(directories.logs, self.steady_clock, cleaner)
        self._directories = directories
        self._clock = clock
        self._free_bytes_min = free_bytes_min
        self._marks_turn = 0
        self._should_stop = should_stop

    def register(self, housekeeping: Housekeeping) -> None:
        housekeeping.add("timers", TIMERS_S, self.run_timers)
        housekeeping.add("checkpoint", CHECKPOINT_S, self.write_checkpoints, takes_long=True)
        housekeeping.add("retention", RETENTION_S, self.run_retention, takes_long=True)
        housekeeping.add("key index", KEY_INDEX_S, self.index_keys, takes_long=True)
        housekeeping.add("marks", MARKS_S, self.sync_marks)
        housekeeping.add("disk", DISK_S, self.check_room)
        housekeeping.add("producers", PRODUCERS_S, self.expire_producers)
        housekeeping.add("compaction", CLEANER_S, self.run_cleaner, takes_long=True)

    def _logs(self) -> list[PartitionLog]:
        logs = self._directories.logs()
        return [log for log in logs if not log.is_closed and log.state.failure is None]

    def run_timers(self) -> None:
        self.steady_clock.now_ms()  # frequent readings let it notice a jump of the clock
        for directory in self._directories:
            directory.delete_due()
        for log in self._logs():
            log.rolling.roll_if_due()
            log.syncing.flush_if_due()

    def sync_marks(self) -> None:
        """Sync the marks of some logs, in turns, for as long as the time budget lasts."""
        logs = self._logs()
        started_s = self._clock.monotonic()
        for step in range(len(logs)):
            turn = (self._marks_turn + step) % len(logs)
            log = logs[turn]
            try:
                did_sync = log.syncing.sync_marks()
            except (OSError, AssertionError, ValueError):
                if not log.is_closed:
                    raise
                did_sync = False  # closed meanwhile, which synced it
            if did_sync and self._clock.monotonic() - started_s >= _MARKS_BUDGET_S:
                self._marks_turn = turn + 1
                return

    def check_room(self) -> None:
        for directory in self._directories:
            directory.check_room(self._free_bytes_min)

    def index_keys(self) -> None:
        for log in self._logs():
            log.upkeep.index_keys(self._should_stop)

    def run_retention(self) -> int:
        """Apply retention to every log. The first failure is raised after all were tried."""
        now_ms = self.steady_clock.now_ms()
        reclaimed = 0
        failure: Exception | None = None
        for log in self._logs():
            if self._should_stop():
                break
            try:
                reclaimed += log.upkeep.apply_retention(now_ms).local_bytes_reclaimed
            except (OSError, CordwoodError) as error:
                if not log.is_closed:
                    error.add_note(f"while deleting from {log.name}")
                    failure = failure or error
        if failure is not None:
            raise failure
        return reclaimed

    def write_checkpoints(self) -> None:
        for directory in self._directories:
            directory.checkpoint()

    def expire_producers(self) -> None:
        now_ms = self.steady_clock.now_ms()
        for log in self._logs():
            log.producers.expire(now_ms)

    def run_cleaner(self) -> int:
        return sum(result.bytes_reclaimed for result in self.cleaner.run_due())


def register_catalog(registry: TopicRegistry, housekeeping: Housekeeping) -> None:
    housekeeping.add("catalog", CHECKPOINT_S, registry.sync, takes_long=True)


def register_inbox(changes: ChangeService, housekeeping: Housekeeping) -> None:
    housekeeping.add(
        "inbox",
        INBOX_S,
        changes.serve_quickly,
        takes_long=True,
        is_needed=changes.inbox.has_requests,
    )
    housekeeping.add("inbox leftovers", LEFTOVERS_S, changes.sweep)

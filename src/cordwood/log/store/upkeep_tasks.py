"""The tasks every store has its housekeeping do.

    task        every    what
    timers      1 s      unlink what was deleted, roll segments that are old enough, `flush.ms`
    checkpoint  60 s     sync indexes, write recovery points: a crash then costs little
    retention   30 s     delete what the policies of each topic give up
    key index   5 s      index the keys of segments sealed since (topics with key.index=true)
    marks       1 s      sync the mapped marks of logs that changed, some at a time
    disk        1 s      refuse appends while fewer than log.dir.free.bytes.min bytes are free
    producers   10 min   forget producers that have been silent for a day

Retention looks every 30 s, not every 5 minutes as Kafka does: with nothing to delete a look
costs microseconds, and "ten minutes" should not mean a quarter of an hour.
"""

import logging
from collections.abc import Callable
from typing import Final

from cordwood.clock import Clock
from cordwood.errors import CordwoodError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.steady_clock import SteadyClock
from cordwood.log.store.housekeeping import Housekeeping
from cordwood.log.topics.log_directory import LogDirectory
from cordwood.quantities import MIB

logger = logging.getLogger(__name__)

TIMERS_S: Final = 1.0
MARKS_S: Final = 1.0
DISK_S: Final = 1.0
KEY_INDEX_S: Final = 5.0
RETENTION_S: Final = 30.0
CHECKPOINT_S: Final = 60.0
PRODUCERS_S: Final = 600.0

FREE_BYTES_MIN: Final = 16 * MIB

# A mark's sync costs the disk about as much as an append's; appends come first.
_MARKS_BUDGET_S: Final = 0.020


class UpkeepTasks:
    """What the tasks above do, over all logs of a store."""

    def __init__(
        self,
        directories: Callable[[], list[LogDirectory]],
        clock: Clock,
        *,
        free_bytes_min: int,
    ) -> None:
        self.steady_clock = SteadyClock(clock)
        self._directories = directories
        self._clock = clock
        self._free_bytes_min = free_bytes_min
        self._marks_turn = 0
        self._should_stop: Callable[[], bool] = lambda: False

    def register(self, housekeeping: Housekeeping) -> None:
        self._should_stop = lambda: housekeeping.is_stopping
        housekeeping.add("timers", TIMERS_S, self.run_timers)
        housekeeping.add("checkpoint", CHECKPOINT_S, self.write_checkpoints, takes_long=True)
        housekeeping.add("retention", RETENTION_S, self.run_retention, takes_long=True)
        housekeeping.add("key index", KEY_INDEX_S, self.index_keys, takes_long=True)
        housekeeping.add("marks", MARKS_S, self.sync_marks)
        housekeeping.add("disk", DISK_S, self.check_room)
        housekeeping.add("producers", PRODUCERS_S, self.expire_producers)

    def _logs(self) -> list[PartitionLog]:
        return [
            log
            for directory in self._directories()
            for log in list(directory.logs.values())
            if not log.is_closed and log.state.failure is None
        ]

    def run_timers(self) -> None:
        self.steady_clock.now_ms()  # the more often it looks, the sooner it sees a jump
        for directory in self._directories():
            directory.delete_due()
        for log in self._logs():
            log.rolling.roll_if_due()
            log.syncing.flush_if_due()

    def sync_marks(self) -> None:
        """Some logs each time, going round, for as long as the budget lasts."""
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
                did_sync = False  # closed meanwhile, which syncs all there is
            if did_sync and self._clock.monotonic() - started_s >= _MARKS_BUDGET_S:
                self._marks_turn = turn + 1
                return

    def check_room(self) -> None:
        for directory in self._directories():
            directory.check_room(self._free_bytes_min)

    def index_keys(self) -> None:
        for log in self._logs():
            log.upkeep.index_keys(self._should_stop)

    def run_retention(self) -> int:
        """Every log, also when one of them fails; the first failure is then raised."""
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
        for directory in self._directories():
            directory.checkpoint()

    def expire_producers(self) -> None:
        now_ms = self.steady_clock.now_ms()
        for log in self._logs():
            log.producers.expire(now_ms)

"""The tasks of every store's housekeeping. Most of them exist once for each data directory.

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
    transactions     1 s      abort transactions that timed out, forget ids, try markers again
    offline          1 s      open partitions that were offline, if they can be opened now
    inbox leftovers  10 min   remove files of requests whose process died

Retention looks every 30 s, not every 5 minutes as Kafka does. With nothing to delete a look
costs microseconds, and a retention of ten minutes should not take a quarter of an hour.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from cordwood.clock import Clock
from cordwood.log.compaction.cleaner import Cleaner, CleanerConfig
from cordwood.log.inbox.change_service import ChangeService
from cordwood.log.rules.steady_clock import SteadyClock
from cordwood.log.store.directory_upkeep import DirectoryUpkeep
from cordwood.log.store.housekeeping import Housekeeping
from cordwood.log.store.offline_partitions import OfflinePartitions
from cordwood.log.topics.data_directories import DataDirectories
from cordwood.log.topics.time_file import TimeFile
from cordwood.log.topics.topic_registry import TopicRegistry
from cordwood.log.transactions.coordinator import TransactionCoordinator
from cordwood.quantities import MIB
from cordwood.storage.files import FileSystem

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
TRANSACTIONS_S: Final = 1.0
OFFLINE_S: Final = 1.0  # the task itself pauses longer while nothing helps

FREE_BYTES_MIN: Final = 16 * MIB


class UpkeepTasks:
    """The tasks over all data directories of a store, and the cleaner that compacts their logs."""

    def __init__(
        self,
        directories: DataDirectories,
        clock: Clock,
        steady_clock: SteadyClock,
        cleaner: CleanerConfig,
        *,
        fs: FileSystem,
        free_bytes_min: int,
        should_stop: Callable[[], bool],
    ) -> None:
        """`should_stop` tells a long task to end early."""
        self.steady_clock = steady_clock
        self.of_directories = [
            DirectoryUpkeep(
                directory,
                clock,
                steady_clock,
                TimeFile(fs, directory.state_path),
                free_bytes_min=free_bytes_min,
                should_stop=should_stop,
            )
            for directory in directories
        ]
        self.cleaner = Cleaner(
            directories.logs, steady_clock, cleaner, directory_count=len(self.of_directories)
        )

    def register(self, housekeeping: Housekeeping) -> None:
        for upkeep in self.of_directories:
            path = upkeep.directory.path
            add = partial(housekeeping.add, directory=path)
            add("timers", TIMERS_S, upkeep.run_timers)
            add("checkpoint", CHECKPOINT_S, upkeep.write_checkpoint, takes_long=True)
            add("retention", RETENTION_S, upkeep.run_retention, takes_long=True)
            add("key index", KEY_INDEX_S, upkeep.index_keys, takes_long=True)
            add("marks", MARKS_S, upkeep.sync_marks)
            add("disk", DISK_S, upkeep.check_room)
            add("producers", PRODUCERS_S, upkeep.expire_producers)
            add("compaction", CLEANER_S, partial(self._compact, path), takes_long=True)

    def save_time(self) -> None:
        """Save the time for the next opening."""
        for upkeep in self.of_directories:
            upkeep.save_time()

    def _compact(self, directory: str) -> int:
        return sum(result.bytes_reclaimed for result in self.cleaner.run_due(directory))


def register_catalog(registry: TopicRegistry, housekeeping: Housekeeping) -> None:
    housekeeping.add("catalog", CHECKPOINT_S, registry.sync, takes_long=True)


def register_transactions(transactions: TransactionCoordinator, housekeeping: Housekeeping) -> None:
    housekeeping.add("transactions", TRANSACTIONS_S, transactions.tick)


def register_offline(offline: OfflinePartitions, housekeeping: Housekeeping) -> None:
    housekeeping.add(
        "offline", OFFLINE_S, offline.run, takes_long=True, is_needed=offline.is_needed
    )


def register_inbox(changes: ChangeService, housekeeping: Housekeeping) -> None:
    housekeeping.add(
        "inbox",
        INBOX_S,
        changes.serve_quickly,
        takes_long=True,
        is_needed=changes.inbox.has_requests,
    )
    housekeeping.add("inbox leftovers", LEFTOVERS_S, changes.sweep)

"""The work of a transaction coordinator in the data loop: records about transactions, and markers.

A transaction has three requests, two records about it that must be durable, and a marker in each of
its partitions. With a thread for the last two, each step woke the other thread, and both contended
for the interpreter. Here a turn of the loop writes what its requests decided, the kernel syncs, and
another turn answers them and writes the markers. The order of durable writes is the coordinator's
(`log.transactions.coordinator`): a marker is written after the sync of its decision has ended.

What may have to wait is left to the coordinator's thread: markers for the offsets of groups, and
for a log that a publication holds. So is what takes long: the markers of a transaction in many
partitions, and those that are owed since a crash.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.errors import CordwoodError, LogClosedError
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.transactions.transaction_entry import TransactionEntry
from cordwood.log.transactions.transaction_journal import JournalEntry
from cordwood.log.transactions.transaction_work import LocalWork, WorkItem
from cordwood.quantities import Offset

_STILL_S: Final = 0.002  # somebody copies the store: markers are tried again after that
# In one turn, and of one transaction: the first in a log takes about a millisecond.
_MARKERS_MAX: Final = 32

Failures = Mapping[PartitionLog, Exception]
WhenKept = Callable[[Failures], None]


class _Syncing:
    """Records or markers that wait for the disk. Belongs to the data loop."""

    __slots__ = ("ends", "failures", "left", "when_kept")

    def __init__(self, ends: Mapping[PartitionLog, Offset], when_kept: WhenKept) -> None:
        self.ends = ends
        self.when_kept = when_kept
        self.failures: dict[PartitionLog, Exception] = {}
        self.left = len(ends)

    def promise_settled(self, log: PartitionLog) -> None:
        """The log is durable, or never will be."""
        state = log.state
        if state.failure is not None:
            self.failures[log] = state.failure
        elif state.is_closed:
            self.failures[log] = LogClosedError(log.name)
        self.left -= 1
        if not self.left:
            self.when_kept(self.failures)


class TransactionRounds:
    """Does the work of a store's coordinator while a broker runs. Belongs to the data loop.

    `put` and `hurry` may be called by any thread.
    """

    def __init__(self, loop: EventLoop, watch: LogWatch, syncs: DiskSyncs, work: LocalWork) -> None:
        self._loop = loop
        self._watch = watch
        self._syncs = syncs
        self._work = work
        self._items: deque[WorkItem] = deque()
        self._is_scheduled = False
        self._is_open = False
        self._records: list[JournalEntry] = []  # to write when the last ones are durable
        self._marked: list[TransactionEntry] = []
        self._is_writing = False  # records wait for the disk
        self._syncing: dict[_Syncing, None] = {}

    # --- any thread --------------------------------------------------------------------------

    def put(self, item: WorkItem, *, is_urgent: bool) -> None:
        self._items.append(item)
        if is_urgent:
            self._schedule()

    def hurry(self) -> None:
        if self._items:
            self._schedule()

    def _schedule(self) -> None:
        if self._is_scheduled:
            return
        self._is_scheduled = True
        if self._loop.is_current:
            self._loop.call_last(self._run)  # the requests of a turn share a write
        else:
            self._loop.call_soon(self._run)

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over the work. Called before the loop turns."""
        self._work.work_by(self)
        self._is_open = True
        self._loop.call_soon(self._run)

    def stop(self) -> None:
        """Give the work back, after what was begun is durable. Called when the loop has ended."""
        if not self._is_open:
            return
        self._is_open = False
        for syncing in list(self._syncing):
            for log, end in syncing.ends.items():
                try:
                    log.promises.await_kept(end)
                except (CordwoodError, OSError) as error:
                    syncing.failures[log] = error
            syncing.when_kept(syncing.failures)
        self._work.work_here_again(self._take_left)

    def _take_left(self) -> list[WorkItem]:
        items: list[WorkItem] = [*self._records, *self._marked, *self._items]
        self._records, self._marked = [], []
        self._items.clear()
        return items

    # --- in the loop -------------------------------------------------------------------------

    def _run(self) -> None:
        self._is_scheduled = False
        if not self._is_open:
            return
        items = self._items
        for _ in range(len(items)):
            item = items.popleft()
            if isinstance(item, JournalEntry):
                self._records.append(item)
            elif item is None or _may_take_long(item):
                self._work.leave_to_thread(item)
            else:
                self._marked.append(item)
        # While the disk is busy with records, the next ones gather: one write and one sync for all.
        if self._records and not self._is_writing:
            self._write_records()
        if self._marked:
            self._write_markers()

    def _write_records(self) -> None:
        entries, self._records = self._records, []
        written = self._work.append_records(entries)

        def kept(failures: Failures) -> None:
            self._is_writing = False
            written.tell(failures)
            if self._records:
                self._schedule()

        self._is_writing = True
        self._await(written.ends, kept)

    def _write_markers(self) -> None:
        work = self._work
        if not work.may_mark:
            self._marked = []
            return
        if not work.turns.begin(wait=False):
            self._loop.call_later(_STILL_S, self._schedule)
            return
        entries = self._take_marked()
        try:
            marking = work.append_markers(entries, wait=False)
        except BaseException:
            work.turns.end()
            raise
        if self._marked:
            self._schedule()  # sockets have their turn before the others

        def kept(failures: Failures) -> None:
            work.turns.end()
            work.finish_markers(marking, failures)

        self._await(marking.ends, kept)

    def _take_marked(self) -> list[TransactionEntry]:
        """The transactions that get their markers in this turn, at least one."""
        count = markers = 0
        for entry in self._marked:
            markers += len(entry.unmarked)
            if count and markers > _MARKERS_MAX:
                break
            count += 1
        taken, self._marked = self._marked[:count], self._marked[count:]
        return taken

    def _await(self, ends: Mapping[PartitionLog, Offset], when_kept: WhenKept) -> None:
        """Call `when_kept` when each log keeps its promise below its end, or never will."""
        unkept = {log: end for log, end in ends.items() if not log.promises.is_kept(end)}
        if not unkept:
            when_kept({})
            return

        def kept(failures: Failures) -> None:
            del self._syncing[syncing]
            when_kept(failures)

        syncing = _Syncing(unkept, kept)
        self._syncing[syncing] = None
        for log, end in unkept.items():
            self._syncs.request(log)
            self._watch.await_promise(log, end, syncing)


def _may_take_long(entry: TransactionEntry) -> bool:
    """Whether the transaction has many markers, or one that may have to wait for others."""
    unmarked = entry.unmarked
    return len(unmarked) > _MARKERS_MAX or any(
        topic == CONSUMER_OFFSETS_TOPIC for topic, _ in unmarked
    )

"""What a part of the broker keeps for each log, found as requests name the log.

Requests have the name of a topic or its id, depending on their version, and are looked up as they
were received: the bytes of the name or the id, and the partition. A log has the same entry under
both.
"""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar
from uuid import UUID

from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.errors import StorageError
from cordwood.log.partition.partition_log import PartitionLog

_LOGS_MAX: Final = 4096  # that are remembered; beyond that all idle ones are forgotten


class LogEntry(Protocol):
    """What is kept for one log."""

    @property
    def log(self) -> PartitionLog: ...

    @property
    def is_idle(self) -> bool:
        """Whether it may be forgotten, and made again when it is needed."""
        ...


_E = TypeVar("_E", bound=LogEntry)


class KnownLogs(Generic[_E]):
    """The entries of all logs that requests came for. Belongs to the data loop.

    `by_name` and `by_id` may be read by anyone in that loop; `find` fills them.
    """

    def __init__(
        self,
        table: PartitionTable,
        watch: LogWatch,
        make: Callable[[PartitionLog, UUID], _E | None],
    ) -> None:
        """`make` gets an open log and the id of its topic; None: the log has no entry."""
        self.by_name: dict[tuple[bytes, int], _E] = {}
        self.by_id: dict[tuple[bytes, int], _E] = {}
        self._by_log: dict[PartitionLog, tuple[_E, UUID]] = {}
        self._awaited: set[PartitionLog] = set()  # whose end will be reported
        self._table = table
        self._watch = watch
        self._make = make

    def __len__(self) -> int:
        return len(self._by_log)

    def of(self, log: PartitionLog) -> _E | None:
        known = self._by_log.get(log)
        return None if known is None else known[0]

    def find(self, key: tuple[bytes, int], *, is_id: bool) -> _E | None:
        """The entry of an open log; None if the long way has to find out what is wrong."""
        name, partition = key
        try:
            wanted = UUID(bytes=name) if is_id else str(name, "utf-8")
            topic = self._table.topic(wanted)
            log = self._table.log(wanted, partition)
        except (StorageError, UnicodeDecodeError):
            return None
        if topic is None or log is None or log.is_closed:
            return None
        entry = self.of(log) or self._made(log, topic.topic_id)
        if entry is not None:
            (self.by_id if is_id else self.by_name)[key] = entry
        return entry

    def _made(self, log: PartitionLog, topic_id: UUID) -> _E | None:
        if len(self._by_log) >= _LOGS_MAX:
            self._forget_idle()
        entry = self._make(log, topic_id)
        if entry is not None:
            self._by_log[log] = entry, topic_id
            if log not in self._awaited:  # an entry may be made again, as often as requests come
                self._awaited.add(log)
                self._watch.await_close(log, lambda: self._closed(log))
        return entry

    def _closed(self, log: PartitionLog) -> None:
        self._awaited.discard(log)
        entry = self.of(log)
        if entry is not None:
            self.forget(entry)

    def forget(self, entry: _E) -> None:
        """The log is closed. A topic of the same name has other entries."""
        log = entry.log
        known = self._by_log.get(log)
        if known is None or known[0] is not entry:
            return
        del self._by_log[log]
        for entries, name in ((self.by_name, log.topic.encode()), (self.by_id, known[1].bytes)):
            if entries.get((name, log.partition)) is entry:
                del entries[name, log.partition]

    def _forget_idle(self) -> None:
        self._by_log = {log: known for log, known in self._by_log.items() if not known[0].is_idle}
        self.by_name.clear()
        self.by_id.clear()

"""Reading archived records for fetches, in threads."""

import logging
from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Final, NamedTuple, Protocol

from cordwood.archive.objects.object_urls import endpoint
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.errors import CordwoodError, StorageError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.file_range import FileRange, read_range

logger = logging.getLogger(__name__)

_READERS_MAX: Final = 4  # segments that are read from one archive at the same time

ArchivedRange = FileRange | Exception | None


class ArchivedPlace(NamedTuple):
    """Records in an archive: at most `bytes_max` bytes from `offset` on."""

    log: PartitionLog
    offset: int
    bytes_max: int


WhenRead = Callable[[ArchivedPlace, ArchivedRange], None]


class ReaderThreads(Protocol):
    """Where archives are read. `archive` says which one: one may not hold up another."""

    def submit(self, archive: str, read: Callable[[], None]) -> None:
        """Call `read` in a thread. Raises RuntimeError if the system has none; then never."""
        ...


class ArchiveReads:
    """Reads that are under way. Fetches for the same place share one. Belongs to the data loop."""

    def __init__(self, loop: EventLoop, threads: ReaderThreads) -> None:
        self._loop = loop
        self._threads = threads
        self._waiting: dict[ArchivedPlace, list[WhenRead]] = {}

    def read(self, place: ArchivedPlace, when_read: WhenRead) -> None:
        """Call `when_read` in the data loop, with the records or the error."""
        waiting = self._waiting.get(place)
        if waiting is not None:
            waiting.append(when_read)
            return
        self._waiting[place] = [when_read]
        archive = endpoint(place.log.config.archive_url or "")
        try:
            self._threads.submit(archive, lambda: self._read(place))
        except (RuntimeError, MemoryError) as error:
            failed = StorageError(f"{place.log.name}: no thread to read the archive: {error}")
            self._loop.call_soon(lambda: self._arrived(place, failed))

    def _read(self, place: ArchivedPlace) -> None:
        """In a reader's thread."""
        found: ArchivedRange
        try:
            found = read_range(place.log.source, place.offset, max_bytes=place.bytes_max)
        except (CordwoodError, OSError) as error:
            found = error
        except Exception:
            name = place.log.name
            logger.exception("%s: reading the archive at offset %d failed", name, place.offset)
            found = StorageError(f"{name}: reading the archive failed")
        self._loop.call_soon(lambda: self._arrived(place, found))

    def _arrived(self, place: ArchivedPlace, found: ArchivedRange) -> None:
        for when_read in self._waiting.pop(place):
            when_read(place, found)


class ArchiveReaders:
    """A few threads for each archive. They do not keep the process alive: a read may hang."""

    def __init__(self) -> None:
        self._queues: dict[str, SimpleQueue[Callable[[], None] | None]] = {}
        self._threads: Counter[str] = Counter()
        self._is_stopped = False

    def submit(self, archive: str, read: Callable[[], None]) -> None:
        """In the data loop."""
        queue = self._queues.setdefault(archive, SimpleQueue())
        if self._threads[archive] < _READERS_MAX:
            self._start_thread(archive)
        queue.put(read)

    def _start_thread(self, archive: str) -> None:
        """If the system refuses, the threads that there are suffice; the next read tries again."""
        thread = Thread(
            target=self._run, args=(archive,), name="cordwood-archive-reader", daemon=True
        )
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            if not self._threads[archive]:
                raise
            logger.warning("%s: no further thread to read it: %s", archive, error)
            return
        self._threads[archive] += 1

    def stop(self) -> None:
        """Begin no more reads, and do not wait for those under way."""
        self._is_stopped = True
        for archive, count in self._threads.items():
            for _ in range(count):
                self._queues[archive].put(None)

    def _run(self, archive: str) -> None:
        queue = self._queues[archive]
        while (read := queue.get()) is not None:
            if not self._is_stopped:
                read()

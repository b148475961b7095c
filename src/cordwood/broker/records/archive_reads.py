"""Reading archived records for fetches, in worker threads."""

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

from cordwood.broker.net.event_loop import EventLoop
from cordwood.errors import CordwoodError, StorageError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.file_range import FileRange, read_range

logger = logging.getLogger(__name__)

ArchivedRange = FileRange | Exception | None


class ArchivedPlace(NamedTuple):
    """Records in an archive: at most `bytes_max` bytes from `offset` on."""

    log: PartitionLog
    offset: int
    bytes_max: int


WhenRead = Callable[[ArchivedPlace, ArchivedRange], None]


class ArchiveReads:
    """Reads that are under way. Fetches for the same place share one. Belongs to the data loop."""

    def __init__(self, loop: EventLoop, workers: Executor) -> None:
        self._loop = loop
        self._workers = workers
        self._waiting: dict[ArchivedPlace, list[WhenRead]] = {}

    def read(self, place: ArchivedPlace, when_read: WhenRead) -> None:
        """Call `when_read` in the data loop, with the records or the error."""
        waiting = self._waiting.get(place)
        if waiting is not None:
            waiting.append(when_read)
            return
        self._waiting[place] = [when_read]
        self._workers.submit(self._read, place)

    def _read(self, place: ArchivedPlace) -> None:
        """In a worker."""
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

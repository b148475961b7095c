"""Ids for idempotent producers. No id is given twice, even after a crash.

Ids are reserved in blocks, and a block is durable before its first id is given. After a kill the
rest of the block is lost. Every data directory has a file `cordwood-producer-ids`; the largest
number counts:

    cordwood-producer-ids 1 <first id not reserved> <crc32c of it, 8 hex digits>
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

from cordwood.checksums import crc32c
from cordwood.errors import FormatError, StorageError
from cordwood.quantities import INT64_MAX, KIB, ProducerId
from cordwood.storage.files import FileSystem, read_whole, replace_file

logger = logging.getLogger(__name__)

PRODUCER_IDS_FILE: Final = "cordwood-producer-ids"
_MAGIC: Final = "cordwood-producer-ids"
_VERSION: Final = "1"
_BLOCK: Final = 1000  # as Kafka's brokers reserve
# If the file is damaged, or is missing although logs have producers, the ids given so far are
# unknown. Continue far above them.
_LEAP: Final = 2**40
# A client may invent an id. No broker gives ids as large as this, so larger ids are ignored;
# otherwise one invented id could use up the whole range.
_MADE_UP: Final = 2**62


class ProducerIds:
    """Gives out producer ids. Any thread may call it.

    `largest_known(below)` is the largest id below `below` that any log has records of, -1 for
    none. Logs may come from another broker and contain ids that it gave.
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: Sequence[str],
        largest_known: Callable[[int], int],
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._largest_known = largest_known
        self._lock = threading.Lock()
        self._next = 0
        self._reserved: int | None = None  # ids below it are reserved on disk; None: not read yet

    def allocate(self) -> ProducerId:
        """An id that was never given before. Raises `OSError` if it cannot be reserved on disk."""
        with self._lock:
            if self._reserved is None or self._next >= self._reserved:
                self._reserve()
            number = self._next
            self._next += 1
            return ProducerId(number)

    def allocate_block(self) -> range:
        """Ids for another process of this node, none of which was ever given. As `allocate`."""
        with self._lock:
            self._reserve()
            assert self._reserved is not None
            block = range(self._next, self._reserved)
            self._next = self._reserved
            return block

    def record_known(self) -> None:
        """Have the files tell of the ids of all logs: who asks next may not see the logs.

        Needs no room on the disk if they do already. Raises `OSError` as `allocate`.
        """
        with self._lock:
            recorded, is_damaged = self._recorded()
            largest = self._largest_known(_MADE_UP)
            if is_damaged or largest >= max(recorded, default=0):
                self._reserve()

    def _reserve(self) -> None:
        start = self._first_free() if self._reserved is None else self._reserved
        start = max(start, self._largest_known(_MADE_UP) + 1)
        end = start + _BLOCK
        if end > INT64_MAX:
            raise StorageError("no producer ids are left")
        self._write(end)
        self._next, self._reserved = start, end

    def _first_free(self) -> int:
        found, is_damaged = self._recorded()
        if found:
            return max(found)
        largest = self._largest_known(_MADE_UP)
        return largest + _LEAP if is_damaged or largest >= 0 else 0

    def _recorded(self) -> tuple[list[int], bool]:
        """What the files say, and whether one is damaged."""
        found: list[int] = []
        is_damaged = False
        for directory in self._directories:
            path = os.path.join(directory, PRODUCER_IDS_FILE)
            try:
                found.append(parse_producer_ids(read_whole(self._fs, path, limit=KIB)))
            except FileNotFoundError:
                continue
            except FormatError as error:
                logger.warning("replacing %s, which cannot be read: %s", path, error)
                is_damaged = True
        return found, is_damaged

    def _write(self, end: int) -> None:
        """Durable in at least one directory on return; failures of others are logged."""
        failures: list[OSError] = []
        for directory in self._directories:
            path = os.path.join(directory, PRODUCER_IDS_FILE)
            try:
                replace_file(self._fs, path, render_producer_ids(end))
            except OSError as error:
                logger.warning("could not write %s: %s", path, error)
                failures.append(error)
        if failures and len(failures) == len(self._directories):
            raise failures[0]


def render_producer_ids(first_free: int) -> bytes:
    number = str(first_free).encode()
    return f"{_MAGIC} {_VERSION} {first_free} {crc32c(number):08x}\n".encode()


def parse_producer_ids(content: bytes) -> int:
    """The first id that is not reserved. Raises `FormatError` unless the file is sound."""
    fields = content.split()
    if len(fields) != 4 or fields[0] != _MAGIC.encode():
        raise FormatError("not a file of producer ids")
    if fields[1] != _VERSION.encode():
        raise FormatError(f"file of producer ids has unknown version {fields[1]!r}")
    if f"{crc32c(fields[2]):08x}".encode() != fields[3]:
        raise FormatError("the checksum of the file of producer ids does not match")
    if not fields[2].isdigit() or int(fields[2]) > INT64_MAX:
        raise FormatError(f"{fields[2]!r} is not a producer id")
    return int(fields[2])

"""Numbers for idempotent producers, none of them given twice, whatever happens in between.

A number is given only after its whole block was written down as used: after a kill the rest of
the block is lost, and no number comes again. Kept in every data directory as
`cordwood-producer-ids`, the largest counts:

    cordwood-producer-ids 1 <first number not reserved> <crc32c of it, 8 hex digits>
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

import crc32c

from cordwood.errors import FormatError, StorageError
from cordwood.quantities import INT64_MAX, KIB, ProducerId
from cordwood.storage.files import FileSystem, read_whole, replace_file

logger = logging.getLogger(__name__)

PRODUCER_IDS_FILE: Final = "cordwood-producer-ids"
_MAGIC: Final = "cordwood-producer-ids"
_VERSION: Final = "1"
_BLOCK: Final = 1000  # as Kafka's brokers reserve
# Where the file is missing and logs know producers, or where it cannot be read, nobody knows
# which numbers were given: go on far above any that can have been.
_LEAP: Final = 2**40
# A client may make up an id for its batches. No broker comes to give ids as large as this by
# itself, so these do not count, or the next one could leave us none.
_MADE_UP: Final = 2**62


class ProducerIds:
    """Gives out producer ids. Any thread may ask.

    `largest_known` is the largest id below a given one that any log has records of, -1 for
    none: logs may come from elsewhere, with producers of another broker in them.
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
        self._reserved: int | None = None  # ids below were written down; None: not read yet

    def allocate(self) -> ProducerId:
        """A number never given before. Raises `OSError` when that cannot be made sure."""
        with self._lock:
            if self._reserved is None or self._next >= self._reserved:
                self._reserve()
            number = self._next
            self._next += 1
            return ProducerId(number)

    def _reserve(self) -> None:
        start = self._first_free() if self._reserved is None else self._reserved
        start = max(start, self._largest_known(_MADE_UP) + 1)
        end = start + _BLOCK
        if end > INT64_MAX:
            raise StorageError("there are no producer ids left")
        self._write(end)
        self._next, self._reserved = start, end

    def _first_free(self) -> int:
        found: list[int] = []
        is_damaged = False
        for directory in self._directories:
            path = os.path.join(directory, PRODUCER_IDS_FILE)
            try:
                found.append(parse_producer_ids(read_whole(self._fs, path, limit=KIB)))
            except FileNotFoundError:
                continue
            except FormatError as error:
                logger.warning("%s cannot be read and is written anew: %s", path, error)
                is_damaged = True
        if found:
            return max(found)
        largest = self._largest_known(_MADE_UP)
        return largest + _LEAP if is_damaged or largest >= 0 else 0

    def _write(self, end: int) -> None:
        """Durable in at least one directory on return; a directory that failed is told of."""
        failures: list[OSError] = []
        for directory in self._directories:
            path = os.path.join(directory, PRODUCER_IDS_FILE)
            try:
                replace_file(self._fs, path, render_producer_ids(end))
            except OSError as error:
                logger.warning("producer ids could not be noted in %s: %s", path, error)
                failures.append(error)
        if failures and len(failures) == len(self._directories):
            raise failures[0]


def render_producer_ids(first_free: int) -> bytes:
    number = str(first_free).encode()
    return f"{_MAGIC} {_VERSION} {first_free} {crc32c.crc32c(number):08x}\n".encode()


def parse_producer_ids(content: bytes) -> int:
    """The first number that is not reserved; `FormatError` for anything but a whole file."""
    fields = content.split()
    if len(fields) != 4 or fields[0] != _MAGIC.encode():
        raise FormatError("not a file of producer ids")
    if fields[1] != _VERSION.encode():
        raise FormatError(f"producer ids of version {fields[1]!r}")
    if f"{crc32c.crc32c(fields[2]):08x}".encode() != fields[3]:
        raise FormatError("the checksum of the producer ids does not match")
    if not fields[2].isdigit() or int(fields[2]) > INT64_MAX:
        raise FormatError(f"producer id {fields[2]!r}")
    return int(fields[2])

"""The time when a store was open last, for the clock of its next opening: see `SteadyClock`.

Every data directory has a file `cordwood-time`: a checked document whose generation is the time
without jumps in milliseconds, and whose body is JSON. The newest sound copy counts.

    {"wall_ms": 1700000000000, "doubted_ms": 0}
"""

import json
import logging
import os
from collections.abc import Sequence
from typing import Final

from cordwood.clock import Clock
from cordwood.errors import FormatError
from cordwood.format.small_files.checked_document import (
    CheckedDocument,
    decode_document,
    encode_document,
)
from cordwood.log.rules.moments_in_words import in_words
from cordwood.log.rules.steady_clock import SteadyClock, SteadyTime
from cordwood.quantities import KIB, TimestampMs
from cordwood.storage.disk.disk_errors import FULL_DISK_ERRNOS
from cordwood.storage.files import FileSystem, read_whole, replace_file

logger = logging.getLogger(__name__)

TIME_FILE: Final = "cordwood-time"
# The clock of the next opening tolerates a day, so most checkpoints need not write the file.
_OUTDATED_MS: Final = 3_600_000


class TimeFile:
    """The file of one data directory. Only the owner of the directory writes it."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._path = os.path.join(directory, TIME_FILE)
        self._saved: SteadyTime | None = None

    def save(self, time: SteadyTime) -> None:
        """Replace the file. Durable on return."""
        replace_file(self._fs, self._path, encode_time(time))
        self._saved = time

    def save_if_outdated(self, time: SteadyTime) -> None:
        """As `save`, if the file is an hour old or the wall clock is doubted.

        On a full disk a later call saves it.
        """
        saved = self._saved
        if saved is None or time.is_doubted or abs(time.now_ms - saved.now_ms) >= _OUTDATED_MS:
            try:
                self.save(time)
            except OSError as error:
                if error.errno not in FULL_DISK_ERRNOS:
                    raise


def open_steady_clock(fs: FileSystem, directories: Sequence[str], clock: Clock) -> SteadyClock:
    """The clock of a store, continued from its last opening; a new store trusts the wall clock."""
    found = [time for directory in directories if (time := _read(fs, directory)) is not None]
    last = max(found, key=lambda time: time.now_ms, default=None)
    steady_clock = SteadyClock(clock, last)
    time = steady_clock.read()
    if time.is_doubted:
        logger.warning(
            "%s: the clock says %s, but the store was last open at %s; until the clock has been "
            "so for an hour, retention uses the earlier time. Correct the clock if it is wrong",
            directories[0],
            in_words(time.wall_ms),
            in_words(time.now_ms),
        )
    return steady_clock


def _read(fs: FileSystem, directory: str) -> SteadyTime | None:
    path = os.path.join(directory, TIME_FILE)
    try:
        return decode_time(read_whole(fs, path, limit=KIB))
    except FileNotFoundError:
        return None
    except (FormatError, OSError) as error:
        logger.warning("ignoring %s, which cannot be read: %s", path, error)
        return None


def encode_time(time: SteadyTime) -> bytes:
    body = json.dumps({"wall_ms": time.wall_ms, "doubted_ms": time.doubted_ms}).encode()
    return encode_document(TIME_FILE, CheckedDocument(max(time.now_ms, 0), body))


def decode_time(content: bytes) -> SteadyTime:
    """Raises `FormatError` unless `content` is a sound file."""
    document = decode_document(TIME_FILE, content)
    try:
        body = json.loads(document.body)
        wall_ms, doubted_ms = int(body["wall_ms"]), int(body["doubted_ms"])
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise FormatError(f"the {TIME_FILE} file has an unknown body: {error!r}") from error
    return SteadyTime(
        now_ms=TimestampMs(document.generation),
        wall_ms=TimestampMs(wall_ms),
        doubted_ms=doubted_ms,
    )

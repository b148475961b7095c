"""The `high-watermark` file of a partition: how far readers in other processes may go.

    word  field
    0     magic and version               "cordwhw" and the byte 1
    1     high watermark                  first offset a consumer may not read yet
    2     its check
    3     log start                       first offset still readable
    4     its check
    5     durable, first slot             everything below was synced to the disk
    6     its check
    7     durable, second slot            written in turns with the first
    8     its check

Words are 64-bit, signed, in native byte order (little-endian on all common machines), mapped and
shared. The check of a value is its bitwise complement. It detects a pair of zeros, a value read
between its two stores, and a value of which a power failure kept only half. The durable mark
decides what recovery may cut off, so it has two slots: only one is written at a time, and the
other stays valid.

Publishing is two stores into memory, without a system call. After a power failure the file may be
ahead of the log or behind it; on opening, the bytes of the log and the checkpoints decide.
"""

import os
import time
from array import array
from typing import Final

from cordwood.errors import TruncatedInputError, UnsupportedFormatError
from cordwood.format.file_names import HIGH_WATERMARK
from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem, WordMap, Words
from cordwood.value_class import dataclass

_MAGIC: Final = int.from_bytes(b"cordwhw\x01", "little", signed=True)
_HIGH_WATERMARK_WORD: Final = 1
_LOG_START_WORD: Final = 3
_DURABLE_WORDS: Final = (5, 7)
WORD_COUNT: Final = 9

# A live writer may be suspended between its two stores: wait a few time slices.
_READ_ATTEMPTS: Final = 8
_READ_PAUSE_S: Final = 0.0002


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMarks:
    """The values in the file; None for a value that is not valid."""

    high_watermark: Offset | None = None
    log_start: Offset | None = None
    durable: Offset | None = None


class HighWatermarkFile:
    """One process, the owner of the directory, publishes; any process reads."""

    def __init__(
        self, fs: FileSystem, directory: str, *, writable: bool, is_new: bool = False
    ) -> None:
        """If writable, a missing file is created; otherwise it is opened on the first read.

        The marks of a log that `is_new` are synced with it, not when they are published.
        """
        self._fs = fs
        self._path = os.path.join(directory, HIGH_WATERMARK)
        self._words: WordMap | None = None
        self._cells: Words | None = None  # of a writable file
        self._durable: Offset | None = None
        self._durable_turn = 0
        self._is_unpublished = False
        self._is_unsynced = False
        if writable:
            self._words = words = fs.map_words(self._path, WORD_COUNT, writable=True)
            if words[0] != _MAGIC:
                for word in range(1, WORD_COUNT):  # whatever the content is, it must not look valid
                    words[word] = 0
                words[0] = _MAGIC
            self._cells = words.cells
            self._is_unpublished = not is_new and self.read().durable is None

    @property
    def path(self) -> str:
        return self._path

    @property
    def is_unsynced(self) -> bool:
        """Whether a value was published since the last `sync`."""
        return self._is_unsynced

    def publish(
        self,
        *,
        high_watermark: Offset | None = None,
        log_start: Offset | None = None,
        durable: Offset | None = None,
    ) -> None:
        """Publish the given values to readers. Not durable: see `sync`.

        Only the first durable mark of a new file is synced here: from then on the file has some
        mark after a power failure, and recovery knows what was acknowledged.

        A reader reads the high watermark first. So a start that moves with it is written before
        it: whoever sees the new high watermark does not see records before the new start.
        """
        cells, words = self._cells, self._words
        assert words is not None, f"{self._path} is closed"
        assert cells is not None, f"{self._path} was opened for reading"
        self._is_unsynced = True
        if (
            log_start is not None
            and high_watermark is not None
            and high_watermark > cells[_HIGH_WATERMARK_WORD]
        ):
            _store(cells, _LOG_START_WORD, log_start)
        if high_watermark is not None:
            cells[_HIGH_WATERMARK_WORD] = high_watermark
            cells[_HIGH_WATERMARK_WORD + 1] = ~high_watermark
        if log_start is not None:
            _store(cells, _LOG_START_WORD, log_start)
        if durable is not None and durable != self._durable:
            self._publish_durable(cells, durable)
            if self._is_unpublished:
                words.sync()
                self._is_unpublished = False

    def publish_high_watermark(self, offset: Offset) -> None:
        """Publish the high watermark alone, as every append does. See `publish`."""
        cells = self._cells
        assert cells is not None, f"{self._path} is closed, or was opened for reading"
        self._is_unsynced = True
        cells[_HIGH_WATERMARK_WORD] = offset
        cells[_HIGH_WATERMARK_WORD + 1] = ~offset

    def _publish_durable(self, cells: Words, durable: Offset) -> None:
        if self._durable is None or durable < self._durable:
            for word in _DURABLE_WORDS:  # the log was opened or truncated: no slot may be higher
                _store(cells, word, durable)
        else:
            turn = self._durable_turn ^ 1
            word = _DURABLE_WORDS[turn]
            cells[word] = durable
            cells[word + 1] = ~durable
            self._durable_turn = turn  # at last: after an interrupt, the same slot is tried again
        self._durable = durable

    def read(self) -> LogMarks:
        """The published values. All None if there is no such file, as in a log of Kafka.

        Each value is valid on its own; the three may be from slightly different moments. The owner
        reads before it publishes. What is not valid then stays so, and there is no wait for it.
        """
        words = self._words or self._try_map()
        if words is None or words[0] != _MAGIC:
            return LogMarks()
        attempts = 1 if self._cells is not None else _READ_ATTEMPTS
        return LogMarks(
            high_watermark=_load(words, _HIGH_WATERMARK_WORD, attempts),
            log_start=_load(words, _LOG_START_WORD, attempts),
            durable=_load_larger(words, _DURABLE_WORDS, attempts),
        )

    def sync(self) -> None:
        """Make the published values durable."""
        assert self._words is not None, f"{self._path} is closed"
        self._is_unsynced = False  # first, so that values published meanwhile count as unsynced
        try:
            self._words.sync()
        except BaseException:
            self._is_unsynced = True
            raise

    def close(self) -> None:
        """Unmap; safe to repeat. A later read maps the file again."""
        self._cells = None
        words, self._words = self._words, None
        if words is not None:
            words.close()

    def _try_map(self) -> WordMap | None:
        try:
            self._words = self._fs.map_words(self._path, WORD_COUNT, writable=False)
        except (FileNotFoundError, TruncatedInputError):
            return None  # its writer has not created or filled it yet
        return self._words


def _store(cells: Words, word: int, value: int) -> None:
    check = ~value
    if cells[word] != value or cells[word + 1] != check:
        cells[word] = value
        cells[word + 1] = check


def _load(words: WordMap, word: int, attempts: int) -> Offset | None:
    while True:
        value, check = words[word], words[word + 1]
        if check == ~value:
            return Offset(value)
        if value == 0 and check == 0:
            return None  # never published
        attempts -= 1
        if attempts == 0:
            return None
        time.sleep(_READ_PAUSE_S)


def _load_larger(words: WordMap, slots: tuple[int, int], attempts: int) -> Offset | None:
    found = [_load(words, word, attempts) for word in slots]
    return max((value for value in found if value is not None), default=None)


def decode_words(data: bytes) -> dict[str, Offset | None]:
    """The values in the bytes of a whole file, for a dump; None for a value that is not valid.

    `FormatError` if it is another kind of file.
    """
    if len(data) != WORD_COUNT * 8:
        raise TruncatedInputError("high-watermark", needed=WORD_COUNT * 8, got=len(data))
    words = array("q", data)
    if words[0] != _MAGIC:
        raise UnsupportedFormatError("beginning of a high-watermark file", data[:8])
    places = {
        "high_watermark": _HIGH_WATERMARK_WORD,
        "log_start": _LOG_START_WORD,
        "durable_1": _DURABLE_WORDS[0],
        "durable_2": _DURABLE_WORDS[1],
    }
    return {
        name: Offset(words[at]) if words[at + 1] == ~words[at] else None
        for name, at in places.items()
    }

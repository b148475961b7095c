"""A file of staged batches: encoded, for several partitions, not yet in any log.

    position  size    field
    0         8       magic          "cordwstg"
    8                 batches        one after another, as clients send them (base offset 0)
              24 n    index          for each batch: number of its place, position, size
                      places         JSON: [["orders", 0], ["orders", 1], ...]
    end - 40  8       index position
    end - 32  8       batch count
    end - 24  8       places position
    end - 16  4       crc32c         of index and places
    end - 12  4       version        1
    end - 8   8       magic

Integers are little-endian; those of the index and the first three of the end have 64 bits. A place
is a topic and a partition. The batches of a place are in the order in which they will be appended.
Batches have their own checksums; the checksum at the end covers the index and the places.
"""

import json
import struct
import sys
from array import array
from typing import Final

from cordwood.checksums import crc32c
from cordwood.errors import (
    ChecksumMismatchError,
    FormatError,
    InvalidTopicNameError,
    LimitExceededError,
    TruncatedInputError,
    UnsupportedFormatError,
)
from cordwood.format.batch_header import HEADER_SIZE
from cordwood.format.file_names import check_topic_name
from cordwood.quantities import INT32_MAX, MIB
from cordwood.value_class import dataclass

MAGIC: Final = b"cordwstg"
ROW_SIZE: Final = 24
END_SIZE: Final = 40
PLACES_BYTES_MAX: Final = 64 * MIB
_ROW: Final = 3
_VERSION: Final = 1
_END: Final = struct.Struct("<qqqII8s")
assert _END.size == END_SIZE

PlaceName = tuple[str, int]  # topic, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedEnd:
    """The last bytes of the file: the positions of index and places."""

    index_position: int
    batch_count: int
    places_position: int
    crc: int


class StagedIndex:
    """The batches of each place in a file, in the order they were added."""

    def __init__(self) -> None:
        self._numbers: dict[PlaceName, int] = {}
        self._rows = array("q")

    @property
    def places(self) -> list[PlaceName]:
        return list(self._numbers)

    @property
    def batch_count(self) -> int:
        return len(self._rows) // _ROW

    def add(self, place: PlaceName, position: int, size: int) -> None:
        number = self._numbers.setdefault(place, len(self._numbers))
        self._rows.extend((number, position, size))

    def of(self, place: PlaceName) -> list[tuple[int, int]]:
        """The (position, size) of each batch of a place, in order."""
        number = self._numbers.get(place, -1)
        numbers, positions, sizes = self._columns()
        return [
            (positions[row], sizes[row]) for row, found in enumerate(numbers) if found == number
        ]

    def sizes(self) -> dict[PlaceName, int]:
        """The bytes of each place."""
        numbers, _, sizes = self._columns()
        totals = [0] * len(self._numbers)
        for number, size in zip(numbers, sizes, strict=True):
            totals[number] += size
        return dict(zip(self._numbers, totals, strict=True))

    def _columns(self) -> tuple["array[int]", "array[int]", "array[int]"]:
        return self._rows[0::_ROW], self._rows[1::_ROW], self._rows[2::_ROW]

    def encode(self, position: int) -> bytes:
        """The bytes after the batches, which end at `position`."""
        rows = _little_endian(self._rows).tobytes()
        places = json.dumps([list(place) for place in self._numbers]).encode()
        return b"".join(
            (
                rows,
                places,
                _END.pack(
                    position,
                    self.batch_count,
                    position + len(rows),
                    crc32c(places, crc32c(rows)),
                    _VERSION,
                    MAGIC,
                ),
            )
        )


def decode_end(data: bytes, file_size: int) -> StagedEnd:
    """The end of a file of `file_size` bytes; `FormatError` if it is not valid."""
    if len(data) < END_SIZE or file_size < len(MAGIC) + END_SIZE:
        raise TruncatedInputError("end of staged batches", needed=END_SIZE, got=len(data))
    index, count, places, crc, version, magic = _END.unpack(data[-END_SIZE:])
    if magic != MAGIC:
        raise UnsupportedFormatError("staged batches", magic, position=file_size - len(MAGIC))
    if version != _VERSION:
        raise UnsupportedFormatError("version of staged batches", version, position=file_size - 12)
    places_size = file_size - END_SIZE - places
    if index < len(MAGIC) or count < 0 or places != index + ROW_SIZE * count or places_size < 2:
        raise FormatError("the parts of the file do not fit together", position=file_size - 40)
    if count * HEADER_SIZE > index:
        raise FormatError(f"{count} batches in {index} bytes", position=file_size - 32)
    if places_size > PLACES_BYTES_MAX:
        raise LimitExceededError("list of places", size=places_size, limit=PLACES_BYTES_MAX)
    return StagedEnd(index_position=index, batch_count=count, places_position=places, crc=crc)


def decode_index(end: StagedEnd, data: bytes) -> StagedIndex:
    """The index in `data`, which is the part of the file from the index up to the end."""
    computed = crc32c(data)
    if computed != end.crc:
        raise ChecksumMismatchError(stored=end.crc, computed=computed, position=end.index_position)
    rows_size = end.batch_count * ROW_SIZE
    index = StagedIndex()
    for number, place in enumerate(_decode_places(data[rows_size:])):
        index._numbers[place] = number
    rows = array("q")
    rows.frombytes(data[:rows_size])
    index._rows = _little_endian(rows)
    if not rows:
        return index
    numbers, positions, sizes = index._columns()
    if min(numbers) < 0 or max(numbers) >= len(index._numbers):
        raise FormatError("batch refers to a place that is not listed", position=end.index_position)
    if min(sizes) < HEADER_SIZE or min(positions) < len(MAGIC):
        raise FormatError("batch at an impossible position", position=end.index_position)
    for position, size in zip(positions, sizes, strict=True):
        if size > end.index_position - position:
            raise FormatError(f"batch of {size} bytes at {position} ends after the last batch")
    return index


def _decode_places(data: bytes) -> list[PlaceName]:
    try:
        found = json.loads(data)
        places = [(topic, partition) for topic, partition in found]
        for topic, partition in places:
            check_topic_name(topic)
            if type(partition) is not int or not 0 <= partition <= INT32_MAX:
                raise ValueError(f"partition {partition!r} of {topic}")
    except (ValueError, TypeError, RecursionError, InvalidTopicNameError) as error:
        raise FormatError(f"the list of places is malformed: {error}") from error
    if len(set(places)) != len(places):
        raise FormatError("a place is listed twice")
    return places


def _little_endian(words: "array[int]") -> "array[int]":
    if sys.byteorder == "little":
        return words
    swapped = words[:]
    swapped.byteswap()
    return swapped

"""Zeros behind the last batch of a file: blocks that were written before batches came.

They hold nothing. Kafka leaves them, too, if it preallocates a segment and is killed.
"""

from typing import Final

from cordwood.quantities import KIB
from cordwood.storage.files import File, write_all

_PIECE_BYTES: Final = 256 * KIB
_ZEROS: Final = memoryview(bytes(_PIECE_BYTES))


class ZerosAhead:
    """The zeros behind the last batch of an active file. Owned by the segment's writer.

    The next batches overwrite blocks that the file has already, which makes their sync cheaper.

    end           up to where there may be zeros in the file
    synced_size   what the last sync covered, or is about to cover
    grows_alone   zeros could not be written; the file grows with its batches
    """

    __slots__ = ("end", "grows_alone", "synced_size")

    def __init__(self, *, synced_size: int) -> None:
        self.end = 0
        self.synced_size = synced_size
        self.grows_alone = False

    def write(self, file: File, start: int, end: int) -> None:
        """Fill [start, end) with zeros. On an `OSError` there may be fewer."""
        position, self.end = start, end  # before the first zero: an interrupt may come
        while position < end:
            count = min(end - position, len(_ZEROS))
            write_all(file, position, _ZEROS[:count])
            position += count


def zeros_at_end(file: File, start: int, end: int) -> int:
    """How many of the bytes [start, end) are zeros with nothing else behind them."""
    at = end
    while at > start:
        begin = max(start, at - _PIECE_BYTES)
        piece = file.read_at(begin, at - begin)
        left = len(piece.rstrip(b"\0"))
        if left:
            return end - begin - left
        at = begin
    return end - start


def is_zeros(file: File, start: int, end: int) -> bool:
    """Whether the bytes [start, end) are zeros, and there are any."""
    return start < end and zeros_at_end(file, start, end) == end - start

"""Zeros behind the last batch of a file: blocks that were written before batches came.

They hold nothing. Kafka leaves them, too, if it preallocates a segment and is killed.
"""

from typing import Final

from cordwood.quantities import KIB
from cordwood.storage.files import File

_PIECE_BYTES: Final = 256 * KIB


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

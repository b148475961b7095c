"""The SHA-256 of each block of an archived log file, so that a part of it can be verified alone.

    block i of the file    bytes [i * block_bytes, (i + 1) * block_bytes); the last one is shorter
    its sum                bytes [i * 32, (i + 1) * 32) of the sums

The sums are stored beside the log file, and the manifest has their own SHA-256: a block that is
accepted is what was archived, as surely as if the whole file had been read.
"""

import hashlib
from typing import Final

from cordwood.errors import FormatError
from cordwood.quantities import KIB
from cordwood.storage.files import Buffer

SUM_SIZE: Final = 32
# Reading one record costs one block, or two; the sums of a segment of 1 GiB take 128 KiB.
BLOCK_BYTES: Final = 256 * KIB


def block_count(size: int, block_bytes: int) -> int:
    return -(-size // block_bytes)


def sums_size(size: int, block_bytes: int) -> int:
    """Bytes of the sums of a file of `size` bytes."""
    return block_count(size, block_bytes) * SUM_SIZE


class BlockSums:
    """Computes the sums of a file from its bytes, taken in order. For one thread."""

    def __init__(self, block_bytes: int = BLOCK_BYTES) -> None:
        self._block_bytes = block_bytes
        self._sums: list[bytes] = []
        self._block = hashlib.sha256()
        self._block_size = 0

    def update(self, data: Buffer) -> None:
        rest = memoryview(data).cast("B")
        while len(rest):
            taken = rest[: self._block_bytes - self._block_size]
            self._block.update(taken)
            self._block_size += len(taken)
            rest = rest[len(taken) :]
            if self._block_size == self._block_bytes:
                self._end_block()

    def _end_block(self) -> None:
        self._sums.append(self._block.digest())
        self._block, self._block_size = hashlib.sha256(), 0

    def finish(self) -> bytes:
        """The sums. The last block ends here."""
        if self._block_size:
            self._end_block()
        return b"".join(self._sums)


def check_blocks(data: Buffer, sums: bytes, block_bytes: int) -> None:
    """Raise `FormatError` unless `data` is the blocks that have these sums, in order."""
    view = memoryview(data).cast("B")
    if sums_size(len(view), block_bytes) != len(sums):
        raise FormatError(f"{len(view)} bytes do not have {len(sums) // SUM_SIZE} blocks")
    for number in range(len(sums) // SUM_SIZE):
        block = view[number * block_bytes : (number + 1) * block_bytes]
        wanted = sums[number * SUM_SIZE : (number + 1) * SUM_SIZE]
        if hashlib.sha256(block).digest() != wanted:
            raise FormatError("its SHA-256 differs from the manifest")

"""The offset of a batch that lies in two sectors, of which a power cut may lose the first.

    bytes in the first sector   1 to 4   5 to 7                       8 to 11            none
    if that sector is lost      harmless the offset is too small      the offset is 0    all is lost

A disk writes a sector as a whole, and sectors in any order. The first sector may have been written
before, with the end of the batch before this one, so that nothing else is missing. No checksum
covers the offset. Zeros in its upper half alone are true or go back: a segment has fewer than 2^32
offsets, and none below its base offset.
"""

from typing import Final

from cordwood.format.batch_header import LOG_OVERHEAD

_SECTOR_BYTES: Final = 512
_OFFSET_SIZE: Final = 8


def torn_by(position: int, base_offset: int) -> int:
    """By a multiple of how much the offset of a batch at `position` may be too small; 0: it is not.

    `base_offset` is what was read.
    """
    in_first_sector = -position % _SECTOR_BYTES
    if not _OFFSET_SIZE // 2 < in_first_sector < LOG_OVERHEAD:
        return 0
    lost_unit = 1 << 8 * max(_OFFSET_SIZE - in_first_sector, 0)
    return lost_unit if base_offset < lost_unit else 0  # else the first sector is not lost


def passes_bound(end: int, base_offset: int) -> bool:
    """Whether a batch between `end` and `base_offset` may be one for `is_torn_unnoticed`.

    What is left of an offset is below one of these bounds, and the offset is not. So it is at most
    three batches of a log.
    """
    return (
        end < 1 << 8 <= base_offset or end < 1 << 16 <= base_offset or end < 1 << 24 <= base_offset
    )


def is_torn_unnoticed(position: int, base_offset: int, end: int) -> bool:
    """Whether a batch at `position` would be taken for an earlier one if its first sector is lost.

    The batch before it, which ends at `end`, is whole then. What is left of `base_offset` is
    noticed if it goes back. Without missing offsets before the batch it always does.
    """
    in_first_sector = -position % _SECTOR_BYTES
    if not _OFFSET_SIZE // 2 < in_first_sector < _OFFSET_SIZE:
        return False
    left = base_offset % (1 << 8 * (_OFFSET_SIZE - in_first_sector))
    return end <= left < base_offset

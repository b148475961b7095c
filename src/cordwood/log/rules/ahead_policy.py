"""How far the file of the active segment is filled with zeros before batches come.

A sync of bytes that lie inside the file, in blocks that were written before, commits nothing to
the journal of the file system. So one sync in many writes a stretch of zeros, too.

Zeros are for logs with many small syncs. Unless its topic says otherwise, a log that is seldom
appended to, or in large portions, has none.
"""

from typing import Final

from cordwood.quantities import KIB, MIB

# A file gets as many zeros as it has batches, within these limits: small logs stay small.
AHEAD_BYTES_MIN: Final = 4 * KIB
AHEAD_BYTES_MAX: Final = 4 * MIB

# The zeros double what is written. With so many bytes in a sync the journal costs little beside
# them.
GROWTH_BYTES_MAX: Final = 128 * KIB

# Many small syncs: so many, each within this time after the one before it.
SMALL_SYNCS_MIN: Final = 16
PAUSE_S_MAX: Final = 1.0

# A log that was not synced for so long gives its zeros back.
IDLE_S: Final = 60.0

FREE_BYTES_MIN: Final = 256 * MIB  # above what must stay free anyway
PAGE_BYTES: Final = 4 * KIB


class SmallSyncs:
    """Counts the syncs of one log. Belongs to whoever syncs the log."""

    __slots__ = ("_count", "_last_s")

    def __init__(self) -> None:
        self._count = 0
        self._last_s = 0.0

    @property
    def are_many(self) -> bool:
        return self._count > SMALL_SYNCS_MIN

    def note(self, grown: int, now_s: float) -> None:
        """A sync begins, of `grown` bytes."""
        if grown >= GROWTH_BYTES_MAX or now_s - self._last_s > PAUSE_S_MAX:
            self._count = 0
        self._count += 1
        self._last_s = now_s


def ahead_end(*, size: int, grown: int, segment_bytes: int) -> int | None:
    """Where a file should end whose batches end at `size`; None: with them.

    The last sync was `grown` bytes ago. No file grows past `segment_bytes`. A file with zeros ends
    with a page: that is how readers beside the writer know it.
    """
    if grown >= GROWTH_BYTES_MAX:
        return None
    wanted = size + min(max(size, AHEAD_BYTES_MIN), AHEAD_BYTES_MAX)
    pages = min(-(-wanted // PAGE_BYTES), segment_bytes // PAGE_BYTES)
    return pages * PAGE_BYTES if pages * PAGE_BYTES > size else None

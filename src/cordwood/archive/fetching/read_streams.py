"""Recognising readers that go through a file in order, to fetch what they will want next.

The rule: fetch ahead four times as far as the reader came without a jump, up to a limit. So a
lookup of one record fetches nothing ahead, and a scan soon has as much under way as the limit
allows.
"""

from typing import Final

from cordwood.quantities import KIB

_STREAMS_MAX: Final = 16
# A reader that came less far may be looking up a few records that lie together.
_RUN_MIN: Final = 512 * KIB
# Readers may step over a batch, and often read the end of the last piece again.
_STEP_MAX: Final = 256 * KIB


def ahead_of(run: int, ahead_max: int) -> int:
    """How many bytes to fetch ahead of a reader that read `run` bytes in order."""
    return min(4 * run, ahead_max) if run >= _RUN_MIN else 0


class ReadStreams:
    """The readers of one file, the last used one last. Its owner takes care of threads.

    Invariant: each pair is (start, next): bytes [start, next) were read in order. A start below 0
    is in the files before this one.
    """

    def __init__(self) -> None:
        self._streams: list[tuple[int, int]] = []

    def note(self, position: int, end: int) -> int:
        """Bytes [position, end) are read now: how many bytes this reader has read in order."""
        start = position
        for number in reversed(range(len(self._streams))):
            first, expected = self._streams[number]
            if position <= expected + _STEP_MAX and expected <= end:
                start = first
                del self._streams[number]
                break
        self._add(start, end)
        return end - start

    def expect(self, run: int) -> None:
        """A reader that read `run` bytes of the files before this one in order comes here next."""
        if not any(start < 0 for start, _ in self._streams):
            self._add(-run, 0)

    @property
    def is_one(self) -> bool:
        """Whether at most one reader goes through this file in order, or did so of late."""
        return sum(end - start >= _RUN_MIN for start, end in self._streams) <= 1

    def _add(self, start: int, end: int) -> None:
        self._streams.append((start, end))
        del self._streams[:-_STREAMS_MAX]

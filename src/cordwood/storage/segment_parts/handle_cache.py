"""Limits how many sealed segments are open at once.

A log of ten thousand segments must not hold ten thousand descriptors. A sealed segment opens its
files when it is read; above the limit, the least recently used segment closes its files.
"""

import threading
from collections import OrderedDict
from typing import Final, Protocol

# Each open segment costs up to three descriptors: log, offset index, time index.
OPEN_SEGMENTS_MAX: Final = 256


class Releasable(Protocol):
    def release(self) -> None:
        """Close files; running reads keep theirs."""
        ...


class HandleCache:
    """Open segments in order of use. Shared by all logs of a store. For any thread."""

    def __init__(self, limit: int = OPEN_SEGMENTS_MAX) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._open: OrderedDict[int, Releasable] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def touch(self, segment: Releasable) -> None:
        """`segment` is open and was just used."""
        evicted: list[Releasable] = []
        with self._lock:
            self._open[id(segment)] = segment
            self._open.move_to_end(id(segment))
            while len(self._open) > self._limit:
                evicted.append(self._open.popitem(last=False)[1])
        for other in evicted:
            other.release()

    def forget(self, segment: Releasable) -> None:
        """`segment` was closed or removed."""
        with self._lock:
            self._open.pop(id(segment), None)

"""Who waits until all replicas have something: acks=all, commits of offsets, deletions."""

import heapq
from collections.abc import Callable

from cordwood.quantities import Offset

WhenCommitted = Callable[[bool], None]


class CommitWaits:
    """The waits of one leadership. Owned by its `LeaderRole` and called in its loop.

    A wait belongs to the leadership in which its records were written. When that ends, the answer
    is False: another leader may have other records at the same offsets.
    """

    def __init__(self) -> None:
        self._waits: list[tuple[Offset, int, WhenCommitted]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, end: Offset, when_done: WhenCommitted) -> None:
        self._order += 1
        heapq.heappush(self._waits, (end, self._order, when_done))

    def answer(self, high_watermark: Offset) -> None:
        """Answer those whose records are below `high_watermark`."""
        waits = self._waits
        while waits and waits[0][0] <= high_watermark:
            heapq.heappop(waits)[2](True)

    def refuse_all(self) -> None:
        """The leadership is over."""
        waits, self._waits = self._waits, []
        for _, _, when_done in sorted(waits, key=lambda wait: wait[:2]):
            when_done(False)

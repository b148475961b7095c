"""Copies of replicas take turns: some copy at a time, the others wait in their order."""

from collections import deque
from collections.abc import Callable
from typing import Final

from cordwood.cluster.replication.replica_fetch import PartitionPlace

COPIES_MAX: Final = 2  # at a time: each copies as fast as it may


class CopyTurns:
    """Belongs to the data loop. At most one copy of a replica waits or has its turn."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[PartitionPlace, Callable[[], None]]] = deque()
        self._copying: set[PartitionPlace] = set()
        self._is_stopped = False

    def wait(self, place: PartitionPlace, copy: Callable[[], None]) -> None:
        """Call `copy` when its turn comes."""
        self._waiting.append((place, copy))
        self._go_on()

    def leave(self, place: PartitionPlace) -> None:
        """A copy is over, whether or not it had its turn."""
        self._copying.discard(place)
        self._waiting = deque(each for each in self._waiting if each[0] != place)
        self._go_on()

    def stop(self) -> None:
        """Nobody gets a turn any more."""
        self._is_stopped = True

    def _go_on(self) -> None:
        while self._waiting and len(self._copying) < COPIES_MAX and not self._is_stopped:
            place, copy = self._waiting.popleft()
            self._copying.add(place)
            copy()

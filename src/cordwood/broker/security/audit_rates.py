"""How many events of one kind the audit log takes each second."""

from collections.abc import Hashable
from typing import Final

_KEYS_MAX: Final = 10_000


class EventRates:
    """Counts events by key. The caller sees to it that one thread at a time calls it.

    Beyond `_KEYS_MAX` keys the oldest are forgotten, with what was left out of theirs.
    """

    def __init__(self, events_per_second: int) -> None:
        self._limit = events_per_second
        # By key: the second it is about, the events in it, and those left out since the last one.
        self._counts: dict[Hashable, tuple[int, int, int]] = {}
        self.left_out = 0  # since the start

    def take(self, key: Hashable, now_s: float) -> int | None:
        """How many events like it were left out before this one; None: it is left out too."""
        second = int(now_s)
        then, count, left_out = self._counts.pop(key, (second, 0, 0))
        if then != second:
            count = 0
        if count >= self._limit:
            self._counts[key] = (second, count, left_out + 1)
            self.left_out += 1
            return None
        while len(self._counts) >= _KEYS_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[key] = (second, count + 1, 0)
        return left_out

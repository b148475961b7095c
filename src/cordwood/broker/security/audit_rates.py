"""How many events the audit log takes each second: of one kind, and of one client."""

from collections.abc import Hashable
from typing import Final

_KEYS_MAX: Final = 10_000
_KINDS_OF_SOURCE: Final = 10  # a source may fill the shares of so many kinds


class EventRates:
    """Counts events by key. The caller sees to it that one thread at a time calls it.

    Beyond `_KEYS_MAX` keys the oldest are forgotten, with what was left out of theirs.
    """

    def __init__(self, events_per_second: int) -> None:
        self._limit = events_per_second
        # By key: the second it is about, the events in it, and those left out since the last one.
        self._counts: dict[Hashable, tuple[int, int, int]] = {}
        self.left_out = 0  # since the start

    def take(self, key: Hashable, now_s: float, *, source: Hashable = None) -> int | None:
        """How many events like it were left out before this one; None: it is left out too.

        `source` is who causes the event: all of its kinds together have a limit as well. Otherwise
        a client could fill the disk by asking for many names.
        """
        second = int(now_s)
        wide = (second, 0, 0) if source is None else self._now(("source", source), second)
        narrow = self._now(key, second)
        if narrow[1] >= self._limit:
            self._leave_out(key, narrow)
            return None
        if wide[1] >= self._limit * _KINDS_OF_SOURCE:
            self._leave_out(("source", source), wide)
            return None
        self._put(key, (second, narrow[1] + 1, 0))
        if source is not None:
            self._put(("source", source), (second, wide[1] + 1, 0))
        return narrow[2] + wide[2]

    def _now(self, key: Hashable, second: int) -> tuple[int, int, int]:
        then, count, left_out = self._counts.get(key, (second, 0, 0))
        return second, count if then == second else 0, left_out

    def _leave_out(self, key: Hashable, state: tuple[int, int, int]) -> None:
        second, count, left_out = state
        self.left_out += 1
        self._put(key, (second, count, left_out + 1))

    def _put(self, key: Hashable, state: tuple[int, int, int]) -> None:
        self._counts.pop(key, None)
        while len(self._counts) >= _KEYS_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[key] = state

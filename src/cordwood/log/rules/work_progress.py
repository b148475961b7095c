"""How far a piece of work is, told by whoever does it and read by whoever waits."""

from collections.abc import Callable
from typing import NamedTuple


class WorkDone(NamedTuple):
    """So much is done, of `total`; None where that is not known. In bytes."""

    done: int = 0
    total: int | None = None


class WorkProgress:
    """Written by the one thread that works, read by any.

    Work that is watched better from outside puts a function in `look`.
    """

    def __init__(self) -> None:
        self._done = 0
        self._total: int | None = None
        self.look: Callable[[], WorkDone] | None = None

    def expect(self, total: int) -> None:
        """There is so much to do in all."""
        self._total = total

    def add(self, count: int) -> None:
        """So much more is done."""
        self._done += count

    def so_far(self) -> WorkDone:
        look = self.look
        return WorkDone(self._done, self._total) if look is None else look()

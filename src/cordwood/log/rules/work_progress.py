"""The progress of long work, updated by the worker and read by waiting threads."""

from collections.abc import Callable
from typing import NamedTuple


class WorkDone(NamedTuple):
    """Bytes done, and bytes in total; None if the total is unknown."""

    done: int = 0
    total: int | None = None


class WorkProgress:
    """Updated by the one thread that works, read by any.

    Work that is better observed from outside sets the function `look`.
    """

    def __init__(self) -> None:
        self._done = 0
        self._total: int | None = None
        self.look: Callable[[], WorkDone] | None = None

    def expect(self, total: int) -> None:
        """Set the total."""
        self._total = total

    def add(self, count: int) -> None:
        """Add bytes that are done."""
        self._done += count

    def so_far(self) -> WorkDone:
        look = self.look
        return WorkDone(self._done, self._total) if look is None else look()

"""The event loop as group state sees it: calls later, calls soon, and the time."""

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is scheduled."""

    def cancel(self) -> None:
        """Do not make the call. No effect if it was made or cancelled before."""
        ...


class Scheduler(Protocol):
    """The broker's `EventLoop` is one; tests have one that they move by hand."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call `function` in the loop's thread. Any thread may call this; order is kept."""
        ...

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        """Call `function` after a delay. Only for the loop's own thread."""
        ...

    def now_s(self) -> float:
        """Seconds since a fixed moment; never decreases."""
        ...

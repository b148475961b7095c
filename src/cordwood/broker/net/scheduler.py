"""What group state needs of the loop it lives in: later, soon, and what time it is."""

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None:
        """Do not make the call. Harmless when it was made, or cancelled before."""
        ...


class Scheduler(Protocol):
    """The loop as its guests see it. The broker's `EventLoop` is one; tests move one by hand."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call `function` in the loop's thread. Any thread may ask; order is kept."""
        ...

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        """Call `function` after a delay. Only the loop's own thread may ask."""
        ...

    def now_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

"""Whether a store is open. All parts of a store share one of these."""

import threading

from cordwood.errors import LogClosedError


class Lifetime:
    """Open, then closing, then closed; never back. Any thread may ask.

    closing  long work under way ends early, and none is begun
    closed   every use is refused
    """

    def __init__(self, owner: str) -> None:
        """`owner` names the thing that is open, for the error after it was closed."""
        self._owner = owner
        self._closing = threading.Event()
        self._is_closed = False

    @property
    def is_closing(self) -> bool:
        """True from the first call of `close` on, and for ever after."""
        return self._closing.is_set()

    def check_open(self) -> None:
        """Raise `LogClosedError` once it is closed."""
        if self._is_closed:
            raise LogClosedError(self._owner)

    def begin_closing(self) -> None:
        """Tell long work to end early. Safe to repeat."""
        self._closing.set()

    def end(self) -> bool:
        """Close. False if it was closed before: then there is nothing left to do."""
        self._closing.set()
        was_open, self._is_closed = not self._is_closed, True
        return was_open

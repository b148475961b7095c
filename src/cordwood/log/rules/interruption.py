"""Finishing what an interrupt must not leave half-done.

A signal handler, above all the one of Ctrl-C, raises in the main thread, and it can do so after
each call and at the start of each function. A `with` statement over a lock is safe: nothing can
come between taking the lock and being sure to release it. These two are for the rest: locks that
stay taken when a function returns, and clean-up that must reach its end.
"""

import operator
import threading
from collections import deque
from collections.abc import Callable
from itertools import starmap
from typing import Final

_ATTEMPTS_MAX: Final = 1000


class LockHold:
    """One holding of a lock, from `take` to `release`, which may be in different functions.

    Each of the two is a single call of C code, so no interrupt comes between the lock and the
    knowledge that it is held.
    """

    __slots__ = ("_held", "_lock")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._held: list[bool] = []

    def __bool__(self) -> bool:
        return bool(self._held)

    def take(self, *, timeout_s: float | None = None) -> bool:
        """Take the lock and return True; False if it was not free within `timeout_s`."""
        wait = (True, -1) if timeout_s is None else (timeout_s > 0, timeout_s or -1)
        self._held.extend(filter(None, starmap(self._lock.acquire, (wait,))))
        return bool(self._held)

    def release(self) -> None:
        """Release the lock, if it is held. Safe to repeat."""
        if self._held:
            deque(map(operator.call, (self._held.clear, self._lock.release)), maxlen=0)


def insist(action: Callable[[], object]) -> None:
    """Carry out `action` to its end: if an interrupt stops it, it begins again.

    The last interrupt is raised when it is done. An `Exception` ends it at once. `action` must
    have the same result however often it begins.
    """
    interrupt: BaseException | None = None
    for _ in range(_ATTEMPTS_MAX):
        try:
            action()
            break
        except Exception:
            raise
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt

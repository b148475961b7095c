"""What happens when clients authenticate: for the audit log, and counted for metrics."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, Protocol

from cordwood.security.principal import Principal
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

CERTIFICATE: Final = "SSL"  # the client's certificate says who it is, as in Kafka's protocol SSL
_LINES_PER_S: Final = 10
_NAME_SHOWN_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A client that tries to authenticate.

    `user` is the name that it claims, if it came that far: any text, also an unprintable one.
    `mechanism` is None unless it is one that the listener has; `CERTIFICATE` is one, too.
    """

    listener: str
    client_host: str
    mechanism: str | None = None
    user: str | None = None
    is_again: bool = False  # on a connection that was authenticated before
    client_id: str = ""  # any text, as `user`


class AuthenticationEvents(Protocol):
    """Hears of every attempt. Called in the thread of a loop: it must not block."""

    def succeeded(self, attempt: Attempt, principal: Principal) -> None: ...

    def failed(self, attempt: Attempt, reason: str) -> None:
        """`reason` must not reach the client: it may tell whether a user exists."""
        ...


class AttemptResult(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"  # did not authenticate again in time


class AuthenticationCounts:
    """Attempts since the start, by listener, mechanism and result. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str, AttemptResult]] = Counter()

    def count(self, listener: str, mechanism: str | None, result: AttemptResult) -> None:
        with self._lock:
            self._counts[listener, mechanism or "none", result] += 1

    def view(self) -> Mapping[tuple[str, str, AttemptResult], int]:
        with self._lock:
            return dict(self._counts)

    def succeeded(self, attempt: Attempt, principal: Principal) -> None:
        self.count(attempt.listener, attempt.mechanism, AttemptResult.SUCCEEDED)

    def failed(self, attempt: Attempt, reason: str) -> None:
        self.count(attempt.listener, attempt.mechanism, AttemptResult.FAILED)


class FailureLog:
    """Logs failures, but not a flood of them: anybody can cause these. Any thread may call it."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._second = 0
        self._lines = 0

    def succeeded(self, attempt: Attempt, principal: Principal) -> None:
        return

    def failed(self, attempt: Attempt, reason: str) -> None:
        with self._lock:
            second = int(self._now_s())
            unlogged = 0
            if second != self._second:
                unlogged = max(self._lines - _LINES_PER_S, 0)
                self._second, self._lines = second, 0
            self._lines += 1
            is_logged = self._lines <= _LINES_PER_S
        if is_logged:
            logger.info(
                "%s: authentication%s on %s%s failed: %s%s",
                attempt.client_host,
                "" if attempt.user is None else f" of {attempt.user[:_NAME_SHOWN_MAX]!r}",
                attempt.listener,
                "" if attempt.mechanism is None else f" by {attempt.mechanism}",
                reason,
                f" ({unlogged} more were not logged)" if unlogged else "",
            )


class EventGroup:
    """Passes every event on to all listeners. They are added before the broker starts."""

    def __init__(self, listeners: Iterable[AuthenticationEvents] = ()) -> None:
        self._listeners = list(listeners)

    def add(self, listener: AuthenticationEvents) -> None:
        self._listeners.append(listener)

    def succeeded(self, attempt: Attempt, principal: Principal) -> None:
        for listener in self._listeners:
            listener.succeeded(attempt, principal)

    def failed(self, attempt: Attempt, reason: str) -> None:
        for listener in self._listeners:
            listener.failed(attempt, reason)

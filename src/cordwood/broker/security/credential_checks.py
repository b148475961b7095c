"""The threads that check passwords and signatures, which takes milliseconds each.

Hosts take turns: a flood of wrong passwords from one host delays the logins from that host, and
others by one check only. Half of the processors are used at most, so the loops keep theirs.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

_THREADS_MAX: Final = 8


class CredentialChecks:
    """Any thread may call it. Threads start with the first check and do not keep the process alive.

    A connection has at most one check, so the number of connections limits those that wait.

    Invariant, under the lock: `_turns` has each host of `_waiting` once, and no other; no queue in
    `_waiting` is empty.
    """

    def __init__(self, threads: int | None = None) -> None:
        processors = os.cpu_count() or 1
        self._count = threads or max(1, min(processors // 2, _THREADS_MAX))
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._turns: deque[str] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._is_stopped = False

    def submit(self, client_host: str, check: Callable[[], None]) -> None:
        """Call `check` in a thread, when it is the turn of the host. After `stop`: never."""
        with self._changed:
            if self._is_stopped:
                return
            queue = self._waiting.get(client_host)
            if queue is None:
                queue = self._waiting[client_host] = deque()
                self._turns.append(client_host)
            queue.append(check)
            if self._idle:
                self._changed.notify()
            elif len(self._threads) < self._count:
                thread = threading.Thread(target=self._run, name="cordwood-login", daemon=True)
                self._start(thread)

    def _start(self, thread: threading.Thread) -> None:
        """A system without threads to give may have one for the next check."""
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                self._waiting.clear()  # nobody will look at it
                self._turns.clear()
                raise
            logger.warning("no further thread for checks of credentials; there are fewer")
            return
        self._threads.append(thread)

    @property
    def waiting_count(self) -> int:
        with self._changed:
            return sum(map(len, self._waiting.values()))

    def stop(self) -> None:
        """Drop what waits, and wait for the check under way."""
        with self._changed:
            self._is_stopped = True
            self._waiting.clear()
            self._turns.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _run(self) -> None:
        while (check := self._next()) is not None:
            try:
                check()
            except Exception:
                logger.exception("a check of credentials failed")
            del check  # it may hold a password

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._turns and not self._is_stopped:
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            if self._is_stopped:
                return None
            host = self._turns.popleft()
            queue = self._waiting[host]
            check = queue.popleft()
            if queue:
                self._turns.append(host)
            else:
                del self._waiting[host]
            return check

"""Group commit: one thread per log directory, many appends per sync.

An append that must be on the disk requests a sync of its log and waits. While one sync runs,
more appends arrive; the next sync serves them all. So the disk's sync rate bounds latency, not
throughput.
"""

import threading
from typing import Protocol


class Syncable(Protocol):
    """A log that can be made durable."""

    def sync_pending(self) -> None:
        """Sync everything appended so far and wake the waiters. Never raises."""
        ...


class Flusher:
    """Syncs logs in the order of their requests, on its own thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._condition = threading.Condition()
        self._waiting: dict[int, Syncable] = {}
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def request(self, log: Syncable) -> None:
        """Request a sync of `log`. Returns at once."""
        with self._condition:
            self._waiting[id(log)] = log
            if self._thread is None:
                thread = threading.Thread(
                    target=self._run, name=f"cordwood-flusher {self._name}", daemon=True
                )
                thread.start()
                self._thread = thread  # after the start: an interrupt may lead to two, not to none
            self._condition.notify()

    def stop(self) -> None:
        """Serve the pending requests, then end the thread."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._waiting:
                    if self._is_stopped:
                        return
                    self._condition.wait()
                logs = list(self._waiting.values())
                self._waiting.clear()
            for log in logs:
                log.sync_pending()


class InlineFlusher:
    """Syncs in the calling thread, for deterministic tests and short programs."""

    def request(self, log: Syncable) -> None:
        log.sync_pending()

    def stop(self) -> None:
        """Nothing to do: no request is ever pending."""

"""Group commit: one thread per log directory, many appends per sync.

An append that must be on the disk asks for its log to be synced and waits. While one sync is
under way further appends pile up; the next sync serves them all. So the disk's sync rate bounds
latency, not throughput.
"""

import threading
from typing import Protocol


class Syncable(Protocol):
    """A log that can be made durable."""

    def sync_pending(self) -> None:
        """Sync all that was appended so far and wake who waits for it. Never raises."""
        ...


class Flusher:
    """Syncs logs that ask for it, in the order they asked, on a thread of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._condition = threading.Condition()
        self._waiting: dict[int, Syncable] = {}
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def request(self, log: Syncable) -> None:
        """Have `log` synced soon. Returns at once."""
        with self._condition:
            if id(log) in self._waiting:
                return
            self._waiting[id(log)] = log
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"cordwood-flusher {self._name}", daemon=True
                )
                self._thread.start()
            self._condition.notify()

    def stop(self) -> None:
        """Serve what was asked for, then end the thread."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify()
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
    """Syncs in the thread that asks: for tests that must be repeatable, and short programs."""

    def request(self, log: Syncable) -> None:
        log.sync_pending()

    def stop(self) -> None:
        """Nothing is ever pending."""

"""Group commit among the threads that append: many records per sync, no thread of its own.

Whoever comes first leads: it takes everything that is queued, writes and syncs it once, and
wakes those it served. What queued up meanwhile is led by the first of them. A lone thread
therefore pays for its own sync and nothing else, and sixty-four share one.

Those served are woken one after the other, each by the one before it, instead of all at once:
they would only queue up again for the interpreter's lock, and waking twice costs more than
the append itself.
"""

import threading
from collections.abc import Callable
from typing import Final

from cordwood.quantities import Offset, TimestampMs


class PendingAppend:
    """A batch that waits for its place and its sync; without `data`, a wait for a sync alone.

    The leader sets `offset` or `error`; nobody else touches it between `commit` and its return.
    """

    __slots__ = (
        "data",
        "error",
        "expected_offset",
        "max_timestamp",
        "now_ms",
        "offset",
        "record_count",
    )

    def __init__(
        self,
        data: memoryview | None,
        record_count: int,
        max_timestamp: TimestampMs,
        now_ms: TimestampMs,
        expected_offset: int | None,
    ) -> None:
        self.data = data
        self.record_count = record_count
        self.max_timestamp = max_timestamp
        self.now_ms = now_ms
        self.expected_offset = expected_offset
        self.offset = _NOWHERE
        self.error: Exception | None = None


_NOWHERE: Final = Offset(-1)

Lead = Callable[[list[PendingAppend]], None]


class _Group:
    """Those who share a sync. They wait at `gate`; it opens for one at a time."""

    __slots__ = ("gate", "is_served", "items")

    def __init__(self) -> None:
        self.items: list[PendingAppend] = []
        self.is_served = False
        self.gate = threading.Lock()
        self.gate.acquire()


class CommitQueue:
    """The queue of one log.

    Invariant: while `_gathering` has items, someone leads or has been let through its gate to
    lead. `_entry` guards both fields and is never held for longer than it takes to look.
    """

    def __init__(self) -> None:
        self._entry = threading.Lock()
        self._gathering = _Group()
        self._is_led = False

    def commit(self, item: PendingAppend, lead: Lead) -> None:
        """Return once `item` was served, by this thread or another. `lead` must not raise."""
        with self._entry:
            group = self._gathering
            group.items.append(item)
            is_first = not self._is_led
            if is_first:
                self._is_led = True
                self._gathering = _Group()
        if not is_first:
            group.gate.acquire()
            if group.is_served:
                group.gate.release()
                return
            with self._entry:
                self._gathering = _Group()
        try:
            lead(group.items)
        finally:
            group.is_served = True
            self._pass_on()
            group.gate.release()

    def _pass_on(self) -> None:
        """The first who waits leads next; with nobody waiting, the next to come does."""
        with self._entry:
            following = self._gathering
            self._is_led = bool(following.items)
        if following.items:
            following.gate.release()

"""A loop without a thread: calls wait until a test runs them, timers until it lets time pass."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable

from fakes.manual_clock import ManualClock


class ManualTimer:
    def __init__(self, due_s: float, function: Callable[[], None]) -> None:
        self.due_s = due_s
        self.function: Callable[[], None] | None = function

    def cancel(self) -> None:
        self.function = None


class ManualScheduler:
    """Satisfies `Scheduler`. With a `clock`, wall time passes as the timers' time does."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock
        self._now_s = 0.0
        self._soon: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._order = 0

    def call_soon(self, function: Callable[[], None]) -> None:
        self._soon.append(function)

    def call_later(self, delay_s: float, function: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(self._now_s + max(delay_s, 0.0), function)
        self._order += 1
        heapq.heappush(self._timers, (timer.due_s, self._order, timer))
        return timer

    def now_s(self) -> float:
        return self._now_s

    @property
    def timer_count(self) -> int:
        """Timers that would still call something."""
        return sum(timer.function is not None for _, _, timer in self._timers)

    @property
    def next_due_s(self) -> float | None:
        while self._timers and self._timers[0][2].function is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def run_ready(self) -> None:
        """Everything that is due now, and what follows from it."""
        while True:
            if self._soon:
                self._soon.popleft()()
                continue
            due_s = self.next_due_s
            if due_s is None or due_s > self._now_s:
                return
            _, _, timer = heapq.heappop(self._timers)
            function, timer.function = timer.function, None
            if function is not None:
                function()

    def advance(self, seconds: float) -> None:
        """Let time pass, stopping at each timer on the way."""
        end_s = self._now_s + seconds
        self.run_ready()
        while (due_s := self.next_due_s) is not None and due_s <= end_s:
            self._pass_until(due_s)
            self.run_ready()
        self._pass_until(end_s)
        self.run_ready()

    def run_until_idle(self, limit_s: float = 86_400.0) -> None:
        """Let time pass until no timer is left, or for as long as `limit_s`."""
        end_s = self._now_s + limit_s
        self.run_ready()
        while (due_s := self.next_due_s) is not None and due_s <= end_s:
            self.advance(due_s - self._now_s)

    def _pass_until(self, moment_s: float) -> None:
        if moment_s <= self._now_s:
            return
        if self.clock is not None:
            self.clock.advance(round((moment_s - self._now_s) * 1000))
        self._now_s = moment_s


def run_until(scheduler: ManualScheduler, is_done: Callable[[], bool]) -> None:
    """Run what other threads ask the loop to do, until something came of it."""
    deadline_s = time.monotonic() + 30
    while True:
        scheduler.run_ready()
        if is_done():
            return
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.001)

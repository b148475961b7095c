"""Virtual time: events run one after the other, in an order that the seed decides."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

Event = Callable[[], None]


class World:
    """The time and the chance of one simulation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.now_ms = 0.0
        self.event_count = 0
        self._events: list[tuple[float, int, Event]] = []
        self._order = 0

    def at(self, delay_ms: float, event: Event) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._order, event))

    def run_until(self, end_ms: float) -> None:
        events = self._events
        while events and events[0][0] <= end_ms:
            self.now_ms, _, event = heapq.heappop(events)
            self.event_count += 1
            event()
        self.now_ms = end_ms

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.rng.random()

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

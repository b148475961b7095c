"""A network that delays, drops, duplicates, reorders, and is cut in one direction or both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulation.world import Event, World

CONTROLLER = -1

Reply = Callable[[Any], None]
Serve = Callable[[Reply], None]
At = Callable[[float, Event], None]


class Network:
    """Messages between numbered places. A message that is cut off is lost."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cuts: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.duplication = 0.0
        self.delay_max_ms = 4.0
        self.slow_share = 0.0  # of the messages, which take very long
        self.slow_ms = 400.0

    def heal(self) -> None:
        self.cuts.clear()
        self.loss = self.duplication = self.slow_share = 0.0
        self.delay_max_ms = 4.0

    def send(self, source: int, target: int, deliver: Event) -> None:
        world = self._world
        if (source, target) in self.cuts or world.chance(self.loss):
            return
        world.at(self._delay_ms(), deliver)
        if self.duplication and world.chance(self.duplication):
            world.at(self._delay_ms(), deliver)

    def _delay_ms(self) -> float:
        if self.slow_share and self._world.chance(self.slow_share):
            return self._world.between(0, self.slow_ms)
        return self._world.between(0.2, self.delay_max_ms)

    def call(
        self,
        source: int,
        target: int,
        serve: Serve,
        when_done: Reply,
        *,
        at: At,
        timeout_ms: float,
    ) -> None:
        """Ask `target`, which runs `serve` for each copy of the request that arrives.

        `when_done` gets the first answer, or None at the timeout, in the time of the asker: `at`.
        """
        is_done = False

        def finish(answer: Any) -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                when_done(answer)

        def reply(answer: Any) -> None:
            self.send(target, source, lambda: at(0, lambda: finish(answer)))

        self.send(source, target, lambda: serve(reply))
        at(timeout_ms, lambda: finish(None))

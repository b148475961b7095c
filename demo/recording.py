"""The recording of a run, from which the report is drawn.

Times are seconds since the start of the run. Any thread may add to it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

ACTIVE: Final = "active"
SEALED: Final = "sealed"
COMPACTED: Final = "compacted"
ARCHIVED: Final = "archived"
DELETED: Final = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many records were acknowledged, read by the group and counted by Spark."""

    at_s: float
    acknowledged: int
    consumed: int
    streamed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An event at a point in time. With `is_kill` it is drawn prominently."""

    at_s: float
    text: str
    is_kill: bool = False


@dataclass(slots=True, kw_only=True)
class Span:
    """A stage of the run; still running while `end_s` is None."""

    title: str
    start_s: float
    end_s: float | None = None


@dataclass(frozen=True, slots=True, order=True)
class SegmentKey:
    topic: str
    partition: int
    base_offset: int


@dataclass(slots=True, kw_only=True)
class SegmentLife:
    """The states of a segment, each with the time it was first seen. The last is current."""

    states: list[tuple[float, str]]  # at least one
    size_bytes: int = 0
    next_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A promise, and whether it held."""

    stage: str
    rule: str
    held: bool


class Recording:
    """Grows while the demo runs."""

    def __init__(self) -> None:
        self.counts: list[Counts] = []
        self.moments: list[Moment] = []
        self.spans: list[Span] = []
        self.lives: dict[SegmentKey, SegmentLife] = {}
        self.checks: list[Check] = []
        self.figures: list[tuple[str, str]] = []
        self.acknowledged = 0
        self.consumed = 0
        self.streamed = 0
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self.count()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began_s

    def count(self) -> None:
        """Record the current counts."""
        with self._lock:
            self.counts.append(
                Counts(
                    at_s=self.now_s,
                    acknowledged=self.acknowledged,
                    consumed=self.consumed,
                    streamed=self.streamed,
                )
            )

    def mark(self, text: str, *, is_kill: bool = False) -> None:
        with self._lock:
            self.moments.append(Moment(at_s=self.now_s, text=text, is_kill=is_kill))

    def figure(self, name: str, value: str) -> None:
        """Add a number for the top of the report."""
        self.figures.append((name, value))

    def check(self, rule: str, held: bool) -> None:
        stage = self.spans[-1].title if self.spans else ""
        self.checks.append(Check(stage=stage, rule=rule, held=held))

    @contextmanager
    def span(self, title: str) -> Iterator[None]:
        found = Span(title=title, start_s=self.now_s)
        self.spans.append(found)
        try:
            yield
        finally:
            found.end_s = self.now_s

    def see_segments(self, seen: dict[SegmentKey, tuple[str, int, int]]) -> None:
        """Record all current segments: state, bytes, next offset. Others have been deleted."""
        with self._lock:
            now_s = self.now_s
            for key, (state, size_bytes, next_offset) in seen.items():
                life = self.lives.get(key)
                if life is None:  # with its first state, because others look at it meanwhile
                    life = self.lives[key] = SegmentLife(states=[(now_s, state)])
                elif life.states[-1][1] != state:
                    life.states.append((now_s, state))
                life.size_bytes, life.next_offset = size_bytes, next_offset
            for key, life in self.lives.items():
                if key not in seen and life.states[-1][1] != DELETED:
                    life.states.append((now_s, DELETED))

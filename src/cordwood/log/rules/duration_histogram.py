"""Histograms of durations, with fixed buckets, which are cheap to update.

A histogram holds the number of durations in each bucket and their sum; percentiles over any period
can be computed from these.
"""

import threading
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from cordwood.value_class import dataclass

# From the speed of a cache to the patience of a person.
STEPS_S: Final = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramView:
    """The counts at one moment.

    `counts[i]` durations were at most ``STEPS_S[i]`` and longer than the step before; the last
    count is of durations longer than all steps.
    """

    counts: tuple[int, ...]
    sum_s: float

    def __add__(self, other: "HistogramView") -> "HistogramView":
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return HistogramView(counts=counts, sum_s=self.sum_s + other.sum_s)

    @property
    def count(self) -> int:
        return sum(self.counts)


class DurationHistogram:
    """A histogram with the steps above. One thread observes; any thread may call `view`."""

    __slots__ = ("_counts", "_sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(STEPS_S) + 1)
        self._sum_s = 0.0

    def observe(self, duration_s: float, count: int = 1) -> None:
        """So many durations of that length."""
        self._counts[bisect_left(STEPS_S, duration_s)] += count
        self._sum_s += duration_s * count

    def observe_all(self, durations_s: Sequence[float]) -> None:
        counts = self._counts
        for duration_s in durations_s:
            counts[bisect_left(STEPS_S, duration_s)] += 1
        self._sum_s += sum(durations_s)

    def add(self, seen: HistogramView) -> None:
        """The durations of another histogram."""
        self._counts = [a + b for a, b in zip(self._counts, seen.counts, strict=True)]
        self._sum_s += seen.sum_s

    def view(self) -> HistogramView:
        return HistogramView(counts=tuple(self._counts), sum_s=self._sum_s)


class SharedHistogram:
    """A histogram for any thread, for durations that are long compared with taking a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._histogram = DurationHistogram()

    def observe(self, duration_s: float) -> None:
        with self._lock:
            self._histogram.observe(duration_s)

    def view(self) -> HistogramView:
        with self._lock:
            return self._histogram.view()

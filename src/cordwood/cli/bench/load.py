"""Load for a short measurement: threads that repeat a step, and the rates they reach."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from cordwood.cli.render import Advance
from cordwood.value_class import dataclass

_TICK_S: Final = 0.05
_PERCENT: Final = 100
_MEGABYTE: Final = 1_000_000

# A step appends or reads some records and returns their number; 0: nothing left to do.
Step = Callable[[], int]
# Shows a progress bar with a label and a total while the block runs.
ShowProgress = Callable[[str, int], AbstractContextManager[Advance]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A measurement ends when it reaches the first of these."""

    seconds: float
    records: int | None
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The result of a measurement. Latencies are of single steps; None if not meaningful."""

    what: str
    records: int
    record_bytes: int
    seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def mb_per_s(self) -> float:
        return self.records_per_s * self.record_bytes / _MEGABYTE


def quantile(times_s: Sequence[float], share: float) -> float | None:
    """The time that `share` of the times do not exceed, in ms."""
    if not times_s:
        return None
    ordered = sorted(times_s)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


class Load:
    """Runs steps on threads until a limit is reached. The first error ends the run and is raised.

    An interrupt ends it too, after the current steps.
    """

    def __init__(self, limits: Limits, record_bytes: int, show_progress: ShowProgress) -> None:
        self._limits = limits
        self._record_bytes = record_bytes
        self._show_progress = show_progress

    def run(self, what: str, steps: Sequence[Step], *, has_latency: bool = True) -> Measured:
        """Repeat each step on its own thread."""
        stop = threading.Event()
        workers = [_Worker(step, stop, self._share_of(len(steps))) for step in steps]
        begun_s = time.monotonic()
        try:
            for worker in workers:
                worker.start()
            self._watch(what, workers, begun_s)
        finally:
            stop.set()
            for worker in workers:
                worker.await_end()
        took_s = time.monotonic() - begun_s
        for worker in workers:
            if worker.error is not None:
                raise worker.error
        times_s = [t for worker in workers for t in worker.times_s] if has_latency else []
        return Measured(
            what=what,
            records=sum(worker.records for worker in workers),
            record_bytes=self._record_bytes,
            seconds=took_s,
            p50_ms=quantile(times_s, 0.5),
            p99_ms=quantile(times_s, 0.99),
        )

    def _share_of(self, count: int) -> int:
        """The maximum number of records for each worker."""
        by_bytes = self._limits.bytes // max(self._record_bytes, 1)
        all_of_them = by_bytes if self._limits.records is None else self._limits.records
        return max(min(by_bytes, all_of_them) // count, 1)

    def _watch(self, what: str, workers: "Sequence[_Worker]", begun_s: float) -> None:
        """Wait until the time is up or all workers are done."""
        shown = 0
        with self._show_progress(what, _PERCENT) as advance:
            while any(worker.is_alive() for worker in workers):
                passed_s = time.monotonic() - begun_s
                share = max(passed_s / self._limits.seconds, *(w.share_done for w in workers))
                percent = min(int(share * _PERCENT), _PERCENT)
                advance(percent - shown)
                shown = percent
                if passed_s >= self._limits.seconds:
                    return
                workers[0].join(min(_TICK_S, self._limits.seconds - passed_s))


class _Worker(threading.Thread):
    def __init__(self, step: Step, stop: threading.Event, records_max: int) -> None:
        super().__init__(name="cordwood-bench", daemon=True)
        self.records = 0
        self.times_s: list[float] = []
        self.error: BaseException | None = None
        self._step = step
        self._stop_event = stop
        self._records_max = records_max
        self._has_ended = threading.Event()

    def await_end(self) -> None:
        """Wait until it has stopped. Call it after `stop` is set, also if `start` was interrupted.

        `join` refuses a thread whose start was interrupted. A thread that does not run yet finds
        that it has to stop and does nothing.
        """
        if self.ident is not None:
            self._has_ended.wait()

    @property
    def share_done(self) -> float:
        return self.records / self._records_max

    def run(self) -> None:
        try:
            self._repeat()
        except BaseException as error:
            self.error = error  # raised by `Load.run`
        finally:
            self._has_ended.set()

    def _repeat(self) -> None:
        step, times_s = self._step, self.times_s
        while self.records < self._records_max and not self._stop_event.is_set():
            begun_s = time.perf_counter()
            count = step()
            times_s.append(time.perf_counter() - begun_s)
            if not count:
                return
            self.records += count

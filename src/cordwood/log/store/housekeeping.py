"""The scheduler of a store's background work.

A task has a name, an interval and a function. Quick tasks run one after the other on a thread:
one for the tasks of each data directory, so that a disk that hangs delays no other, and one for
the rest. A long task runs on a thread of its own, so that a large copy does not delay the rolling
of a segment; it may have a quick check that tells whether there is work. A task never runs twice
at the same time. A task that fails is tried again after a pause, which grows with each failure in
a row. A task over many logs that fails for some of them keeps its interval: the others must not
wait (`PartialFailureError`).

`run_all` runs each task once in the calling thread, without the scheduler.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from cordwood.clock import Clock
from cordwood.errors import CordwoodError
from cordwood.log.rules.interruption import LockHold, insist
from cordwood.quantities import TimestampMs
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

TICK_S: Final = 0.25
_BACKOFF_MAX_S: Final = 300.0

# Does the work that is due; returns the bytes of disk it reclaimed, if it reclaims any.
UpkeepFunction = Callable[[], int | None]


class PartialFailureError(Exception):
    """Raised by a task that failed in part and did the rest. `failure` is the first failure."""

    def __init__(self, failure: Exception, *, bytes_reclaimed: int = 0) -> None:
        super().__init__(failure)
        self.failure = failure
        self.bytes_reclaimed = bytes_reclaimed


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepStatus:
    """The state of one task. Times are wall time; None: never."""

    name: str
    directory: str | None  # the data directory it works on; None: the whole store
    interval_s: float
    is_running: bool
    runs: int
    failures: int
    bytes_reclaimed: int
    last_run_ms: TimestampMs | None
    last_duration_s: float | None
    last_error: str | None  # of the last run; None if it succeeded
    next_run_ms: TimestampMs | None  # None if nothing runs in the background


class UpkeepTask:
    """One task. Any thread may run it; only one runs it at a time."""

    def __init__(
        self,
        name: str,
        interval_s: float,
        function: UpkeepFunction,
        *,
        clock: Clock,
        takes_long: bool,
        is_needed: Callable[[], bool] | None = None,
        directory: str | None = None,
    ) -> None:
        self.is_needed = is_needed
        self.directory = directory
        self.name = name
        self.interval_s = interval_s
        self.takes_long = takes_long
        self.due_s = clock.monotonic() + interval_s
        self._function = function
        self._clock = clock
        self._busy = threading.Lock()
        self._runs = 0
        self._failures = 0
        self._pause_doublings = 0  # failures in a row, unless they were partial
        self._bytes_reclaimed = 0
        self._last_run_ms: TimestampMs | None = None
        self._last_duration_s: float | None = None
        self._last_error: str | None = None

    def run(self, *, wait: bool) -> Exception | None:
        """Run once; return the failure, if any. Without `wait`, do nothing if it is running."""
        hold = LockHold(self._busy)
        try:
            return self._run() if hold.take(timeout_s=None if wait else 0) else None
        finally:
            insist(hold.release)

    def _run(self) -> Exception | None:
        started_s = self._clock.monotonic()
        self._last_run_ms = self._clock.now_ms()
        failure: Exception | None = None
        is_first = self._last_error is None
        self._pause_doublings, doublings = 0, self._pause_doublings
        try:
            self._bytes_reclaimed += self._function() or 0
        except PartialFailureError as error:
            failure = error.failure
            self._bytes_reclaimed += error.bytes_reclaimed
        except Exception as error:
            # The next run may succeed, and no failure may end the thread.
            failure = error
            self._pause_doublings = doublings + 1
        self._last_error = None if failure is None else _in_words(failure)
        if failure is not None:
            self._failures += 1
            if is_first:
                place = "" if self.directory is None else f" of {self.directory}"
                logger.error(
                    "housekeeping task %s%s failed and will be tried again: %s",
                    self.name,
                    place,
                    self._last_error,
                    exc_info=None if isinstance(failure, (OSError, CordwoodError)) else failure,
                )
        now_s = self._clock.monotonic()
        self._runs += 1
        self._last_duration_s = now_s - started_s
        self.due_s = now_s + self._pause_s()
        return failure

    def _pause_s(self) -> float:
        doubled = self.interval_s * 2.0 ** min(self._pause_doublings, 16)
        if not self._pause_doublings:
            return self.interval_s
        return min(doubled, max(self.interval_s, _BACKOFF_MAX_S))

    def status(self, *, is_scheduled: bool) -> UpkeepStatus:
        wait_ms = (self.due_s - self._clock.monotonic()) * 1000
        return UpkeepStatus(
            name=self.name,
            directory=self.directory,
            interval_s=self.interval_s,
            is_running=self._busy.locked(),
            runs=self._runs,
            failures=self._failures,
            bytes_reclaimed=self._bytes_reclaimed,
            last_run_ms=self._last_run_ms,
            last_duration_s=self._last_duration_s,
            last_error=self._last_error,
            next_run_ms=(
                TimestampMs(self._clock.now_ms() + max(int(wait_ms), 0)) if is_scheduled else None
            ),
        )


def _in_words(error: Exception) -> str:
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])


def _join(thread: threading.Thread) -> None:
    if thread.is_alive():  # one that could not be started cannot be joined
        thread.join()


class Housekeeping:
    """Runs tasks when they are due, on threads of its own once started."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._tasks: list[UpkeepTask] = []
        self._stop = threading.Event()
        self._starting = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._long_runs: list[threading.Thread] = []

    def add(
        self,
        name: str,
        interval_s: float,
        function: UpkeepFunction,
        *,
        takes_long: bool = False,
        is_needed: Callable[[], bool] | None = None,
        directory: str | None = None,
    ) -> None:
        """Run `function` every `interval_s`, for the first time after the first interval.

        A long task is started only if `is_needed`, which must be quick, returns True. A task that
        works on one data directory names it.
        """
        task = UpkeepTask(
            name,
            interval_s,
            function,
            clock=self._clock,
            takes_long=takes_long,
            is_needed=is_needed,
            directory=directory,
        )
        self._tasks = [*self._tasks, task]

    def status(self) -> list[UpkeepStatus]:
        is_scheduled = bool(self._threads) and not self._stop.is_set()
        return [task.status(is_scheduled=is_scheduled) for task in self._tasks]

    def run_all(self) -> None:
        """Run every task once, now, in this thread; then raise the first failure."""
        failures = [task.run(wait=True) for task in self._tasks]
        for failure in failures:
            if failure is not None:
                raise failure

    def run_due(self, directory: str | None = None) -> None:
        """Run the quick tasks of a directory that are due, and start the long ones.

        None: the tasks that work on the whole store.
        """
        now_s = self._clock.monotonic()
        for task in [task for task in self._tasks if task.directory == directory]:
            if task.due_s > now_s or self._stop.is_set():
                continue
            if task.takes_long:
                task.due_s = now_s + task.interval_s
                if self._is_needed(task):
                    self._begin(task)
            else:
                task.run(wait=False)

    def _is_needed(self, task: UpkeepTask) -> bool:
        try:
            return task.is_needed is None or task.is_needed()
        except Exception:  # the task will meet the same error and report it
            return True

    def _begin(self, task: UpkeepTask) -> None:
        thread = threading.Thread(
            target=task.run,
            kwargs={"wait": False},
            name=f"cordwood-{task.name} {self._name}",
            daemon=True,
        )
        with self._starting:
            self._long_runs = [run for run in self._long_runs if run.is_alive()]
            self._long_runs.append(thread)
            try:
                thread.start()
            except RuntimeError as error:  # the system has no more threads
                logger.warning(
                    "housekeeping task %s could not begin and will be tried again: %s",
                    task.name,
                    error,
                )

    def start(self) -> None:
        """Start a thread for each directory that tasks were added for, and one for the rest."""
        directories = {None: self._name} | {
            task.directory: task.directory for task in self._tasks if task.directory is not None
        }
        for directory, name in directories.items():
            thread = threading.Thread(
                target=self._run,
                args=(directory,),
                name=f"cordwood-housekeeping {name}",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Start nothing more, and wait for running tasks."""
        self._stop.set()
        for thread in self._threads:
            _join(thread)
        for thread in self._long_runs:
            _join(thread)

    @property
    def is_stopping(self) -> bool:
        """Whether long tasks must end early."""
        return self._stop.is_set()

    def _run(self, directory: str | None) -> None:
        while not self._stop.wait(TICK_S):
            self.run_due(directory)

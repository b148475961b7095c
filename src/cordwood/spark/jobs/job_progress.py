"""The progress of a job while Spark works on it.

Spark knows how many tasks of a job are done. A thread polls it and calls the observer. Over Spark
Connect Spark cannot be polled, and only the steps are reported.
"""

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_INTERVAL_S: Final = 0.5
_JOIN_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One part of a job. `total` is 0 until the number of tasks is known."""

    name: str
    done: int = 0
    total: int = 0
    is_over: bool = False


Report = Callable[[Step], None]


def report_nothing(_step: Step) -> None:
    """Ignores all steps."""


class JobProgress:
    """Calls `report` with the steps of one job and Spark's tasks within each."""

    def __init__(self, spark: "SparkSession", report: Report = report_nothing) -> None:
        self._context = _context_of(spark)
        self._report = report

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Spark's jobs that this thread starts inside the block belong to that step."""
        self._report(Step(name=name))
        if self._context is None or self._report is report_nothing:
            yield
            self._report(Step(name=name, is_over=True))
            return
        group = f"cordwood-{uuid.uuid4().hex}"
        self._context.setJobGroup(group, name)
        ended = threading.Event()
        thread = threading.Thread(
            target=self._watch, args=(name, group, ended), name="cordwood-job-progress", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_JOIN_S)
            self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
            self._context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
        self._report(Step(name=name, is_over=True))

    def count(self, name: str, done: int, total: int) -> None:
        """Report the progress of a step that is not Spark's."""
        self._report(Step(name=name, done=done, total=total, is_over=done >= total))

    def _watch(self, name: str, group: str, ended: threading.Event) -> None:
        assert self._context is not None
        tracker = self._context.statusTracker()
        parts = StageParts(name)
        while not ended.wait(_INTERVAL_S):
            stages: list[StageTasks] = []
            for job in sorted(tracker.getJobIdsForGroup(group)):
                info = tracker.getJobInfo(job)
                for stage in () if info is None else sorted(info.stageIds):
                    found = tracker.getStageInfo(stage)
                    if found is not None:
                        stages.append((stage, found.numCompletedTasks, found.numTasks))
            step = parts.newest(stages)
            if step is not None:
                self._report(step)


StageTasks = tuple[int, int, int]  # a stage of Spark, its completed tasks, all its tasks


class StageParts:
    """The stages of a step as its parts, each with a total that stays.

    Spark decides on a stage when the one before it has ended, so the number of all tasks is not
    known before the end.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers: dict[int, int] = {}
        self._last: Step | None = None

    def newest(self, stages: Iterable[StageTasks]) -> Step | None:
        """The part that Spark works on now; None if nothing changed."""
        known = [stage for stage in stages if stage[2]]
        for stage, _, _ in known:
            self._numbers.setdefault(stage, len(self._numbers) + 1)
        unfinished = [stage for stage in known if stage[1] < stage[2]]
        if not known:
            return None
        current, done, total = min(unfinished) if unfinished else max(known)
        number = self._numbers[current]
        name = self._name if number == 1 else f"{self._name}, part {number}"
        step = Step(name=name, done=done, total=total)
        if step == self._last:
            return None
        self._last = step
        return step


def _context_of(spark: "SparkSession") -> "SparkContext | None":
    """None over Spark Connect, which has no context in this process."""
    from pyspark.sql.utils import is_remote

    return None if is_remote() else spark.sparkContext

"""Counting what Spark does for a call."""

from collections.abc import Callable

from pyspark.sql import SparkSession


def tasks_of(spark: SparkSession, call: Callable[[], object]) -> int:
    """How many tasks the jobs of `call` have."""
    tracker = spark.sparkContext.statusTracker()
    before = set(_jobs(spark))
    call()
    stages = {
        stage
        for job in set(_jobs(spark)) - before
        for stage in (tracker.getJobInfo(job) or _NO_JOB).stageIds
    }
    infos = [tracker.getStageInfo(stage) for stage in stages]
    return sum(info.numTasks for info in infos if info is not None)


class _NoJob:
    stageIds: tuple[int, ...] = ()  # noqa: N815 (Spark's name)


_NO_JOB = _NoJob()


def _jobs(spark: SparkSession) -> list[int]:
    """The jobs of all groups that Spark still remembers."""
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    return [jobs.apply(index).jobId() for index in range(jobs.size())]

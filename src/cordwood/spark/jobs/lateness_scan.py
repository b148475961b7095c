"""Sizes and lateness of records, without sorting: two passes over the log, in parallel.

A record is late if it is older than one before it in its partition. Each task reads a part of a
partition, and the records before that part matter too. So the first pass finds the newest
timestamp of each part; the driver adds them up from part to part; and the second pass begins each
part with the newest timestamp before it. Values are not copied: their sizes are known.
"""

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from cordwood.format import kernel_tables as tables
from cordwood.spark.jobs.topic_span import TopicSpan
from cordwood.spark.source.batch_plan import plan_batch
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.source.range_reader import LossPolicy, RangeReader
from cordwood.spark.source.source_options import TASK_BYTES, SourceOptions
from cordwood.spark.source.task_list import TaskList, task_numbers
from cordwood.value_class import dataclass, replace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from cordwood.format.batch import RecordRun

_NONE_BEFORE: Final = -(1 << 62)
_NEWEST: Final = "number long, newest_ms long"
_MEASURED: Final = (
    "topic string, partition int, timestamp timestamp, key binary, size long, late_ms long"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatenessScan:
    """The parts of a span. `newest_before` has the newest timestamp before each, once known."""

    reader: RangeReader
    tasks: TaskList
    newest_before: tuple[int, ...] = ()

    @classmethod
    def of(cls, span: TopicSpan, *, task_bytes: int = TASK_BYTES) -> "LatenessScan":
        texts = {
            "paths": json.dumps(span.paths),
            "maxBytesPerPartition": str(task_bytes),
            **span.source_options(),
        }
        options = SourceOptions.for_batch(texts)
        reader = RangeReader(columns=(), key=None, loss=LossPolicy(options.fails_on_data_loss))
        return cls(reader=reader, tasks=TaskList(plan_batch(options, span.paths)))

    def with_newest_before(self, spark: "SparkSession") -> "LatenessScan":
        """The first pass."""
        reader, tasks = self.reader, self.tasks

        def newest(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            import pyarrow as pa

            for number in task_numbers(batches):
                found = [newest_of(reader, tasks[number])]
                columns: list[Any] = [pa.array([number], pa.int64()), pa.array(found, pa.int64())]
                yield pa.RecordBatch.from_arrays(columns, names=["number", "newest_ms"])

        rows = _task_numbers(spark, len(tasks)).mapInArrow(newest, _NEWEST).collect()
        by_number = {row["number"]: row["newest_ms"] for row in rows}
        return replace(self, newest_before=_carried(tasks, by_number))

    def measured(self, spark: "SparkSession") -> "DataFrame":
        """The second pass: a row for each record."""
        reader, tasks, newest_before = self.reader, self.tasks, self.newest_before
        assert len(newest_before) == len(tasks), "the first pass comes first"

        def measure(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            for number in task_numbers(batches):
                yield from measured_rows(reader, tasks[number], newest_before[number])

        return _task_numbers(spark, len(tasks)).mapInArrow(measure, _MEASURED)


def _carried(tasks: TaskList, newest: dict[int, int]) -> tuple[int, ...]:
    """The newest timestamp before each task; tasks of a partition are in the order of offsets."""
    before: list[int] = []
    place, carried = None, _NONE_BEFORE
    for number, task in enumerate(tasks):
        here = (task.place.topic, task.place.partition)
        if here != place:
            place, carried = here, _NONE_BEFORE
        before.append(carried)
        carried = max(carried, newest.get(number, _NONE_BEFORE))
    return tuple(before)


def _task_numbers(spark: "SparkSession", count: int) -> "DataFrame":
    return spark.range(0, count, 1, max(count, 1))


# --- in executors ------------------------------------------------------------------------------


def newest_of(reader: RangeReader, task: OffsetRange) -> int:
    """The newest timestamp of a task, in milliseconds."""
    import pyarrow.compute as pc

    newest = _NONE_BEFORE
    for run in _runs(reader, task):
        found: Any = pc.max(_words(run, tables.R_TIMESTAMP))
        newest = max(newest, found.as_py())
    return newest


def measured_rows(
    reader: RangeReader, task: OffsetRange, newest_before: int
) -> Iterator["pa.RecordBatch"]:
    """The records of a task as rows of `_MEASURED`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from cordwood.format.arrow_columns import key_column
    from cordwood.spark.source.arrow_rows import spark_times

    zero = pa.scalar(0, pa.int64())
    topic = pa.scalar(task.place.topic)
    partition = pa.scalar(task.place.partition, pa.int32())
    newest = newest_before
    for run in _runs(reader, task):
        times = _words(run, tables.R_TIMESTAMP)
        so_far: Any = pc.cumulative_max(times, start=pa.scalar(newest, pa.int64()))
        # A record at the newest timestamp so far is not late, so its own may count.
        late = pc.subtract(so_far, times)
        sizes = [
            pc.max_element_wise(_words(run, field), zero)
            for field in (tables.R_KEY_SIZE, tables.R_VALUE_SIZE)
        ]
        newest = max(newest, so_far[-1].as_py())
        columns: list[Any] = [
            pa.repeat(topic, len(run)),
            pa.repeat(partition, len(run)),
            spark_times(times),
            key_column(run),
            pc.add(*sizes),
            late,
        ]
        names = ["topic", "partition", "timestamp", "key", "size", "late_ms"]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _runs(reader: RangeReader, task: OffsetRange) -> "Iterator[RecordRun]":
    with task.place.open() as log:
        if log is None:
            reader.report(task.place, "was deleted or recreated since the query was planned")
            return
        yield from reader.runs(log, task)
        reader.check_unchanged(log, task)


def _words(run: "RecordRun", field: int) -> Any:
    import pyarrow as pa

    from cordwood.format.arrow_columns import WordColumn

    column = WordColumn(field, pa.int64(), rows_max=len(run))
    column.add(run, 0)
    return column.take(len(run))

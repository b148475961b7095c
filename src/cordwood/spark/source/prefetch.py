"""The rows of a few tasks, read by the driver.

A task in a Python worker costs Spark about 20 ms, more than reading a few thousand rows. The rows
of a small table are passed to Spark as data of the plan instead: see `LogTable.to_df`.

Spark can also take the rows of a micro-batch from the driver's process together with its plan, and
then starts no Python worker. Its public interface offers that only to readers that have no parallel
tasks; `CordwoodStreamReader` uses it for small micro-batches only.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource_internal

from cordwood.quantities import MIB
from cordwood.spark.source.log_extent import size_between
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.source.range_reader import RangeReader
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

# The class by which Spark recognizes a reader that has rows ready; None if this Spark has none.
SparkPrefetching: Final[Any] = getattr(datasource_internal, "_SimpleStreamReaderWrapper", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverLimits:
    """How much the driver reads itself.

    rows_max    offsets of all tasks
    bytes_max   of the log, and of Arrow: the driver keeps the rows in memory
    tasks_max   each opens its log
    """

    rows_max: int
    bytes_max: int
    tasks_max: int


MICRO_BATCH: Final = DriverLimits(rows_max=1000, bytes_max=1 * MIB, tasks_max=1000)


def read_small(
    reader: RangeReader, tasks: Sequence[OffsetRange], limits: DriverLimits = MICRO_BATCH
) -> "list[pa.RecordBatch] | None":
    """The rows of all tasks; None if they are many or large, or lie in an archive."""
    if not 0 < len(tasks) <= limits.tasks_max:
        return None
    chosen = list(tasks)
    if sum(task.count for task in chosen) > limits.rows_max:
        return None
    if not all(task.place.directory and task.start >= task.place.log_start for task in chosen):
        return None
    batches: list[pa.RecordBatch] = []
    log_left = rows_left = limits.bytes_max
    for task in chosen:
        with task.place.open() as log:
            log_left -= 0 if log is None else size_between(log, task.start, task.stop)
            if log_left < 0:
                return None
            for batch in reader.read_opened(log, task):
                batches.append(batch)
                rows_left -= batch.nbytes
                if rows_left < 0:
                    return None
    return batches

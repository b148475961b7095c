"""What Spark alone costs for rows of a Python source: its tasks yield batches that are in memory.

Nothing is read or parsed. What is left is the same for any source in Python, however fast it is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bench.workload import TOPIC
from cordwood.spark.source.batch_plan import plan_batch
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.source.range_reader import LossPolicy, RangeReader
from cordwood.spark.source.row_schema import row_schema
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.source.task_list import task_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HELD_BATCHES: Final = 2

_held: dict[tuple[Sequence[str], OffsetRange], list[pa.RecordBatch]] = {}  # of a worker process


def ready_frame(
    spark: "SparkSession", path: Path, columns: Sequence[str]
) -> "Callable[[], DataFrame]":
    """As many rows as the log has: its first batches, again and again."""
    options = SourceOptions.for_batch({"subscribe": TOPIC, "path": str(path)})
    reader = RangeReader(columns=tuple(columns), key=None, loss=LossPolicy(fails=True))
    tasks = plan_batch(options, (str(path),))

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_numbers(batches):
            yield from ready_rows(reader, tasks[number])

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    return lambda: numbers.mapInArrow(rows, row_schema(tuple(columns)))


def ready_rows(reader: RangeReader, task: OffsetRange) -> Iterator[pa.RecordBatch]:
    """`task.count` rows, from batches that the process reads once."""
    name = reader.columns, task
    if name not in _held:
        _held[name] = list(islice(reader.read(task), _HELD_BATCHES))
    left = task.count if _held[name] else 0
    while left:
        for batch in _held[name]:
            taken = batch.slice(0, left)
            left -= taken.num_rows
            if taken.num_rows:
                yield taken

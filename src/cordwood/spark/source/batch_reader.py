"""`spark.read.format("cordwood")`: a snapshot of the log between two boundaries."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from cordwood.spark.source.batch_plan import plan_batch
from cordwood.spark.source.opened_source import absolute_paths
from cordwood.spark.source.range_reader import LossPolicy, RangeReader
from cordwood.spark.source.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa


class CordwoodBatchReader(DataSourceReader):
    """Plans on the driver, reads in executors. Spark pickles it, so it holds only values.

    Spark asks for the partitions once per `load()`: a DataFrame is a snapshot, and another `load()`
    includes later records.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._paths = absolute_paths(options.paths)
        self._reader = RangeReader(
            columns=columns,
            key=options.key,
            loss=LossPolicy(options.fails_on_data_loss),
            isolation=options.isolation,
            where=options.where,
        )

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in plan_batch(self._options, self._paths)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        # If there are no tasks, Spark runs one without a range.
        return iter(()) if partition.value is None else self._reader.read(partition.value)

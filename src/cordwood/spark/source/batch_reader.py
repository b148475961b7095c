"""`spark.read.format("cordwood")`: a snapshot of the log between two boundaries."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from cordwood.clock import SystemClock
from cordwood.errors import ConfigError
from cordwood.spark.source.data_loss import LossPolicy
from cordwood.spark.source.opened_source import absolute_paths, open_source
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.source.range_reader import RangeReader
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.source.source_plan import (
    OffsetResolver,
    Span,
    check_named,
    guard_ranges,
    plan_ranges,
    survey,
)

if TYPE_CHECKING:
    import pyarrow as pa


class CordwoodBatchReader(DataSourceReader):
    """Plans on the driver, reads in executors. Holds values only: Spark pickles it.

    Spark asks for the partitions once for each `load()`: a DataFrame is a snapshot, and another
    `load()` sees what was appended since.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._paths = absolute_paths(options.paths)
        self._reader = RangeReader(
            columns=columns,
            key=options.key,
            loss=LossPolicy(options.fails_on_data_loss),
            isolation=options.isolation,
        )

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in self._plan()]

    def _plan(self) -> list[OffsetRange]:
        options = self._options
        with open_source(self._paths, options.topics.wants) as source:
            found = survey(source, options.isolation)
            check_named(source, options.topics, found)
            resolver = OffsetResolver(options, found, SystemClock().now_ms())
            starts, stops = resolver.starts(), resolver.stops()
            spans: list[Span] = []
            for partition in found.partitions:
                start, stop = starts[partition], stops[partition]
                if found.log(partition).start_offset < stop < start:
                    name = f"{partition[0]}-{partition[1]}"
                    raise ConfigError(
                        options.ending.option,
                        stop,
                        f"is before {options.starting.option}, which is offset {start} of {name}",
                    )
                if start < stop:
                    spans.append((partition, start, stop))
            return guard_ranges(found, plan_ranges(found, spans, options), spans)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        # Without a task to run, Spark runs one with nothing to do.
        return iter(()) if partition.value is None else self._reader.read(partition.value)

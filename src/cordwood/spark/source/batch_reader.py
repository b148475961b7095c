"""`spark.read.format("cordwood")`: a snapshot of the log between two boundaries."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from cordwood.clock import SystemClock
from cordwood.errors import ConfigError
from cordwood.spark.source.opened_source import absolute_paths, open_source
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.source.range_reader import LossPolicy, RangeReader
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
        # If there are no tasks, Spark runs one without a range.
        return iter(()) if partition.value is None else self._reader.read(partition.value)

"""`spark.readStream.format("cordwood")`: micro-batches from one offset to another."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from cordwood.spark.source.opened_source import absolute_paths
from cordwood.spark.source.prefetch import SparkPrefetching, read_small
from cordwood.spark.source.range_reader import LossPolicy, RangeReader
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.source.stream_driver import StreamDriver
from cordwood.spark.source.stream_offsets import StreamOffset

if TYPE_CHECKING:
    import pyarrow as pa


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a reader that cannot be made, and raises the error when Spark first uses it.

    If the error comes earlier, while Spark makes the reader, Spark reports an error of its own.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802
        raise self._error

    def getDefaultReadLimit(self) -> NoReturn:  # noqa: N802
        raise self._error

    def prepareForTriggerAvailableNow(self) -> NoReturn:  # noqa: N802
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:  # noqa: N802
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        raise self._error


class CordwoodStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Implements Spark's interface of a stream.

    Spark makes two: one lives on the driver as long as the query runs; the other is pickled to
    executors, which call only `read`. The driver's one creates a `StreamDriver` at its first use;
    that is never pickled. A small micro-batch is read by the driver: see `prefetch`.

    A restart needs nothing of its state: the offsets are complete.
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
        self._driver: StreamDriver | None = None
        self._prefetched: list[pa.RecordBatch] | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """How Spark asks whether there are rows ready: by `isinstance`, right after the plan."""
        return type(self) if self._prefetched is None else SparkPrefetching

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None, "_prefetched": None}

    @property
    def _stream(self) -> StreamDriver:
        if self._driver is None:
            self._driver = StreamDriver.open(self._options, self._paths)
        return self._driver

    # --- on the driver -----------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._stream.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of the limits, because Spark has no combination; `latestOffset` applies all of them.

        It only matters that it is not `ReadAllAvailable`, which means that a query wants
        everything at once, regardless of its options.
        """
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._stream.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        is_limited = not isinstance(limit, ReadAllAvailable)
        before = StreamOffset.from_json(start)
        after = self._stream.latest(before, is_limited=is_limited)
        return start if after is before else after.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        newest = self._stream.newest
        return None if newest is None else newest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        tasks = self._stream.tasks(StreamOffset.from_json(start), StreamOffset.from_json(end))
        if SparkPrefetching is not None:
            self._prefetched = read_small(self._reader, tasks)
        if self._prefetched is not None:
            return [InputPartition(tuple(tasks))]  # if Spark loses the rows, one task reads them
        return [InputPartition((task,)) for task in tasks]

    def getCache(  # noqa: N802
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> "Iterator[pa.RecordBatch] | None":
        """The rows of the plan that was made last. Spark asks if there are any."""
        batches, self._prefetched = self._prefetched, None
        return None if batches is None else iter(batches)

    def commit(self, end: dict[str, Any]) -> None:
        self._stream.note_done(StreamOffset.from_json(end))

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    # --- in executors ------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return chain.from_iterable(self._reader.read(task) for task in partition.value)

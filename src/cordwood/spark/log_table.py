"""`cordwood.spark.table`: a topic as a table that knows its columns, its condition and its size.

    orders = cordwood.spark.table(spark, "data", "orders")
    orders.count()
    orders.select("offset", "timestamp").where("partition = 1 AND offset > 500").to_df().show()

Spark cannot tell a Python data source which columns and rows a query needs. Here the program says
so itself. Its rows take a shorter way than those of `format("cordwood")`: Spark copies the rows of
a data source once more, because it does not know that they are in its own format already. A few
rows take a shorter way still: the driver reads them, and no Python worker starts.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Self

from cordwood.errors import ConfigError
from cordwood.quantities import MIB
from cordwood.spark.source.batch_plan import plan_batch
from cordwood.spark.source.opened_source import absolute_paths
from cordwood.spark.source.prefetch import DriverLimits, read_small
from cordwood.spark.source.range_count import count_range, counts_by_headers
from cordwood.spark.source.range_reader import LossPolicy, RangeReader
from cordwood.spark.source.row_schema import parse_columns, row_schema
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.source.task_list import TaskList, task_numbers
from cordwood.spark.source_lookup import use_this_python

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Counting headers takes milliseconds for a task, less than Spark needs to start one.
_COUNTED_HERE_MAX: Final = 64
_COUNTING_THREADS: Final = 4
# The driver reads this faster than Spark starts Python workers. Spark keeps the rows in the plan.
_READ_HERE: Final = DriverLimits(rows_max=20_000, bytes_max=4 * MIB, tasks_max=16)


def table(
    spark: "SparkSession",
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    topic: str,
    *,
    columns: Iterable[str] | None = None,
    where: str | None = None,
    **options: object,
) -> "LogTable":
    """The topic as a table. `options` are those of `format("cordwood")`, except `subscribe`.

    Raises `ConfigError` for options, columns and conditions that cannot be used. The log is read
    when rows are wanted: each call of `to_df` and `count` sees the log as it is then.
    """
    texts = {name: _text(value) for name, value in options.items()}
    for name, text in texts.items():
        if name.lower() in ("subscribe", "subscribepattern", "assign", "path", "paths"):
            raise ConfigError(name, text, "the topic and its path are arguments of table()")
    paths = [path] if isinstance(path, str | os.PathLike) else path
    texts |= {"subscribe": topic, "paths": json.dumps([os.fspath(each) for each in paths])}
    found = LogTable(spark, texts)
    if columns is not None:
        found = found.select(*columns)
    return found if where is None else found.where(where)


class LogTable:
    """A topic, the chosen columns and a condition. Immutable; any thread may use it."""

    def __init__(
        self,
        spark: "SparkSession",
        options: Mapping[str, str],
        columns: tuple[str, ...] | None = None,
        conditions: tuple[str, ...] = (),
    ) -> None:
        self._spark = spark
        self._options = dict(options)
        self._conditions = conditions
        self._parsed = self._parse()
        self._columns = columns or SourceOptions.columns_from(self._options)

    def __repr__(self) -> str:
        where = f" where {' and '.join(self._conditions)}" if self._conditions else ""
        return f"LogTable({self._options['subscribe']}: {', '.join(self._columns)}{where})"

    def _parse(self) -> SourceOptions:
        texts = dict(self._options)
        given = [text for text in (texts.get("where"), *self._conditions) if text is not None]
        if given:
            texts["where"] = given[0] if len(given) == 1 else " AND ".join(f"({g})" for g in given)
        return SourceOptions.for_batch(texts)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its rows, in order."""
        return self._columns

    @property
    def schema(self) -> "StructType":
        """Spark's schema of its rows."""
        return row_schema(self._columns)

    def select(self, *columns: str) -> Self:
        """The same rows with these columns; others are not read."""
        chosen = parse_columns(",".join(columns))
        return type(self)(self._spark, self._options, chosen, self._conditions)

    def where(self, condition: str) -> Self:
        """The rows that match the condition too: see the option `where`."""
        SourceOptions.for_batch({**self._options, "where": condition})  # names its own faults
        return type(self)(self._spark, self._options, self._columns, (*self._conditions, condition))

    # --- reading -------------------------------------------------------------------------------

    def to_df(self) -> "DataFrame":
        """The rows as a DataFrame: a snapshot of the log at this moment.

        Few rows, of at most 4 MiB, are read here and now. If there are more, Spark's tasks read
        them when the DataFrame is used.
        """
        reader, tasks = self._plan()
        small = read_small(reader, tasks, _READ_HERE)
        if small:
            return self._of_rows(small)

        def rows(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            for number in task_numbers(batches):
                yield from reader.read(tasks[number])

        return self._numbers(len(tasks)).mapInArrow(rows, self.schema)

    def _of_rows(self, batches: "list[pa.RecordBatch]") -> "DataFrame":
        """Rows of this process as a DataFrame."""
        import pyarrow as pa

        make: Any = self._spark.createDataFrame
        return make(pa.Table.from_batches(batches), self.schema)  # type: ignore[no-any-return]

    def count(self) -> int:
        """The number of rows at this moment.

        Batch headers are enough, unless the condition is about timestamps or keys. Then checksums
        are not verified, which a scan does.
        """
        reader, tasks = self._plan()
        is_quick = len(tasks) <= _COUNTED_HERE_MAX and all(
            task.place.directory
            and task.start >= task.place.log_start  # the rest is in an archive
            and counts_by_headers(reader, task.place.partition)
            for task in tasks
        )
        if is_quick:
            with ThreadPoolExecutor(_COUNTING_THREADS, "cordwood-count") as pool:
                return sum(pool.map(lambda task: count_range(reader, task), tasks))
        return self._counted_by_spark(reader, tasks)

    def _counted_by_spark(self, reader: RangeReader, tasks: TaskList) -> int:
        def counts(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            import pyarrow as pa

            found = [count_range(reader, tasks[number]) for number in task_numbers(batches)]
            yield pa.RecordBatch.from_arrays([pa.array(found, pa.int64())], names=["rows"])

        frame = self._numbers(len(tasks)).mapInArrow(counts, "rows long")
        return sum(row["rows"] for row in frame.collect())

    def _plan(self) -> tuple[RangeReader, TaskList]:
        # Parsed again, because an age like '-10m' is relative to now.
        options = self._parse()
        reader = RangeReader(
            columns=self._columns,
            key=options.key,
            loss=LossPolicy(options.fails_on_data_loss),
            isolation=options.isolation,
            where=options.where,
        )
        return reader, TaskList(plan_batch(options, absolute_paths(options.paths)))

    def _numbers(self, count: int) -> "DataFrame":
        """One row and one task for each number below `count`."""
        use_this_python(self._spark)
        return self._spark.range(0, count, 1, max(count, 1))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

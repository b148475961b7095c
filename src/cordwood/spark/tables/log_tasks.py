"""The tasks that read a span of the log, with the reader of `format("cordwood")`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.tables.lake_table import TABLE_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

    from cordwood.spark.source.batch_reader import CordwoodBatchReader


class LogTasks:
    """Reads ranges of offsets. Spark pickles it, so it holds only values."""

    def __init__(self, reader: "CordwoodBatchReader") -> None:
        self._reader = reader

    @classmethod
    def over(
        cls, paths: Sequence[str], options: Mapping[str, str]
    ) -> "tuple[LogTasks, list[OffsetRange]]":
        """The reader for these options of the source, and its ranges."""
        from cordwood.spark.source.batch_reader import CordwoodBatchReader
        from cordwood.spark.source.source_options import SourceOptions

        given = {name.lower(): value for name, value in options.items()}
        where = {"path": paths[0]} if len(paths) == 1 else {"paths": json.dumps(list(paths))}
        reader = CordwoodBatchReader(SourceOptions.for_batch({**given, **where}), TABLE_COLUMNS)
        return cls(reader), [task.value for task in reader.partitions()]

    def read(self, task: OffsetRange) -> "Iterator[pa.RecordBatch]":
        from pyspark.sql.datasource import InputPartition

        return self._reader.read(InputPartition(task))

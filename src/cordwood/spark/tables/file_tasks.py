"""The tasks that read files of a table of rejected rows again."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cordwood.spark.tables.lake_table import TABLE_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa


class FileTasks:
    """Reads Parquet files, with the columns of a topic's rows. Spark pickles it."""

    def read(self, task: str) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa
        import pyarrow.parquet as pq

        from cordwood.spark.source.arrow_rows import arrow_schema
        from cordwood.spark.tables.lake_files import open_directory

        fs, path = open_directory(task)
        wanted = arrow_schema(TABLE_COLUMNS)
        with fs.open_input_file(path) as source:
            for batch in pq.ParquetFile(source).iter_batches(columns=list(TABLE_COLUMNS)):
                table = pa.Table.from_batches([batch]).select(list(TABLE_COLUMNS)).cast(wanted)
                yield from table.to_batches()

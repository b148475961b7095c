"""The data source that Spark knows as `cordwood`.

    cordwood.spark.register(spark)
    spark.read.format("cordwood").option("subscribe", "orders").load("data")

If `pyspark_cordwood` is installed, as it is with this package, Spark finds the source without
registration.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from cordwood.errors import CordwoodError
from cordwood.spark.source.row_schema import columns_of, row_schema
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.source_lookup import make_active, use_this_python
from cordwood.spark.worker_heap import settle_heap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

    from cordwood.spark.source.batch_reader import CordwoodBatchReader
    from cordwood.spark.source.stream_reader import CordwoodStreamReader, RefusedStreamReader

FORMAT_NAME = "cordwood"


class CordwoodDataSource(DataSource):
    """Makes readers and writers from options.

    Spark pickles it and calls it in its own processes, so it holds only the options. Each process
    needs one reader or writer, so these are imported where they are created.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT_NAME

    def schema(self) -> StructType:
        """The columns of Kafka's row that the options select. Refuses bad options early."""
        settle_heap()
        return row_schema(SourceOptions.columns_from(self.options))

    def reader(self, schema: StructType) -> "CordwoodBatchReader":
        from cordwood.spark.source.batch_reader import CordwoodBatchReader

        settle_heap()
        options = SourceOptions.for_batch(self.options)
        return CordwoodBatchReader(options, columns_of(schema))

    def streamReader(  # noqa: N802
        self, schema: StructType
    ) -> "CordwoodStreamReader | RefusedStreamReader":
        from cordwood.spark.source.stream_reader import CordwoodStreamReader, RefusedStreamReader

        try:
            options = SourceOptions.for_stream(self.options)
            return CordwoodStreamReader(options, columns_of(schema))
        except CordwoodError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceArrowWriter":
        from cordwood.spark.sink.writer_choice import batch_writer

        settle_heap()
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> "DataSourceStreamArrowWriter":
        from cordwood.spark.sink.writer_choice import stream_writer

        settle_heap()
        return stream_writer(self.options, schema, overwrite)


def register(spark: "SparkSession") -> None:
    """Register `format("cordwood")` with this session, and make it the active one of this thread.

    In local mode, its Python workers then use this process's Python, unless another was chosen.
    Nothing else in the session changes.
    """
    use_this_python(spark)
    make_active(spark)
    spark.dataSource.register(CordwoodDataSource)

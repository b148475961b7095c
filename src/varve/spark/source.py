"""The data source that Spark knows as `varve`.

    varve.spark.register(spark)
    spark.read.format("varve").option("subscribe", "orders").load("data")

Where `pyspark_varve` is installed beside it, as with this package, Spark finds the source by
itself and nothing needs to be registered.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from varve.spark.options import SourceOptions
from varve.spark.schema import columns_of, row_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

    from varve.spark.batch_reader import VarveBatchReader
    from varve.spark.stream_reader import VarveStreamReader

FORMAT_NAME = "varve"


class VarveDataSource(DataSource):
    """Makes readers and writers from options.

    Spark pickles it and calls it in processes of its own, so it holds nothing but the options.
    Each of them does one thing: readers and writers are imported where they are made.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT_NAME

    def schema(self) -> StructType:
        """Kafka's row, or the part of it that the options ask for. Refuses bad options early."""
        return row_schema(SourceOptions.columns_from(self.options))

    def reader(self, schema: StructType) -> "VarveBatchReader":
        from varve.spark.batch_reader import VarveBatchReader

        options = SourceOptions.for_batch(self.options)
        return VarveBatchReader(options, columns_of(schema))

    def streamReader(self, schema: StructType) -> "VarveStreamReader":  # noqa: N802
        from varve.spark.stream_reader import VarveStreamReader

        options = SourceOptions.for_stream(self.options)
        return VarveStreamReader(options, columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceArrowWriter":
        from varve.spark.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> "DataSourceStreamArrowWriter":
        from varve.spark.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)


def register(spark: "SparkSession") -> None:
    """Make `format("varve")` known to this session. Changes nothing else of it."""
    spark.dataSource.register(VarveDataSource)

"""Chooses the writer of a query: to a store by its path, or through a broker by its address."""

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from cordwood.errors import ConfigError
from cordwood.spark.sink.row_places import live_topics, missing_topic
from cordwood.spark.sink.sink_columns import SinkColumns
from cordwood.spark.sink.sink_options import SinkOptions
from cordwood.spark.sink.store_writer import StoreBatchWriter, StoreStreamWriter
from cordwood.storage.files import RealFileSystem


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of a batch query; mode overwrite is refused."""
    if overwrite:
        raise ConfigError("mode", "overwrite", "a log cannot be overwritten; use mode append")
    found = SinkOptions.for_batch(options)
    columns = SinkColumns.of(schema, topic=found.topic)
    if found.is_for_broker:
        from cordwood.spark.sink.broker_writer import BrokerBatchWriter

        return BrokerBatchWriter(found, columns)
    _check_topic(found)
    return StoreBatchWriter(found, columns)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of a stream. In output mode complete, each batch is appended entirely."""
    found = SinkOptions.for_stream(options)
    columns = SinkColumns.of(schema, topic=found.topic)
    if found.is_for_broker:
        from cordwood.spark.sink.broker_writer import BrokerStreamWriter

        return BrokerStreamWriter(found, columns)
    _check_topic(found)
    return StoreStreamWriter(found, columns)


def _check_topic(options: SinkOptions) -> None:
    """Fail now if every task would fail later."""
    if options.topic is None or options.partitions is not None:
        return
    known = live_topics(RealFileSystem(), options.paths)
    if options.topic not in known:
        raise missing_topic(options, options.topic, known)

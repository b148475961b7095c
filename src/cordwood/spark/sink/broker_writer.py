"""Writing through a broker: every task is a producer, as in Spark's own Kafka sink.

At least once: records that a task sent stay, even if Spark runs the task again. The producer is
idempotent, so its own retries duplicate nothing. It hashes keys as Java's clients do, unless the
option `partitioner` says otherwise. The client library takes records one by one, so writing to the
store by its path is much faster.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from cordwood.errors import (
    HIDDEN,
    ConfigError,
    InvalidRecordError,
    StorageError,
    is_secret_key,
)
from cordwood.security.clients.client_settings import librdkafka_settings
from cordwood.spark.sink.sink_columns import SinkColumns
from cordwood.spark.sink.sink_options import SinkOptions
from cordwood.spark.worker_heap import settle_heap

_KAFKA_PREFIX: Final = "kafka."
_DEFAULTS: Final = {
    "enable.idempotence": "true",
    "linger.ms": "20",
}
_POLL_S: Final = 0.1
_FLUSH_S: Final = 5.0
_ROWS_PER_POLL: Final = 1000

Messages = Sequence[WriterCommitMessage | None]


def producer_settings(options: SinkOptions) -> dict[str, str]:
    """Settings of the producer: our defaults, overridden by those of the query.

    They may have a password in them: they are for the producer, and for no message.
    """
    given = {name.removeprefix(_KAFKA_PREFIX): text for name, text in options.producer.items()}
    if options.codec is not None:
        given["compression.type"] = options.codec.name.lower()
    if options.security is not None:
        given |= librdkafka_settings(options.security)
    return {**_DEFAULTS, "partitioner": options.partitioner.librdkafka_name, **given}


def _new_producer(settings: Mapping[str, str]) -> Any:
    try:
        library = importlib.import_module("confluent_kafka")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "kafka.bootstrap.servers",
            settings["bootstrap.servers"],
            "writing through a broker needs confluent-kafka on every executor: "
            "pip install confluent-kafka, or write to the store by its path",
        ) from error
    try:
        return library.Producer(dict(settings))
    except library.KafkaException as error:
        # The library's exception may quote a value, so it does not appear as the cause.
        reason = _without_secrets(str(error), settings)
        raise ConfigError("kafka.*", ", ".join(sorted(settings)), reason) from None


def _without_secrets(text: str, settings: Mapping[str, str]) -> str:
    for name, value in settings.items():
        if is_secret_key(name) and value:
            text = text.replace(value, HIDDEN)
    return text


class _Delivery:
    """Counts delivered and failed records. The producer calls it while it polls."""

    def __init__(self) -> None:
        self.first_error: str | None = None
        self.failed_count = 0

    def __call__(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed_count += 1
            self.first_error = self.first_error or str(error)

    def check(self) -> None:
        if self.first_error is not None:
            raise StorageError(
                f"{self.failed_count} records could not be delivered: {self.first_error}"
            )


def send_rows(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, columns: SinkColumns
) -> WriterCommitMessage:
    """Send all rows; return after the broker has acknowledged every one."""
    settle_heap()
    producer = _new_producer(producer_settings(options))
    delivery = _Delivery()
    for batch in batches:
        for number, record in enumerate(_records(batch, options, columns)):
            _send(producer, record, delivery)
            if number % _ROWS_PER_POLL == 0:
                producer.poll(0)
                delivery.check()
    while producer.flush(_FLUSH_S):
        delivery.check()  # records in flight finish within delivery.timeout.ms
    delivery.check()
    return WriterCommitMessage()


def _send(producer: Any, record: dict[str, Any], delivery: _Delivery) -> None:
    while True:
        try:
            producer.produce(**record, on_delivery=delivery)
            return
        except BufferError:  # the queue is full: wait for acknowledgements
            producer.poll(_POLL_S)
            delivery.check()


def _records(
    batch: pa.RecordBatch, options: SinkOptions, columns: SinkColumns
) -> Iterator[dict[str, Any]]:
    names = ("topic", "value", "key", "headers", "partition", "timestamp")
    arrays = {name: columns.take(batch, name) for name in names}
    stamps: Any = arrays["timestamp"]
    if stamps is not None:
        milliseconds = stamps.cast(pa.timestamp("ms", stamps.type.tz), safe=False)
        arrays["timestamp"] = milliseconds.cast(pa.int64())
    if options.topic is not None:
        arrays["topic"] = None
    lists = [
        [None] * batch.num_rows if array is None else array.to_pylist() for array in arrays.values()
    ]
    for topic, value, key, headers, partition, timestamp in zip(*lists, strict=True):
        record: dict[str, Any] = {"topic": options.topic or topic, "value": value, "key": key}
        if record["topic"] is None:
            raise InvalidRecordError(
                "a row has no topic; set the option topic, or fill the column topic"
            )
        if headers:
            record["headers"] = [(header["key"], header["value"]) for header in headers]
        if partition is not None:
            record["partition"] = partition
        if timestamp is not None:
            record["timestamp"] = timestamp
        yield record


class _BrokerWriter:
    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns


class BrokerBatchWriter(_BrokerWriter, DataSourceArrowWriter):
    """Writes a batch query. Needs no commit: sent records are in the log."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        return send_rows(iterator, self._options, self._columns)

    def commit(self, messages: Messages) -> None:
        """Do nothing: every task has waited for its acknowledgements."""

    def abort(self, messages: Messages) -> None:
        """Do nothing: sent records cannot be withdrawn."""


class BrokerStreamWriter(_BrokerWriter, DataSourceStreamArrowWriter):
    """Writes a stream, at least once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        return send_rows(iterator, self._options, self._columns)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Do nothing: every task has waited for its acknowledgements."""

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Do nothing: sent records cannot be withdrawn."""

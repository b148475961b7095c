"""Copies the batches of a log, unchanged, into a topic of a running Kafka."""

from typing import Final

from bench.kafka_wire import ProduceFrame, produce_frame
from bench.spark_log import PARTITIONS, SparkLog
from bench.wire_load import HOST, pipeline_produce, wait_for_topic
from bench.workload import TOPIC

_RECORD_COUNT: Final = 57  # the position of the record count in a batch
_PATIENCE_S: Final = 60.0
_FRAMES_AT_ONCE: Final = 256


def feed_topic(port: int, log: SparkLog) -> None:
    """Create the topic and fill it: the same partitions, offsets, keys, values and times."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
    wanted = NewTopic(
        TOPIC,
        num_partitions=PARTITIONS,
        replication_factor=1,
        config={"retention.ms": "-1"},
    )
    admin.create_topics([wanted])[TOPIC].result(_PATIENCE_S)
    wait_for_topic(port, TOPIC)
    for partition in range(PARTITIONS):
        waiting: list[ProduceFrame] = []
        for batch in log.batches(partition):
            waiting.append(batch_frame(batch, partition))
            if len(waiting) == _FRAMES_AT_ONCE:
                _send(port, waiting)
        _send(port, waiting)


def _send(port: int, waiting: list[ProduceFrame]) -> None:
    if waiting:
        pipeline_produce(port, TOPIC, waiting, sum(frame.records for frame in waiting))
        waiting.clear()


def batch_frame(batch: bytearray, partition: int) -> ProduceFrame:
    """The request to append the batch to a partition of the topic."""
    records = int.from_bytes(batch[_RECORD_COUNT : _RECORD_COUNT + 4], "big")
    return ProduceFrame(
        data=produce_frame(TOPIC, bytes(batch), partition=partition), records=records
    )

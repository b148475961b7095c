"""The internal topic that keeps the state of transactions, as Kafka's brokers name it."""

import logging
from collections.abc import Iterable
from typing import Final

from cordwood.errors import FormatError
from cordwood.format.file_names import TRANSACTION_STATE_TOPIC
from cordwood.format.transaction_records import (
    TransactionState,
    decode_transaction_key,
    decode_transaction_value,
    transaction_partition,
)
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.latest_by_key import newest_values
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.topics.topic import Topic
from cordwood.log.topics.topic_registry import TopicRegistry
from cordwood.log.transactions.transaction_config import TransactionConfig
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.storage.disk.disk_errors import refused_when_full

logger = logging.getLogger(__name__)

TRANSACTIONS_CONFIG: Final = {"cleanup.policy": "compact", "compression.type": "uncompressed"}


class TransactionTopic:
    """The topic of a store that is open for writing. Any thread may use it."""

    def __init__(self, registry: TopicRegistry) -> None:
        self._registry = registry

    def find(self) -> Topic[PartitionLog] | None:
        return self._registry.find(TRANSACTION_STATE_TOPIC)

    def log_of(self, transactional_id: str, config: TransactionConfig) -> PartitionLog:
        """The log that has the records of an id. Creates the topic if need be."""
        topic = self.find() or self._create(config)
        if topic.partition_count == 1:
            return topic.partition(0)  # as by default: there is nothing to compute
        return topic.partition(transaction_partition(transactional_id, topic.partition_count))

    def _create(self, config: TransactionConfig) -> Topic[PartitionLog]:
        with self._registry.changing, refused_when_full(TRANSACTION_STATE_TOPIC, "creating"):
            return self.find() or self._registry.create(
                TRANSACTION_STATE_TOPIC,
                partitions=config.state_log_partitions,
                config={
                    **TRANSACTIONS_CONFIG,
                    "segment.bytes": str(config.state_log_segment_bytes),
                },
            )

    @property
    def is_whole(self) -> bool:
        """Whether all of it can be read: otherwise a transaction may seem to be nobody's."""
        topic = self.find()
        return topic is None or (
            all(topic.has_partition(number) for number in range(topic.partition_count))
            and not any(log.damages for log in topic.opened_partitions)
        )

    def request_sync(self) -> None:
        """Have records that nobody waits for synced too: a power cut then takes little."""
        topic = self.find()
        for log in () if topic is None else topic.opened_partitions:
            state = log.state
            if state.durable < state.end and state.is_writable:
                log.syncing.request()

    def load(self) -> list[TransactionMetadata]:
        """The newest state of every id. A record that cannot be decoded is left out."""
        topic = self.find()
        return [] if topic is None else read_transactions(topic.opened_partitions)


def read_transactions(logs: Iterable[LogReader]) -> list[TransactionMetadata]:
    """The newest state of every id in the logs of the topic."""
    found: list[TransactionMetadata] = []
    for log in logs:
        view = log.view()
        for key, value in newest_values(log.source, view.start, view.high_watermark).items():
            if value is None:
                continue
            try:
                metadata = TransactionMetadata.of_record(
                    decode_transaction_key(key), decode_transaction_value(value)
                )
            except FormatError as error:
                logger.warning("%s: a record is left out: %s", log.name, error)
                continue
            if metadata.state is not TransactionState.DEAD:
                found.append(metadata)
    return found

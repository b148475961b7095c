"""The leaders of partitions as metadata has them, and why a topic has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cordwood.broker.error_codes import ErrorCode
from cordwood.errors import InvalidTopicNameError
from cordwood.format.file_names import check_topic_name
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.topics.topic import Topic

if TYPE_CHECKING:
    from cordwood.protocol.schemas import cluster_messages as messages

_NO_LEADER: Final = -1


def partition_leaders(
    topic: Topic[PartitionLog], numbers: range, node: int
) -> list[messages.MetadataResponsePartitionsDict]:
    """This broker leads all partitions, except those whose files cannot be read.

    It also leads a partition whose disk failed: what can be read is served.
    """
    partitions: list[messages.MetadataResponsePartitionsDict] = []
    for number in numbers:
        if topic.has_partition(number):
            log = topic.opened(number)
            leader, epoch = node, 0 if log is None else int(log.epochs.current)
            error, in_sync, offline = ErrorCode.none, [node], []
            if log is not None and log.is_failed:
                error, in_sync, offline = ErrorCode.kafka_storage_error, [], [node]
        else:
            leader = epoch = _NO_LEADER
            error, in_sync, offline = ErrorCode.leader_not_available, [], [node]
        partitions.append(
            {
                "error_code": error,
                "partition_index": number,
                "leader_id": leader,
                "leader_epoch": epoch,
                "replica_nodes": [node],
                "isr_nodes": in_sync,
                "offline_replicas": offline,
            }
        )
    return partitions


def why_unknown(name: str) -> ErrorCode:
    """The error of a topic that does not exist."""
    if is_valid_name(name):
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.invalid_topic_exception


def is_valid_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        return False
    return True

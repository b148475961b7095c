"""The owner's side of requested changes of topics."""

import logging
from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

from cordwood.errors import LogError, OffsetOutOfRangeError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.format.small_files.partition_metadata import encode_topic_id
from cordwood.log.inbox.store_change import DONE, ChangeAnswer
from cordwood.log.inbox.topic_change import AlterTopic, CreateTopic, DeleteTopic, TrimTopic
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.topics.topic import Topic
from cordwood.log.topics.topic_registry import TopicRegistry

logger = logging.getLogger(__name__)


class ReadableTopics(Protocol):
    def topic(self, name: str) -> Topic[PartitionLog]: ...


class ChangeableTopics(ReadableTopics, Protocol):
    """A store whose topics can be changed; see `Store`."""

    @property
    def registry(self) -> TopicRegistry: ...

    def alter_topic(
        self,
        name: str,
        *,
        config: Mapping[str, object | None] | None = None,
        partitions: int | None = None,
    ) -> Topic[PartitionLog]: ...

    def delete_topic(self, name: str) -> None: ...


def same_topic(store: ReadableTopics, name: str, topic_id: UUID) -> Topic[PartitionLog]:
    """The topic, unless another one has its name by now."""
    topic = store.topic(name)
    if topic.topic_id != topic_id:
        raise LogError(f"topic {name!r} was deleted and created again meanwhile")
    return topic


class TopicChangeService:
    """Makes changes of topics in one store. For the thread that serves the inbox."""

    def __init__(self, store: ChangeableTopics) -> None:
        self._store = store

    def make(
        self, change: CreateTopic | AlterTopic | DeleteTopic | TrimTopic, made_id: UUID
    ) -> ChangeAnswer:
        """Make the change. A new topic gets `made_id`, so that it tells who made it."""
        match change:
            case CreateTopic():
                return self._create(change, made_id)
            case AlterTopic():
                return self._alter(change)
            case DeleteTopic():
                return self._delete(change)
            case TrimTopic():
                return self._trim(change)

    def _create(self, change: CreateTopic, topic_id: UUID) -> ChangeAnswer:
        _check_not_internal(change.topic, "created")
        topic = self._store.registry.create(
            change.topic, partitions=change.partitions, config=change.config, topic_id=topic_id
        )
        logger.info("created topic %s, partitions: %d", topic.name, topic.partition_count)
        return ChangeAnswer(outcome=DONE, facts=topic_facts(topic))

    def _alter(self, change: AlterTopic) -> ChangeAnswer:
        topic = self._store.alter_topic(
            change.topic, config=change.config, partitions=change.partitions
        )
        logger.info("altered topic %s: %s", topic.name, ", ".join(sorted(change.config)) or "grown")
        return ChangeAnswer(outcome=DONE, facts=topic_facts(topic))

    def _delete(self, change: DeleteTopic) -> ChangeAnswer:
        _check_not_internal(change.topic, "deleted")
        same_topic(self._store, change.topic, change.topic_id)
        self._store.delete_topic(change.topic)
        logger.info("deleted topic %s", change.topic)
        return ChangeAnswer(outcome=DONE)

    def _trim(self, change: TrimTopic) -> ChangeAnswer:
        """Check all offsets before deleting anything: one wrong offset deletes nothing."""
        _check_not_internal(change.topic, "trimmed")
        topic = same_topic(self._store, change.topic, change.topic_id)
        if topic.config.is_compacted and not topic.config.is_deleted:
            raise LogError(
                f"records of {change.topic} cannot be deleted: its cleanup.policy is compact; "
                "append tombstones, or set cleanup.policy=compact,delete"
            )
        logs = {number: topic.partition(number) for number in change.before}
        for number, offset in change.before.items():
            view = logs[number].view()
            if offset > view.high_watermark:
                raise OffsetOutOfRangeError(offset, start=view.start, end=view.high_watermark)
        starts = {n: int(logs[n].delete_before(offset)) for n, offset in change.before.items()}
        logger.info("trimmed topic %s, new start offsets: %s", change.topic, starts)
        return ChangeAnswer(outcome=DONE, facts={"starts": [list(s) for s in starts.items()]})


def _check_not_internal(name: str, what: str) -> None:
    if name in INTERNAL_TOPICS:
        raise LogError(f"{name} is an internal topic and cannot be {what}")


def topic_facts(topic: Topic[PartitionLog]) -> dict[str, Any]:
    return {"topic_id": encode_topic_id(topic.topic_id), "partitions": topic.partition_count}

"""The owner's side of changes of topics and groups that are asked for from outside."""

import logging
from collections.abc import Callable
from uuid import UUID

from cordwood.errors import LogError, OffsetOutOfRangeError, UnknownTopicError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.format.partition_metadata import encode_topic_id
from cordwood.log.inbox.store_change import DONE, ChangeAnswer
from cordwood.log.inbox.topic_change import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ForgetGroup,
    TopicChange,
    TrimTopic,
)
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.topic_store import TopicStore
from cordwood.log.topics.topic import Topic

logger = logging.getLogger(__name__)

GroupForgetter = Callable[[ForgetGroup], None]


class TopicChangeService:
    """Makes them in one store. For whoever serves the inbox.

    forget_group   removes a group's offsets; whoever coordinates groups puts its own way here
    """

    def __init__(self, store: TopicStore, forget_group: GroupForgetter) -> None:
        self.forget_group = forget_group
        self._store = store

    def make(self, change: TopicChange) -> ChangeAnswer:
        match change:
            case CreateTopic():
                return self._create(change)
            case AlterTopic():
                return self._alter(change)
            case DeleteTopic():
                return self._delete(change)
            case TrimTopic():
                return self._trim(change)
            case ForgetGroup():
                self.forget_group(change)
                return ChangeAnswer(outcome=DONE)

    def _create(self, change: CreateTopic) -> ChangeAnswer:
        _check_not_internal(change.topic, "created")
        topic = self._store.create_topic(
            change.topic, partitions=change.partitions, config=change.config
        )
        logger.info("created topic %s with %d partitions", topic.name, topic.partition_count)
        return _answer(topic)

    def _alter(self, change: AlterTopic) -> ChangeAnswer:
        topic = self._store.alter_topic(
            change.topic, config=change.config, partitions=change.partitions
        )
        logger.info("altered topic %s: %s", topic.name, ", ".join(sorted(change.config)) or "grown")
        return _answer(topic)

    def _delete(self, change: DeleteTopic) -> ChangeAnswer:
        _check_not_internal(change.topic, "deleted")
        self._same_topic(change.topic, change.topic_id)
        self._store.delete_topic(change.topic)
        logger.info("deleted topic %s", change.topic)
        return ChangeAnswer(outcome=DONE)

    def _trim(self, change: TrimTopic) -> ChangeAnswer:
        """All offsets are looked at before anything is deleted: a wrong one deletes nothing."""
        _check_not_internal(change.topic, "trimmed")
        topic = self._same_topic(change.topic, change.topic_id)
        if topic.config.is_compacted and not topic.config.is_deleted:
            raise LogError(
                f"records of {change.topic} are not deleted: its cleanup.policy is compact; "
                "append tombstones, or set cleanup.policy=compact,delete"
            )
        logs = {number: topic.partition(number) for number in change.before}
        for number, offset in change.before.items():
            view = logs[number].view()
            if offset > view.high_watermark:
                raise OffsetOutOfRangeError(offset, start=view.start, end=view.high_watermark)
        starts = {n: int(logs[n].delete_before(offset)) for n, offset in change.before.items()}
        logger.info("trimmed topic %s, which now starts at %s", change.topic, starts)
        return ChangeAnswer(outcome=DONE, facts={"starts": [list(s) for s in starts.items()]})

    def _same_topic(self, name: str, topic_id: UUID) -> Topic[PartitionLog]:
        topic = self._store.find_topic(name)
        if topic is None:
            raise UnknownTopicError(name)
        if topic.topic_id != topic_id:
            raise LogError(f"topic {name!r} was deleted and created again meanwhile")
        return topic


def _check_not_internal(name: str, what: str) -> None:
    if name in INTERNAL_TOPICS:
        raise LogError(f"{name} is internal and is not {what} by hand")


def _answer(topic: Topic[PartitionLog]) -> ChangeAnswer:
    return ChangeAnswer(
        outcome=DONE,
        facts={"topic_id": encode_topic_id(topic.topic_id), "partitions": topic.partition_count},
    )

"""The topics of a broker, as a list that a test keeps."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from cordwood.broker.groups.consumer.topic_subscriptions import TopicShape


class ListedTopics:
    """Satisfies `TopicDirectory`. Ids are given in order: 1, 2, 3, ..."""

    def __init__(self, **partition_counts: int) -> None:
        self._shapes: dict[str, TopicShape] = {}
        self._created = 0
        for name, count in partition_counts.items():
            self.create(name, count)

    def find(self, name: str) -> TopicShape | None:
        return self._shapes.get(name)

    def names(self) -> Collection[str]:
        return set(self._shapes)

    def create(self, name: str, partition_count: int) -> uuid.UUID:
        self._created += 1
        topic_id = uuid.UUID(int=self._created)
        self._shapes[name] = TopicShape(topic_id, partition_count)
        return topic_id

    def grow(self, name: str, partition_count: int) -> None:
        self._shapes[name] = self._shapes[name]._replace(partition_count=partition_count)

    def delete(self, name: str) -> None:
        del self._shapes[name]

    def topic_id(self, name: str) -> uuid.UUID:
        return self._shapes[name].topic_id

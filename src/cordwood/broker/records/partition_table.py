"""Which topic or log a request means: by name and, in newer requests, by id."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.log.topics.topic import Topic
from cordwood.protocol.message_schema import NIL_UUID
from cordwood.value_class import dataclass

AskedTopic = tuple[str, UUID, Sequence[int]]  # name or id, and partitions


class PartitionTable:
    """Finds topics and logs of a store. Any thread may use it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[UUID, str] = {}

    def topic(self, wanted: str | UUID) -> Topic[PartitionLog] | None:
        """The topic of that name or id; None if there is none."""
        if isinstance(wanted, str):
            return self._store.registry.find(wanted)
        name = self._names.get(wanted)
        topic = None if name is None else self._store.registry.find(name)
        if topic is not None and topic.topic_id == wanted:
            return topic
        self._names = self._store.registry.names_by_id()
        name = self._names.get(wanted)
        return None if name is None else self._store.registry.find(name)

    def log(self, wanted: str | UUID, partition: int) -> PartitionLog | None:
        """The log of a partition; None if there is no such partition.

        Raises `StorageError` for one whose directory is offline.
        """
        topic = self.topic(wanted)
        if topic is None or not 0 <= partition < topic.partition_count:
            return None
        return topic.partition(partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTopic:
    """A topic of a request, with its partitions. `name` is None if no topic has the id."""

    name: str | None
    topic_id: UUID
    numbers: Sequence[int]

    def place(self, number: int) -> tuple[str, int]:
        return self.name or "", number


def name_topics(store: Store, topics: Iterable[AskedTopic], *, by_id: bool) -> list[NamedTopic]:
    """The topics of a request with both name and id, in order."""
    if by_id:
        names = store.registry.names_by_id()
        return [
            NamedTopic(name=names.get(topic_id), topic_id=topic_id, numbers=numbers)
            for _, topic_id, numbers in topics
        ]
    found: list[NamedTopic] = []
    for name, _, numbers in topics:
        topic = store.registry.find(name)
        topic_id = NIL_UUID if topic is None else topic.topic_id
        found.append(NamedTopic(name=name, topic_id=topic_id, numbers=numbers))
    return found

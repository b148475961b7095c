"""Which log a request means: topics by name and, in newer requests, by id."""

from uuid import UUID

from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.log.topics.topic import Topic


class PartitionTable:
    """Finds topics and logs of a store. Any thread may use it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[UUID, str] = {}

    def topic(self, wanted: str | UUID) -> Topic[PartitionLog] | None:
        """The topic of that name or id, if there is one."""
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
        """The log of a partition; None when there is no such partition.

        Raises `StorageError` for one whose directory is offline.
        """
        topic = self.topic(wanted)
        if topic is None or not 0 <= partition < topic.partition_count:
            return None
        return topic.partition(partition)

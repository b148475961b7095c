"""The port between a store and its archives.

The library hands a store an `Archives`; without one, no topic can be archived. The store asks it
for the archived part of each log, for archiving passes and for restores. The archives ask the
store only what the two protocols of stores name.
"""

from collections.abc import Collection, Mapping
from typing import Protocol
from uuid import UUID

from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchivePlace, ArchiveStatus
from cordwood.log.rules.work_progress import WorkProgress
from cordwood.log.topics.committed_offsets import Group
from cordwood.log.topics.incoming_topic import StagedTopic
from cordwood.log.topics.topic import Topic


class ListedTopics(Protocol):
    """The topics of a store, whether it writes them or only reads them."""

    def topics(self) -> list[str]: ...

    def topic(self, name: str) -> Topic[PartitionLog] | Topic[ReadOnlyLog]: ...


class ArchivableStore(Protocol):
    """A store that owns its topics: what archiving and restoring need of it."""

    @property
    def writer_id(self) -> str: ...

    def topics(self, *, include_internal: bool = False) -> list[str]: ...

    def topic(self, name: str) -> Topic[PartitionLog]: ...

    def groups(self) -> list[str]: ...

    def group(self, name: str) -> Group: ...

    def stage_topic(self, name: str, topic_id: UUID, partitions: int) -> StagedTopic: ...

    def install_topic(
        self, staged: StagedTopic, config: Mapping[str, object]
    ) -> Topic[PartitionLog]: ...


class Archives(Protocol):
    """Everything a store asks of its archives. Any thread may call it."""

    def source(self, place: ArchivePlace) -> ArchivedSegments | None:
        """The archive of a partition; None if its configuration names none."""
        ...

    def run(self, store: ArchivableStore, topics: Collection[str] | None = None) -> None:
        """Run one pass over these topics, or over all.

        It copies the segments that are due, forgets those that expired, and removes objects that
        no manifest refers to.
        """
        ...

    def status(self, store: ListedTopics) -> list[ArchiveStatus]:
        """How far the archive of each partition has come."""
        ...

    def restore(
        self,
        store: ArchivableStore,
        topic: str,
        url: str,
        *,
        to_timestamp_ms: int | None,
        topic_id: UUID | None,
        new_name: str | None,
        config: Mapping[str, object] | None,
        progress: WorkProgress,
    ) -> Topic[PartitionLog]:
        """Bring a topic back from the archive at `url`; see `Store.restore_topic`."""
        ...

    def close(self) -> None:
        """Stop a pass that is running, and remove the cache."""
        ...

"""The port to archives: everything that a store asks of them, and that they ask of a store."""

from collections.abc import Collection, Mapping
from typing import Final, Protocol
from uuid import UUID

from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchivePlace, ArchiveStatus
from cordwood.log.rules.work_progress import WorkProgress
from cordwood.log.topics.group import Group
from cordwood.log.topics.topic import Topic
from cordwood.log.topics.topic_registry import TopicRegistry
from cordwood.quantities import GIB
from cordwood.value_class import dataclass, field

CACHE_BYTES: Final = 1 * GIB  # of archived segments, on the local disk


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTopic:
    """A topic to restore from the archive at `url`; see `Store.restore_topic`."""

    name: str
    url: str
    to_timestamp_ms: int | None = None
    topic_id: UUID | None = None
    new_name: str | None = None
    new_id: UUID | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    take_over: bool = False


class ListedTopics(Protocol):
    """A store whose topics can be read: open for writing or for reading only."""

    def topics(self, *, include_internal: bool = False) -> list[str]: ...
    def topic(self, name: str) -> Topic[PartitionLog] | Topic[ReadOnlyLog]: ...


class ArchivableStore(Protocol):
    """A store that is open for writing, as archives see it."""

    @property
    def writer_id(self) -> str: ...
    @property
    def registry(self) -> TopicRegistry: ...
    def topics(self, *, include_internal: bool = False) -> list[str]: ...
    def topic(self, name: str) -> Topic[PartitionLog]: ...
    def group(self, name: str) -> Group: ...
    def groups(self) -> list[str]: ...


class ReadableArchives(Protocol):
    """The archives of all topics, for reading."""

    def source(self, place: ArchivePlace) -> ArchivedSegments | None:
        """The archive of a partition; None if its configuration names none."""
        ...

    def status(self, store: ListedTopics, *, checked_for: str | None = None) -> list[ArchiveStatus]:
        """How far each archive has come, without asking it.

        With `checked_for`, the `writer_id` of a store, each archive is asked whether that store
        could write it.
        """
        ...

    def close(self) -> None: ...


class Archives(ReadableArchives, Protocol):
    """The archives of all topics. The library passes them in; a store may have none."""

    def run(
        self,
        store: ArchivableStore,
        topics: Collection[str] | None = None,
        *,
        patience_s: float | None = None,
    ) -> None:
        """One pass over these topics, or all.

        Copies segments that are due, forgets expired ones, removes files nobody refers to. With
        `patience_s`, an archive that takes longer goes on by itself, and the next pass leaves it
        out if it is still busy.
        """
        ...

    def close(self, timeout_s: float | None = None) -> None:
        """Stop. Waits for at most `timeout_s` for an archive that does not answer."""
        ...

    def restore(
        self, store: ArchivableStore, wanted: WantedTopic, progress: WorkProgress
    ) -> Topic[PartitionLog]:
        """Bring a topic back; see `Store.restore_topic`."""
        ...

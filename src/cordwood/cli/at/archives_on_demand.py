"""Archives for a reader, loaded when a topic turns out to have one: most have none."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from cordwood.clock import Clock
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchivePlace, ArchiveStatus
from cordwood.storage.files import FileSystem

if TYPE_CHECKING:
    from cordwood.archive.store_archives import StoreArchives
    from cordwood.log.rules.work_progress import WorkProgress
    from cordwood.log.store.archive_port import ArchivableStore, ListedTopics
    from cordwood.log.topics.topic import Topic


class ArchivesOnDemand:
    """Implements `Archives`, by those of the library."""

    def __init__(self, fs: FileSystem, clock: Clock) -> None:
        self._fs = fs
        self._clock = clock
        self._loaded: StoreArchives | None = None

    def source(self, place: ArchivePlace) -> ArchivedSegments | None:
        return None if place.config.archive_url is None else self._archives().source(place)

    def run(self, store: "ArchivableStore", topics: Collection[str] | None = None) -> None:
        self._archives().run(store, topics)

    def status(self, store: "ListedTopics") -> list[ArchiveStatus]:
        return self._archives().status(store)

    def restore(
        self,
        store: "ArchivableStore",
        topic: str,
        url: str,
        *,
        to_timestamp_ms: int | None,
        topic_id: UUID | None,
        new_name: str | None,
        config: Mapping[str, object] | None,
        progress: "WorkProgress",
    ) -> "Topic":
        return self._archives().restore(
            store,
            topic,
            url,
            to_timestamp_ms=to_timestamp_ms,
            topic_id=topic_id,
            new_name=new_name,
            config=config,
            progress=progress,
        )

    def close(self) -> None:
        if self._loaded is not None:
            self._loaded.close()

    def _archives(self) -> "StoreArchives":
        if self._loaded is None:
            from cordwood.archive.segment_cache import SegmentCache
            from cordwood.archive.store_archives import StoreArchives

            cache = SegmentCache(self._fs)
            self._loaded = StoreArchives(fs=self._fs, clock=self._clock, cache=cache)
        return self._loaded

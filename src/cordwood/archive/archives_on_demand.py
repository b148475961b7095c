"""The archives of a store, loaded only if a topic has one: most stores have none."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from cordwood.clock import Clock
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchivePlace, ArchiveStatus
from cordwood.log.rules.work_progress import WorkProgress
from cordwood.log.store.archive_port import (
    CACHE_BYTES,
    ArchivableStore,
    ListedTopics,
    WantedTopic,
)
from cordwood.log.topics.topic import Topic
from cordwood.storage.files import FileSystem

if TYPE_CHECKING:
    from cordwood.archive.store_archives import StoreArchives

_ARCHIVES: Final = "archives"


class ArchivesOnDemand:
    """Implements `Archives` with `StoreArchives`. Any thread may use it.

    It has no lock, which a forked child could find taken. A child that inherits loaded archives is
    refused by them; one that inherits none loads its own.

    cache_directory  where archived segments are cached; None: in a temporary directory
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        *,
        cache_directory: str | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._cache_directory = cache_directory
        self._cache_bytes = cache_bytes
        self._shared: dict[str, StoreArchives] = {}  # at most one

    def source(self, place: ArchivePlace) -> ArchivedSegments | None:
        if self._loaded is None and place.config.archive_url is None:
            return None
        return self._load().source(place)

    def status(self, store: ListedTopics, *, checked_for: str | None = None) -> list[ArchiveStatus]:
        if not self._are_used(store, store.topics()):
            return []
        return self._load().status(store, checked_for=checked_for)

    def run(
        self,
        store: ArchivableStore,
        topics: Collection[str] | None = None,
        *,
        patience_s: float | None = None,
    ) -> None:
        if self._are_used(store, store.topics() if topics is None else topics):
            self._load().run(store, topics, patience_s=patience_s)

    def _are_used(self, store: ListedTopics, names: Collection[str]) -> bool:
        """Whether one of these topics has an archive, or one was in use before."""
        found = [store.topic(name).config.archive_url for name in names]
        return self._loaded is not None or any(url is not None for url in found)

    def restore(
        self, store: ArchivableStore, wanted: WantedTopic, progress: WorkProgress
    ) -> Topic[PartitionLog]:
        return self._load().restore(store, wanted, progress)

    def close(self, timeout_s: float | None = None) -> None:
        loaded = self._loaded
        if loaded is not None:
            loaded.close(timeout_s)

    @property
    def _loaded(self) -> "StoreArchives | None":
        return self._shared.get(_ARCHIVES)

    def _load(self) -> "StoreArchives":
        loaded = self._loaded
        if loaded is None:
            from cordwood.archive.cache.segment_cache import SegmentCache
            from cordwood.archive.store_archives import StoreArchives

            cache = SegmentCache(self._fs, self._cache_directory, bytes_max=self._cache_bytes)
            made = StoreArchives(fs=self._fs, clock=self._clock, cache=cache)
            loaded = self._shared.setdefault(_ARCHIVES, made)  # the first of several threads wins
        return loaded

"""Archives for a reader, loaded only if a topic has one."""

from typing import TYPE_CHECKING

from cordwood.clock import Clock
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchivePlace, ArchiveStatus
from cordwood.storage.files import FileSystem

if TYPE_CHECKING:
    from cordwood.archive.store_archives import StoreArchives
    from cordwood.log.store.archive_port import ListedTopics


class ArchivesOnDemand:
    """Implements `ReadableArchives` with the library's archives."""

    def __init__(self, fs: FileSystem, clock: Clock) -> None:
        self._fs = fs
        self._clock = clock
        self._loaded: StoreArchives | None = None

    def source(self, place: ArchivePlace) -> ArchivedSegments | None:
        return None if place.config.archive_url is None else self._archives().source(place)

    def status(
        self, store: "ListedTopics", *, checked_for: str | None = None
    ) -> list[ArchiveStatus]:
        return self._archives().status(store, checked_for=checked_for)

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

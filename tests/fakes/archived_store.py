"""Stores with an archive, both on a simulated disk."""

from __future__ import annotations

from random import Random

from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.objects.object_store import LocalObjects, ObjectStore
from cordwood.archive.store_archives import StoreArchives
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.archive_port import CACHE_BYTES
from cordwood.log.store.store import Store, StoreSetup
from cordwood.storage.disk.flusher import InlineFlusher
from cordwood.storage.files import FileSystem
from fakes.failing_objects import FailingObjects
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, TOPIC

ARCHIVE = "/archive"
URL = f"file://{ARCHIVE}"
SMALL_SEGMENTS: dict[str, object] = {
    "archive.url": URL,
    "segment.records": 3,
    "retention.ms": -1,
    "local.retention.bytes": 0,
    "file.delete.delay.ms": 0,
}


class ArchivedStore:
    """A store, its clock, and the object store behind its archives."""

    def __init__(
        self,
        fs: SimulatedFileSystem,
        *,
        clock: ManualClock | None = None,
        data: str = DATA,
        objects: FailingObjects | None = None,
        cache_bytes: int = CACHE_BYTES,
        defaults: TopicConfig | None = None,
    ) -> None:
        self.fs = fs
        self.clock = clock or ManualClock()
        self.objects = objects or FailingObjects(LocalObjects(fs, ARCHIVE))
        self.cache = SegmentCache(fs, f"{data}/remote-log-index-cache", bytes_max=cache_bytes)
        self.archives = StoreArchives(
            fs=fs, clock=self.clock, cache=self.cache, open_objects=self._open
        )
        self.store = Store(
            [data],
            StoreSetup(
                fs=fs,
                clock=self.clock,
                random=Random(1),
                defaults=defaults or TopicConfig(),
                flusher=InlineFlusher(),
                has_housekeeping=False,
                opening_threads=1,
                archives=self.archives,
            ),
        )

    def _open(self, url: str, fs: FileSystem) -> ObjectStore:
        assert url == URL, url
        return self.objects

    @property
    def log(self) -> PartitionLog:
        return self.store.topic(TOPIC).partition(0)

    def create(self, **config: object) -> PartitionLog:
        keys = {key.replace("_", "."): value for key, value in config.items()}
        self.store.create_topic(TOPIC, config={**SMALL_SEGMENTS, **keys})
        return self.log

    def append(self, count: int, *, first_timestamp_ms: int = 1000) -> None:
        """Records `v<offset>` a second apart."""
        for _ in range(count):
            offset = self.log.end_offset
            self.log.append(
                b"v%d" % offset,
                key=b"k%d" % offset,
                timestamp_ms=first_timestamp_ms + 1000 * offset,
            )

    def archive_and_drop(self) -> None:
        """Archive everything that is sealed, and drop the local copies."""
        for status in self.store.archive_now():
            assert status.last_error is None, status
        self.log.upkeep.apply_retention(self.clock.now_ms())


def values(log: LogReader, start: int | None = None) -> list[bytes | None]:
    return [record.value for record in log.read(start)]


def expected(first: int, end: int) -> list[bytes | None]:
    return [b"v%d" % offset for offset in range(first, end)]


def stored(fs: SimulatedFileSystem) -> set[str]:
    """The keys of all objects."""
    return {info.key for info in LocalObjects(fs, ARCHIVE).listing("")}

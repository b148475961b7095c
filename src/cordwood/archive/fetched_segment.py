"""An archived segment, read like a local one.

Each of its files is fetched into the cache when it is first needed: a lookup by offset or time
fetches only an index, and facts of the manifest fetch nothing.
"""

from cordwood.archive.manifest import SegmentCopy
from cordwood.archive.object_store import ObjectStore
from cordwood.archive.segment_cache import SegmentCache
from cordwood.format.file_names import FileKind, segment_file_name
from cordwood.quantities import NO_TIMESTAMP, Offset, TimestampMs
from cordwood.storage.files import File, FileSystem
from cordwood.storage.handle_cache import HandleCache
from cordwood.storage.key_index import KeyIndex
from cordwood.storage.offset_index import OffsetIndex
from cordwood.storage.segment import Segment, SegmentLimits
from cordwood.storage.time_index import TimeIndex
from cordwood.storage.transaction_index import TransactionIndex

_TRIES = 3


class FetchedSegment(Segment):
    """One copy of a segment in the archive. Immutable; any thread may read it."""

    def __init__(
        self,
        copy: SegmentCopy,
        *,
        objects: ObjectStore,
        prefix: str,
        fs: FileSystem,
        cache: SegmentCache,
        handles: HandleCache,
        allows_gaps: bool,
    ) -> None:
        self.copy = copy
        self._objects = objects
        self._prefix = prefix
        self._cache = cache
        base = copy.base_offset
        directory = f"{cache.directory}/{copy.copy_id}"

        def path(kind: FileKind) -> str:
            return f"{directory}/{segment_file_name(base, kind)}"

        super().__init__(
            fs,
            directory,
            base,
            size=copy.size,
            next_offset=copy.next_offset,
            offset_index=OffsetIndex.open_sealed(fs, path(FileKind.INDEX), base),
            time_index=TimeIndex.open_sealed(fs, path(FileKind.TIMEINDEX), base),
            transaction_index=TransactionIndex.open_sealed(fs, path(FileKind.TXNINDEX), base),
            handles=handles,
            limits=SegmentLimits(
                index_bytes_max=0, index_interval_bytes=0, is_dense=not allows_gaps
            ),
            created_ms=copy.modified_ms,
            offset_limit=copy.next_offset,
        )

    # --- facts of the manifest ---------------------------------------------------------------

    @property
    def is_archived(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return f"{self._objects.url}/{self._prefix}/{self.copy.object_name(FileKind.LOG)}"

    @property
    def largest_timestamp(self) -> tuple[TimestampMs, Offset]:
        return self.copy.max_timestamp, self.copy.max_timestamp_offset

    def first_timestamp(self) -> TimestampMs | None:
        first = self.copy.first_timestamp
        return None if first == NO_TIMESTAMP else first

    def modified_ms(self) -> TimestampMs:
        return self.copy.modified_ms

    # --- files, fetched when needed ----------------------------------------------------------

    def file(self) -> File:
        held = self._file
        if held is not None:
            self._cache.touch(self.path(FileKind.LOG))
            return held
        for _ in range(_TRIES):
            self._fetch(FileKind.LOG)
            with self._lock:
                try:
                    held = self._file = self._fs.open_read(self.path(FileKind.LOG))
                except FileNotFoundError:
                    # Removed from the cache meanwhile, or its directory was emptied.
                    self._cache.forget(self.path(FileKind.LOG))
                    continue
            self._handles.touch(self)
            return held
        raise OSError(f"the cache of {self._cache.bytes_max} bytes is too small for {self.name}")

    @property
    def offset_index(self) -> OffsetIndex:
        self._fetch(FileKind.INDEX)
        return self._own_offset_index

    @offset_index.setter
    def offset_index(self, index: OffsetIndex) -> None:
        self._own_offset_index = index

    @property
    def time_index(self) -> TimeIndex:
        self._fetch(FileKind.TIMEINDEX)
        return self._own_time_index

    @time_index.setter
    def time_index(self, index: TimeIndex) -> None:
        self._own_time_index = index

    @property
    def transaction_index(self) -> TransactionIndex:
        self._fetch(FileKind.TXNINDEX)
        return self._own_transaction_index

    @transaction_index.setter
    def transaction_index(self, index: TransactionIndex) -> None:
        self._own_transaction_index = index

    @property
    def key_index(self) -> KeyIndex:
        self._fetch(FileKind.KEYINDEX)
        return self._own_key_index

    @key_index.setter
    def key_index(self, index: KeyIndex) -> None:
        self._own_key_index = index

    def _fetch(self, kind: FileKind) -> None:
        file = self.copy.find(kind)
        if file is None:
            return  # the segment has no such file, which reads as an empty index
        key = f"{self._prefix}/{self.copy.object_name(kind)}"
        self._cache.ensure(self.path(kind), self._objects, key, file, self)

    def release(self) -> None:
        self._file = None
        self._own_offset_index.release()
        self._own_time_index.release()
        self._own_transaction_index.release()
        self._own_key_index.release()

    def mark_deleted(self) -> list[str]:
        raise AssertionError(f"{self.name} can only be deleted through its manifest")

    def close(self) -> None:
        self._handles.forget(self)
        self.release()

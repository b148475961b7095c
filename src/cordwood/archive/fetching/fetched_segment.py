"""An archived segment, read like a local one.

What is read is fetched into the cache: the blocks of the log file, and whole indexes. Facts of the
manifest fetch nothing. A copy of an older version has no sums of its blocks, so its log file is
fetched and verified whole.
"""

import threading
from collections.abc import Callable

from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.fetching.fetch_threads import FetchThreads
from cordwood.archive.fetching.fetched_indexes import FetchedIndexes
from cordwood.archive.fetching.packed_object import PackedObject
from cordwood.archive.fetching.ranged_file import RangedFile, RangedObject
from cordwood.archive.manifests.segment_copy import SegmentCopy
from cordwood.archive.objects.object_port import ObjectStore
from cordwood.errors import FormatError
from cordwood.format.file_names import FileKind, segment_file_name
from cordwood.quantities import NO_TIMESTAMP, FilePosition, Offset, TimestampMs
from cordwood.storage.files import File, FileSystem
from cordwood.storage.log_file.read_boundaries import ReadBoundaries
from cordwood.storage.log_file.segment_extent import SegmentExtent
from cordwood.storage.log_file.segment_reader import IndexHint, SegmentReader
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.segment_parts.segment_names import SegmentNames

_TRIES = 3


class FetchedSegment:
    """One copy in the archive as a `ReadableSegment`. Immutable; any thread may read it."""

    is_archived = True

    def __init__(
        self,
        copy: SegmentCopy,
        *,
        objects: ObjectStore,
        prefix: str,
        fs: FileSystem,
        cache: SegmentCache,
        handles: HandleCache,
        threads: FetchThreads,
        allows_gaps: bool,
        following: Callable[[], "FetchedSegment | None"] = lambda: None,
    ) -> None:
        """`following` finds the next segment of the archive, if there is one."""
        base = copy.base_offset
        self.base_offset = base
        self.extent = SegmentExtent(copy.size, copy.next_offset)
        self.boundaries = ReadBoundaries()  # remembered only for the end of a log
        self.created_ms = copy.modified_ms
        self._copy = copy
        self._objects = objects
        self._prefix = prefix
        self._fs = fs
        self._cache = cache
        self._handles = handles
        self._is_dense = not allows_gaps
        self._directory = f"{cache.directory}/{copy.copy_id}"
        self._lock = threading.Lock()
        self._file: File | None = None
        self.indexes = FetchedIndexes(
            fs, SegmentNames(directory=self._directory, base_offset=base), self._fetch
        )
        self._packed = PackedObject(
            copy,
            objects=objects,
            prefix=prefix,
            fs=fs,
            cache=cache,
            sums_path=f"{self._directory}/{base:020d}.sums",
            index_path=self.path(FileKind.INDEX),
        )
        self._ranged = self._by_range(copy, threads, following)

    def _by_range(
        self,
        copy: SegmentCopy,
        threads: FetchThreads,
        following: Callable[[], "FetchedSegment | None"],
    ) -> RangedFile | None:
        if copy.sums is None:
            return None

        def following_file() -> RangedFile | None:
            found = following()
            return None if found is None else found._ranged

        return RangedFile(
            RangedObject(
                objects=self._objects,
                key=f"{self._prefix}/{copy.object_name(FileKind.LOG)}",
                size=copy.size,
                block_bytes=copy.sums.block_bytes,
                sums=lambda first, end: self._packed.sums(first, end, self),
            ),
            path=self.path(FileKind.LOG),
            fs=self._fs,
            cache=self._cache,
            threads=threads,
            when_opened=lambda: self._handles.touch(self),
            following=following_file,
        )

    # --- facts of the manifest ---------------------------------------------------------------

    @property
    def size(self) -> int:
        return self.extent.size

    @property
    def next_offset(self) -> Offset:
        return self.extent.next_offset

    @property
    def name(self) -> str:
        return f"{self._objects.url}/{self._prefix}/{self._copy.object_name(FileKind.LOG)}"

    @property
    def largest_timestamp(self) -> tuple[TimestampMs, Offset]:
        return self._copy.max_timestamp, self._copy.max_timestamp_offset

    def first_timestamp(self) -> TimestampMs | None:
        first = self._copy.first_timestamp
        return None if first == NO_TIMESTAMP else first

    def modified_ms(self) -> TimestampMs:
        return self._copy.modified_ms

    # --- files, fetched when needed ----------------------------------------------------------

    def path(self, kind: FileKind) -> str:
        return f"{self._directory}/{segment_file_name(self.base_offset, kind)}"

    def file(self) -> File:
        return self._ranged or self._whole_file()

    def file_at(self, position: int, length: int) -> File:
        return (
            self._whole_file() if self._ranged is None else self._ranged.holding(position, length)
        )

    def _whole_file(self) -> File:
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

    def _fetch(self, kind: FileKind) -> None:
        file = self._copy.find(kind)
        if file is None:
            return  # the segment has no such file, which reads as an empty index
        if file.position is not None:
            self._packed.ensure(file, self.path(kind), self)
            return
        key = f"{self._prefix}/{self._copy.object_name(kind)}"
        self._cache.ensure(self.path(kind), self._objects, key, file, self)

    def release(self) -> None:
        """Close the files until the next read; see `HandleCache` and `SegmentCache`."""
        self._file = None
        if self._ranged is not None:
            self._ranged.close()
        self.indexes.release()

    # --- reading -----------------------------------------------------------------------------

    def reader(self, *, size: int | None = None) -> SegmentReader:
        return SegmentReader(
            self.file(),
            self.base_offset,
            self.size if size is None else size,
            offset_limit=self.next_offset,
            is_dense=self._is_dense,
        )

    def hint(self, offset: Offset) -> IndexHint:
        try:
            index = self.indexes.offset
            found = index.lookup(offset)
            if self._ranged is not None:
                self._ranged.expect(found[1], index.position_beyond(offset) or self.size)
            return found
        except (FormatError, OSError):
            # An index is derived: if it cannot be read, the search takes longer.
            return self.base_offset, FilePosition(0)

    def batches_of(self, key: bytes, *, size: int) -> list[FilePosition] | None:
        found = self.indexes.key.batches_of(key, log_size=size)
        if found is not None:
            self._handles.touch(self)
        return found

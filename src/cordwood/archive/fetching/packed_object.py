"""The packed object of an archived segment: the sums of its blocks, and its small files.

    position 0      the sums of the log file's blocks
    then            the offset index
    then            the other files, where the manifest says

The sums and the offset index lie together, because whoever reads a record needs both: one request
fetches them.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from cordwood.archive.cache.segment_cache import CachedPart, Holder, SegmentCache
from cordwood.archive.manifests.block_sums import SUM_SIZE
from cordwood.archive.manifests.segment_copy import ArchivedFile, SegmentCopy
from cordwood.archive.objects.object_port import ObjectStore, read_part
from cordwood.errors import StorageError
from cordwood.format.file_names import FileKind
from cordwood.quantities import MIB
from cordwood.storage.files import FileSystem

_TRIES: Final = 3
_TOGETHER_BYTES_MAX: Final = 16 * MIB  # in memory; the index of a 1 GiB segment has 2 MiB


class PackedObject:
    """Brings the parts of one packed object into the cache. Any thread may use it."""

    def __init__(
        self,
        copy: SegmentCopy,
        *,
        objects: ObjectStore,
        prefix: str,
        fs: FileSystem,
        cache: SegmentCache,
        sums_path: str,
        index_path: str,
    ) -> None:
        self._copy = copy
        self._objects = objects
        self._key = f"{prefix}/{copy.packed_name}"
        self._fs = fs
        self._cache = cache
        self._sums_path = sums_path
        self._index_path = index_path

    def ensure(self, file: ArchivedFile, path: str, holder: Holder) -> None:
        """Bring a packed file to `path`. Raises `StorageError` if it is damaged."""
        has_sums = self._copy.sums is not None
        if has_sums and file.kind is FileKind.INDEX and not self._cache.has(path):
            self._ensure_sums(holder)
        self._cache.ensure_part(
            self._part(path, file.size, file.sha256), lambda: self._read(file), holder
        )

    def sums(self, first: int, end: int, holder: Holder) -> bytes:
        """The sums of the blocks [first, end)."""
        for _ in range(_TRIES):
            self._ensure_sums(holder)
            try:
                file = self._fs.open_read(self._sums_path)
            except FileNotFoundError:
                self._cache.forget(self._sums_path)  # removed since; or the directory was emptied
                continue
            try:
                found = file.read_at(first * SUM_SIZE, (end - first) * SUM_SIZE)
            finally:
                file.close()
            if len(found) == (end - first) * SUM_SIZE:
                return found
            self._cache.forget(self._sums_path)
        raise OSError(f"the cache of {self._cache.bytes_max} bytes is too small for {self._key}")

    def _ensure_sums(self, holder: Holder) -> None:
        sums = self._copy.sums
        assert sums is not None, self._key
        part = self._part(self._sums_path, self._copy.sums_size, sums.sha256)
        self._cache.ensure_part(part, lambda: [self._sums_and_index(holder)], holder)

    def _sums_and_index(self, holder: Holder) -> bytes:
        """Fetch the sums. If the offset index is not here either, bring it with them."""
        size = self._copy.sums_size
        index = self._copy.find(FileKind.INDEX)
        if (
            index is None
            or index.position != size
            or size + index.size > _TOGETHER_BYTES_MAX
            or self._cache.has(self._index_path)
        ):
            return self._get(0, size)
        together = self._get(0, size + index.size)
        with suppress(StorageError):  # whoever needs the index is told that it is damaged
            self._cache.ensure_part(
                self._part(self._index_path, index.size, index.sha256),
                lambda: [together[size:]],
                holder,
            )
        return together[:size]

    def _read(self, file: ArchivedFile) -> Iterator[bytes]:
        assert file.position is not None, file
        whole = self._copy.packed_size
        return read_part(self._objects, self._key, file.position, file.size, whole=whole)

    def _get(self, position: int, size: int) -> bytes:
        return self._objects.get_range(self._key, position, size, whole=self._copy.packed_size)

    def _part(self, path: str, size: int, sha256: str) -> CachedPart:
        return CachedPart(
            path=path, size=size, sha256=sha256, source=f"{self._objects.url}/{self._key}"
        )

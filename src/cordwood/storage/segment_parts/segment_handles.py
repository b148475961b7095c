"""The open files of one segment, from the first append to the removal of their names."""

import threading

from cordwood.format.file_names import DELETED
from cordwood.storage.files import File, FileSystem
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.segment_parts.segment_indexes import SegmentIndexes
from cordwood.storage.segment_parts.segment_names import SEGMENT_KINDS, SegmentNames


class SegmentHandles:
    """The log file and the indexes of one segment, as far as they are open. Owned by the segment.

    Any thread may ask for the log file; the log's writer alone changes the rest.

    file        the log file if it is open: for writing until the segment is sealed, then for
                reading, opened by `log_file` and given back under pressure
    is_frozen   the segment takes no more batches
    """

    __slots__ = (
        "__weakref__",
        "_fs",
        "_indexes",
        "_is_retired",
        "_lock",
        "_names",
        "cache",
        "file",
        "is_frozen",
    )

    def __init__(
        self,
        fs: FileSystem,
        names: SegmentNames,
        indexes: SegmentIndexes,
        *,
        cache: HandleCache,
        file: File | None = None,
    ) -> None:
        self.file = file
        self.is_frozen = file is None
        self.cache = cache
        self._fs = fs
        self._names = names
        self._indexes = indexes
        self._is_retired = False
        self._lock = threading.Lock()

    def log_file(self) -> File:
        """The log file, opened if necessary. Keep the reference while reading."""
        file = self.file
        if file is None:
            with self._lock:
                file = self.file
                if file is None:
                    file = self.file = self._fs.open_read(self._names.log)
        if self.is_frozen and not self._is_retired:
            self.cache.touch(self)
        return file

    def open_for_writing(self) -> None:
        self.file = self._fs.open_write(self._names.log)

    def release(self) -> None:
        """Close the files until the next read. See `HandleCache`."""
        if self.is_frozen and not self._is_retired and not self._indexes.offset.is_active:
            self.file = None
            self._indexes.release()

    def retire(self) -> None:
        """Another segment will take the names: readers of this one keep its files.

        They stay open until nobody refers to this object any more.
        """
        self._is_retired = True
        self.cache.forget(self)
        self.log_file()
        self._indexes.load()

    def mark_deleted(self) -> list[str]:
        """Rename every file to `.deleted`; return the new paths. Readers keep what they hold."""
        marked: list[str] = []
        for kind in SEGMENT_KINDS:
            old, new = self._names.path(kind), self._names.path(kind, DELETED)
            try:
                self._fs.rename(old, new)
            except FileNotFoundError:
                continue
            marked.append(new)
        self.cache.forget(self)
        return marked

    def close(self) -> None:
        """Close files and maps; nothing is flushed."""
        self.is_frozen = True
        self.cache.forget(self)
        self.file = None
        self._indexes.close()

"""The last file of a log as a process sees it that does not own the log."""

from typing import Final

from cordwood.errors import CorruptSegmentError
from cordwood.format.file_names import FileKind
from cordwood.log.rules.ahead_policy import PAGE_BYTES
from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem
from cordwood.storage.log_file.segment_reader import SegmentReader
from cordwood.storage.log_file.zero_tail import is_zeros
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.segment_parts.segment_handles import SegmentHandles
from cordwood.storage.segment_parts.segment_indexes import SegmentIndexes
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from cordwood.storage.segment_parts.segment_names import SegmentNames

# Fewer zeros than these are not looked for: batches end with zeros, too.
_ZEROS_MIN: Final = 16


class LastFile:
    """The `Extent` of a file that its owner may fill with zeros ahead of the batches.

    Owned by the segment that it is made for; any thread may ask, one looks at the file again.

    file_size     bytes in the file when it was last looked at
    next_offset   up to where its batches may be read
    """

    __slots__ = (
        "_base_offset",
        "_handles",
        "_indexes",
        "_is_dense",
        "_measured",
        "file_size",
        "next_offset",
    )

    def __init__(
        self,
        file_size: int,
        base_offset: Offset,
        handles: SegmentHandles,
        indexes: SegmentIndexes,
        *,
        is_dense: bool,
    ) -> None:
        self.file_size = file_size
        self.next_offset = base_offset
        self._base_offset = base_offset
        self._handles = handles
        self._indexes = indexes
        self._is_dense = is_dense
        self._measured: tuple[int, Offset, int] | None = None  # file size, next offset, size

    @property
    def size(self) -> int:
        """Bytes of the batches up to `next_offset`; found when first asked for."""
        key = self.file_size, self.next_offset
        measured = self._measured
        if measured is None or measured[:2] != key:
            measured = self._measured = (*key, self._end_of_batches(*key))
        return measured[2]

    @property
    def has_zeros(self) -> bool:
        """Whether the file ends with zeros, written ahead or not."""
        size = self.file_size
        return size >= _ZEROS_MIN and is_zeros(self._handles.log_file(), size - _ZEROS_MIN, size)

    def _end_of_batches(self, file_size: int, next_offset: Offset) -> int:
        """Where the batches below `next_offset` end.

        A file with zeros ends with a page. A batch that is being written may reach across the size
        that was seen, so the last bytes there need not be zeros any more.
        """
        try:
            if file_size % PAGE_BYTES and not self.has_zeros:
                return file_size
            if next_offset <= self._base_offset:
                return 0
            last = Offset(next_offset - 1)
            reader = SegmentReader(
                self._handles.log_file(), self._base_offset, file_size, is_dense=self._is_dense
            )
            position = reader.locate(last, self._indexes.hint(last))
            if position is None:
                return file_size
            for _ in reader.chunks(position, reader.next_offset, stop_offset=next_offset):
                pass
        except (CorruptSegmentError, FileNotFoundError):
            return file_size  # reading reports the damage, or finds the file gone
        return reader.position


def open_last(
    fs: FileSystem,
    directory: str,
    base_offset: Offset,
    *,
    file_size: int,
    handles: HandleCache,
    limits: SegmentLimits,
    mapped: bool,
    has_transactions: bool,
    swapped: frozenset[FileKind],
) -> Segment:
    """The last segment of a log that another process writes. Opens no file.

    As `Segment.open_sealed`, but its extent is a `LastFile`.
    """
    names = SegmentNames(directory=directory, base_offset=base_offset, swapped=swapped)
    indexes = SegmentIndexes.open_sealed(
        fs, names, limits, mapped=mapped, has_transactions=has_transactions
    )
    opened = SegmentHandles(fs, names, indexes, cache=handles)
    return Segment(
        fs,
        names,
        extent=LastFile(file_size, base_offset, opened, indexes, is_dense=limits.is_dense),
        handles=opened,
        indexes=indexes,
        limits=limits,
    )

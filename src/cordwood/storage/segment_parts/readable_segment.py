"""What every segment offers its readers, wherever its files lie."""

from typing import Protocol

from cordwood.format.file_names import FileKind
from cordwood.quantities import FilePosition, Offset, TimestampMs
from cordwood.storage.files import File
from cordwood.storage.indexes.key_index import KeyIndex
from cordwood.storage.indexes.offset_index import OffsetIndex
from cordwood.storage.indexes.time_index import TimeIndex
from cordwood.storage.indexes.transaction_index import TransactionIndex
from cordwood.storage.log_file.read_boundaries import ReadBoundaries
from cordwood.storage.log_file.segment_extent import Extent
from cordwood.storage.log_file.segment_reader import IndexHint, SegmentReader


class ReadableIndexes(Protocol):
    """The indexes of a segment for reading. Those of an archived one are fetched when asked for."""

    @property
    def offset(self) -> OffsetIndex: ...

    @property
    def time(self) -> TimeIndex: ...

    @property
    def transaction(self) -> TransactionIndex: ...

    @property
    def key(self) -> KeyIndex: ...


class ReadableSegment(Protocol):
    """A segment for reading: `Segment` on the local disk, or a copy in an archive.

    size         bytes of whole batches in the log file
    next_offset  where the batch after the last one begins, or the next segment
    extent       the two of them, for those who ask at every read
    boundaries   where readers stopped
    """

    base_offset: Offset
    created_ms: TimestampMs

    @property
    def size(self) -> int: ...

    @property
    def next_offset(self) -> Offset: ...

    @property
    def extent(self) -> Extent: ...

    @property
    def indexes(self) -> ReadableIndexes: ...

    @property
    def boundaries(self) -> ReadBoundaries: ...

    @property
    def name(self) -> str:
        """Where the log file lies, for messages."""
        ...

    @property
    def is_archived(self) -> bool:
        """Whether the files lie in an archive and are fetched when they are read."""
        ...

    @property
    def largest_timestamp(self) -> tuple[TimestampMs, Offset]:
        """The largest timestamp and the last offset of the batch that has it.

        (-1, base offset) if no record has one.
        """
        ...

    def path(self, kind: FileKind) -> str:
        """The local path of a file. It need not exist."""
        ...

    def first_timestamp(self) -> TimestampMs | None:
        """The timestamp of the first record; None if there is none."""
        ...

    def modified_ms(self) -> TimestampMs:
        """When the last batch was appended."""
        ...

    def file(self) -> File:
        """The log file, opened if needed. Keep the reference while reading.

        Of an archived file only some parts may be here; a read fetches others.
        """
        ...

    def file_at(self, position: int, length: int) -> File:
        """A local file that has these bytes at this position, for `sendfile`."""
        ...

    def reader(self, *, size: int | None = None) -> SegmentReader:
        """A reader of the first `size` bytes; of all whole batches by default."""
        ...

    def hint(self, offset: Offset) -> IndexHint:
        """A batch at or before the one that holds `offset`, from the index."""
        ...

    def batches_of(self, key: bytes, *, size: int) -> list[FilePosition] | None:
        """Positions of batches that may hold `key`, from the key index; None if unknown.

        `size` is the current size of the log file: an index of another size is not used.
        """
        ...

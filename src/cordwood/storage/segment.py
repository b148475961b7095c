"""A segment: one log file and the indexes that shorten the way to a place in it.

Invariant: each batch starts, in bytes and in offsets, at or after where the one before it
ended. The log file alone is the truth; everything else here can be derived from it.

The life of the files:

    active     the log file is open for writing, zeros may lie behind its last batch; index
               entries are in memory and reach their files in pieces
    frozen     takes no more batches; not yet synced (`seal` does that, off the append path)
    sealed     immutable and durable; files are opened when read and given back under pressure
"""

from cordwood.format.file_names import FileKind
from cordwood.quantities import INT64_MAX, NO_TIMESTAMP, FilePosition, Offset, TimestampMs
from cordwood.storage.files import File, FileSystem
from cordwood.storage.log_file.read_boundaries import ReadBoundaries
from cordwood.storage.log_file.segment_extent import Extent, SegmentExtent
from cordwood.storage.log_file.segment_reader import SegmentReader
from cordwood.storage.segment_parts.distrusted_batches import DistrustedBatches
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.segment_parts.segment_handles import SegmentHandles
from cordwood.storage.segment_parts.segment_indexes import SegmentIndexes
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from cordwood.storage.segment_parts.segment_names import SegmentNames
from cordwood.storage.segment_parts.segment_times import find_first, find_largest
from cordwood.storage.segment_parts.segment_writer import SegmentWriter


class Segment:
    """One segment. The log's writer alone writes, freezes and seals; anyone reads.

    It holds its parts together. Each has one concern, and callers use the parts directly:

    names        where the files lie
    extent       where the batches end
    handles      which files are open, until their names are removed
    indexes      the indexes, and the facts of the batches
    boundaries   where readers at the end of the log stopped
    distrusted   batches that the next sync writes again
    writer       appends, zeros and cuts at the end; since it was activated
    """

    __slots__ = (
        "_fs",
        "_is_dense",
        "_largest",
        "_limits",
        "base_offset",
        "boundaries",
        "created_ms",
        "distrusted",
        "extent",
        "file",
        "handles",
        "hint",
        "indexes",
        "names",
        "offset_limit",
        "writer",
    )

    is_archived = False
    writer: SegmentWriter  # not set before the segment is activated

    def __init__(
        self,
        fs: FileSystem,
        names: SegmentNames,
        *,
        extent: Extent,
        handles: SegmentHandles,
        indexes: SegmentIndexes,
        limits: SegmentLimits,
        created_ms: TimestampMs = NO_TIMESTAMP,
        offset_limit: int = INT64_MAX,
    ) -> None:
        self.base_offset = names.base_offset
        self.created_ms = created_ms
        self.names = names
        self.extent = extent
        self.handles = handles
        self.indexes = indexes
        self.boundaries = ReadBoundaries(is_open=not handles.is_frozen)
        self.distrusted = DistrustedBatches()
        self.offset_limit = offset_limit
        # Every read asks for these: the parts answer, without a call in between.
        self.file = handles.log_file
        self.hint = indexes.hint
        self._fs = fs
        self._limits = limits
        self._is_dense = limits.is_dense
        self._largest: tuple[TimestampMs, Offset] | None = None
        if not handles.is_frozen:
            self.writer = self._new_writer()

    # --- opening -----------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        directory: str,
        base_offset: Offset,
        *,
        handles: HandleCache,
        limits: SegmentLimits,
        now_ms: TimestampMs,
    ) -> "Segment":
        """A new, empty, active segment. Its names are durable once the directory is synced.

        The log file comes last: when something fails, there is none. An empty one left behind
        would cut the log in two there, though the segment before it goes on.
        """
        names = SegmentNames(directory=directory, base_offset=base_offset)
        indexes = SegmentIndexes.create(fs, names, limits)
        file = fs.create(names.log, exclusive=False)
        return cls(
            fs,
            names,
            extent=SegmentExtent(0, base_offset),
            handles=SegmentHandles(fs, names, indexes, cache=handles, file=file),
            indexes=indexes,
            limits=limits,
            created_ms=now_ms,
        )

    @classmethod
    def open_sealed(
        cls,
        fs: FileSystem,
        directory: str,
        base_offset: Offset,
        *,
        size: int,
        next_offset: Offset,
        handles: HandleCache,
        limits: SegmentLimits,
        mapped: bool = True,
        is_last: bool = False,
        has_transactions: bool = False,
        swapped: frozenset[FileKind] = frozenset(),
    ) -> "Segment":
        """An existing segment, for reading. Opens no file.

        Unless it `is_last`, `next_offset` is the base of the segment behind it. With
        `has_transactions` the index of aborted transactions must exist when it is read. The files
        in `swapped` have the suffix `.swap` (see `segment_files`).
        """
        names = SegmentNames(directory=directory, base_offset=base_offset, swapped=swapped)
        indexes = SegmentIndexes.open_sealed(
            fs, names, limits, mapped=mapped, has_transactions=has_transactions
        )
        return cls(
            fs,
            names,
            extent=SegmentExtent(size, next_offset),
            handles=SegmentHandles(fs, names, indexes, cache=handles),
            indexes=indexes,
            limits=limits,
            offset_limit=INT64_MAX if is_last else next_offset,
        )

    def activate(self, *, now_ms: TimestampMs, is_synced: bool = False) -> None:
        """Make an existing segment take batches again, from `size` and `next_offset` on.

        Index entries past the end of the log are dropped. `is_synced`: the last owner made the
        indexes durable.
        """
        self.indexes.key.remove()
        self.handles.open_for_writing()
        self.indexes.activate(is_synced=is_synced)
        self.created_ms = now_ms
        self.writer = self._new_writer()
        self.boundaries.is_open = True
        self.handles.is_frozen = False
        self._largest = None

    def _new_writer(self) -> SegmentWriter:
        return SegmentWriter(
            self.handles, self._own_extent, self.indexes, self.boundaries, self._limits
        )

    # --- facts -------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of whole batches in the file."""
        return self.extent.size

    @property
    def next_offset(self) -> Offset:
        """Where the batch after the last one begins: see `Extent`."""
        return self.extent.next_offset

    @property
    def name(self) -> str:
        return self.names.log

    def path(self, kind: FileKind) -> str:
        return self.names.path(kind)

    @property
    def is_active(self) -> bool:
        return not self.handles.is_frozen

    @property
    def is_sealed(self) -> bool:
        """Whether the files are complete and durable, indexes included."""
        indexes = self.indexes
        return (
            self.handles.is_frozen and not indexes.offset.is_active and not indexes.needs_rebuilding
        )

    @property
    def largest_timestamp(self) -> tuple[TimestampMs, Offset]:
        """The largest timestamp of the segment and the last offset of the batch that has it.

        (-1, base offset) when no record has one.
        """
        facts = self.indexes.facts
        if facts.max_timestamp != NO_TIMESTAMP or not self.handles.is_frozen:
            return facts.max_timestamp, Offset(max(facts.max_timestamp_offset, self.base_offset))
        if self._largest is None:
            self._largest = find_largest(self)
        return self._largest

    def first_timestamp(self) -> TimestampMs | None:
        return find_first(self)

    def modified_ms(self) -> TimestampMs:
        return TimestampMs(self._fs.modified_ms(self.name))

    # --- writing -----------------------------------------------------------------------------

    @property
    def _own_extent(self) -> SegmentExtent:
        extent = self.extent
        assert isinstance(extent, SegmentExtent), self.name  # another process writes the file
        return extent

    def restore_to(self, next_offset: Offset) -> None:
        """After an append that was interrupted, end at `next_offset` again.

        Bytes, index entries and facts past it are removed. The facts are empty then: walk it.
        """
        writer = self.writer
        writer.repair()
        position = self.reader().locate(next_offset, self.hint(next_offset))
        writer.truncate_to(FilePosition(self.size) if position is None else position, next_offset)

    def allow_gaps(self) -> None:
        """Batches that are appended from here on need not start where the last one ended."""
        self._is_dense = False

    def sync_log(self) -> None:
        """Make the batches durable. The name of the file needs a sync of the directory."""
        file = self.handles.file
        if file is not None:
            if self.distrusted.start is not None:
                self.distrusted.rewrite(self, file)
            file.sync()

    @property
    def sync_descriptor(self) -> int | None:
        """The descriptor, if `sync_log` is no more than its fdatasync; else None."""
        file = self.handles.file
        return None if file is None or self.distrusted.start is not None else file.sync_descriptor

    def complete_time_index(self) -> bool:
        """Add the segment's largest timestamp to the time index; True if it was missing.

        Kafka and we read the last entry of a closed log as its largest timestamp.
        """
        timestamp, offset = self.largest_timestamp
        if not self.size or timestamp <= NO_TIMESTAMP:
            return False
        return self.indexes.time.add(timestamp, offset, force=True)

    # --- the end of writing ------------------------------------------------------------------

    def freeze(self) -> None:
        """Take no more batches. The time index gets the segment's largest timestamp.

        The file must end with its last batch: see `SegmentWriter.trim`.
        """
        assert self.writer.zeros.end <= self.size, self.name
        self.complete_time_index()
        self.handles.is_frozen = True
        self.boundaries.is_open = False

    def cut_frozen(self, next_offset: Offset) -> None:
        """Cut a segment that was just frozen, while its indexes may be on their way to disk.

        They then hold entries past the end: `needs_rebuilding` says so.
        """
        position = self.reader().locate(next_offset, self.hint(next_offset))
        if position is None:
            return
        file = self._fs.open_write(self.name)
        file.truncate_to(position)
        file.sync()
        self.boundaries.forget()
        extent = self._own_extent
        extent.size = position
        extent.next_offset = next_offset
        self.indexes.needs_rebuilding = True

    def seal(self) -> None:
        """Make a frozen segment durable and give its files to the cache of open files."""
        self.sync_log()
        self.seal_indexes()

    def seal_indexes(self) -> None:
        """The second half of `seal`. The log file is durable; if this fails, repeat it."""
        assert self.handles.is_frozen, self.name
        self.indexes.seal()
        self.handles.file = None

    def build_key_index(self) -> int:
        """Build the key index of a sealed segment; return its entries."""
        assert self.handles.is_frozen, self.name
        return self.indexes.key.build(self.reader(), self.base_offset, self.size)

    def close(self) -> None:
        """Close files and maps; nothing is flushed."""
        self.boundaries.is_open = False
        self.handles.close()

    # --- reading -----------------------------------------------------------------------------

    def file_at(self, position: int, length: int) -> File:
        """The log file, which has all its bytes."""
        return self.file()

    def reader(self, *, size: int | None = None) -> SegmentReader:
        return SegmentReader(
            self.file(),
            self.base_offset,
            self.extent.size if size is None else size,
            offset_limit=self.offset_limit,
            is_dense=self._is_dense,
        )

    def batches_of(self, key: bytes, *, size: int) -> list[FilePosition] | None:
        """Positions of batches that may hold `key`, from the key index; None if it cannot tell.

        `size` is that of the log file now: an index that was made from another is not asked.
        """
        handles = self.handles
        if not handles.is_frozen:
            return None
        found = self.indexes.key.batches_of(key, log_size=size)
        if found is not None:
            handles.cache.touch(handles)
        return found

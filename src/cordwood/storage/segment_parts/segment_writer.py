"""Writing at the end of a segment's log file: batches, zeros ahead of them, and cuts."""

from collections.abc import Sequence
from typing import Final

from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_placing import index_stretches
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.quantities import FilePosition, Offset, TimestampMs
from cordwood.storage.files import Buffer, File, write_rest
from cordwood.storage.log_file.read_boundaries import ReadBoundaries
from cordwood.storage.log_file.segment_extent import SegmentExtent
from cordwood.storage.log_file.segment_facts import NOT_SEEN
from cordwood.storage.log_file.zero_tail import ZerosAhead
from cordwood.storage.segment_parts.segment_handles import SegmentHandles
from cordwood.storage.segment_parts.segment_indexes import SegmentIndexes
from cordwood.storage.segment_parts.segment_limits import SegmentLimits

_STRETCH_INTERVALS: Final = 8  # small batches of one write share an entry for so many intervals


class SegmentWriter:
    """The end of one segment. The segment makes it when it is activated; for its log's writer.

    extent    where the batches end; grows with each append
    indexes   get an entry for every few kilobytes of batches
    zeros     those that lie behind the batches in the file
    """

    __slots__ = (
        "_boundaries",
        "_handles",
        "_index_interval_bytes",
        "_stretch_max",
        "extent",
        "indexes",
        "zeros",
    )

    def __init__(
        self,
        handles: SegmentHandles,
        extent: SegmentExtent,
        indexes: SegmentIndexes,
        boundaries: ReadBoundaries,
        limits: SegmentLimits,
    ) -> None:
        self.extent = extent
        self.indexes = indexes
        self.zeros = ZerosAhead(synced_size=extent.size)
        self._handles = handles
        self._boundaries = boundaries
        self._index_interval_bytes = limits.index_interval_bytes
        self._stretch_max = _STRETCH_INTERVALS * limits.index_interval_bytes

    # --- batches -----------------------------------------------------------------------------

    def append(
        self, data: Buffer, batches: Sequence[UnplacedBatch], *, base_offset: Offset
    ) -> None:
        """Write batches that lie one behind the other in `data` at the end. Not yet durable.

        They are stamped already; the first begins at `base_offset`. All of them are written or,
        on an `OSError`, none; part of them may then be left in the file: see `repair`.

        Small batches share an index entry: one for each stretch of `_STRETCH_INTERVALS` index
        intervals.
        """
        self._write(data, base_offset)
        # The first batch of a segment is noted alone: its timestamp decides when to roll.
        is_first = self.indexes.facts.first_timestamp == NOT_SEEN
        stretch_max = self._stretch_max
        for stretch in index_stretches(
            list(batches), base_offset, 0 if is_first else stretch_max, stretch_max
        ):
            self._note_appended(*stretch)

    def append_one(
        self, data: Buffer, max_timestamp: TimestampMs, record_count: int, base_offset: Offset
    ) -> None:
        """As `append`, for the one batch that `data` is."""
        # As `_write` and `_note_appended` for a stretch of one batch, without their calls.
        handles, extent, facts = self._handles, self.extent, self.indexes.facts
        file, position, size = handles.file, extent.size, len(data)
        assert file is not None, base_offset
        assert not handles.is_frozen, file.name
        assert base_offset >= extent.next_offset, (base_offset, extent.next_offset, file.name)
        written = file.write_at(position, data)
        if written != size:
            write_rest(file, position, data, written)
        end = base_offset + record_count
        if max_timestamp > facts.max_timestamp:
            facts.max_timestamp = max_timestamp
            facts.max_timestamp_offset = Offset(end - 1)
        if facts.first_timestamp == NOT_SEEN:
            facts.first_timestamp = max_timestamp
        if facts.unindexed_bytes > self._index_interval_bytes:
            self.indexes.add(Offset(end - 1), FilePosition(position))
        facts.unindexed_bytes += size
        facts.record_count += record_count
        extent.size = position + size
        extent.next_offset = Offset(end)

    def append_scanned(self, decoder: BatchDecoder, count: int) -> None:
        """Write the first `count` batches of a scan at the end, as they are. Not yet durable.

        They may leave offsets out. On an `OSError` as after `append`.
        """
        extent = self.extent
        first, last = decoder.batch(0), decoder.batch(count - 1)
        position, stop = extent.size, last.position + last.size
        self._write(decoder.data[first.position : stop], first.base_offset)
        self.indexes.add_walked(decoder, count, position - first.position)
        extent.size = position + stop - first.position
        extent.next_offset = last.next_offset

    def _write(self, data: Buffer, base_offset: Offset) -> None:
        file, extent = self._handles.file, self.extent
        assert file is not None, base_offset
        assert not self._handles.is_frozen, file.name
        assert base_offset >= extent.next_offset, (base_offset, extent.next_offset, file.name)
        written = file.write_at(extent.size, data)
        if written != len(data):
            write_rest(file, extent.size, data, written)

    def _note_appended(
        self,
        size: int,
        next_offset: Offset,
        max_timestamp: TimestampMs,
        record_count: int,
        max_timestamp_offset: Offset,
        first_end: Offset,
        first_timestamp: TimestampMs,
    ) -> None:
        """Add a stretch of batches at the end to the indexes and the facts.

        `max_timestamp_offset` is the last offset of the batch with the largest timestamp.
        `first_end` is where the first batch ends, `first_timestamp` its largest timestamp.
        """
        extent, facts = self.extent, self.indexes.facts
        position = FilePosition(extent.size)
        if facts.first_timestamp == NOT_SEEN:
            facts.first_timestamp = max_timestamp
        if facts.unindexed_bytes > self._index_interval_bytes:
            # An entry names one batch, by its last offset: a reader expects it there. The time
            # entry beside it counts no batch behind that one: see `time_index`.
            if first_timestamp > facts.max_timestamp:
                facts.max_timestamp = first_timestamp
                facts.max_timestamp_offset = Offset(first_end - 1)
            self.indexes.add(Offset(first_end - 1), position)
        if max_timestamp > facts.max_timestamp:
            facts.max_timestamp = max_timestamp
            facts.max_timestamp_offset = max_timestamp_offset
        facts.unindexed_bytes += size
        facts.record_count += record_count
        extent.size = position + size
        extent.next_offset = next_offset

    # --- zeros -------------------------------------------------------------------------------

    def write_ahead(self, end: int) -> None:
        """Fill the file with zeros from the last batch up to `end`. Durable after a sync.

        Nobody may append meanwhile. On an `OSError` there may be fewer zeros.
        """
        assert not self._handles.is_frozen, end
        self.zeros.write(self.file, self.extent.size, end)

    def trim(self) -> None:
        """Let the file end with its last batch. Durable after a sync."""
        if self.zeros.end > self.extent.size:
            self.file.truncate_to(self.extent.size)
        self.zeros.end = 0

    # --- cuts --------------------------------------------------------------------------------

    def repair(self) -> None:
        """After a failed append, cut off the bytes that reached the file."""
        file, size = self.file, self.extent.size
        if file.size() > size:
            file.truncate_to(size)
        self.zeros.end = 0

    def cut_tail(self, position: FilePosition) -> None:
        """Cut off bytes behind the last batch; indexes and facts do not change."""
        assert position == self.extent.size, (position, self.extent.size)
        self.file.truncate_to(position)
        self.zeros.end = 0

    def truncate_to(self, position: FilePosition, next_offset: Offset) -> None:
        """Cut at a batch boundary. Durable after a sync. The facts are empty then: walk it."""
        self.file.truncate_to(position)
        self.zeros.end = 0
        self.indexes.truncate_to(next_offset)
        self._boundaries.forget()
        self.extent.size = position
        self.extent.next_offset = next_offset
        self.indexes.reset_facts()

    @property
    def file(self) -> File:
        """The log file, open for writing."""
        file = self._handles.file
        assert file is not None, self.extent.next_offset
        return file

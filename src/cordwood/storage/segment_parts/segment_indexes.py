"""The indexes of one segment, and the facts of its batches that feed them.

All of it is derived: the log file alone is the truth. An entry of the offset index and one of the
time index are added together, so both are full as soon as one of them is.
"""

from typing import Final, Self

from cordwood.errors import FormatError
from cordwood.format import batch_scan
from cordwood.format.batch import BatchDecoder
from cordwood.format.file_names import FileKind
from cordwood.quantities import FilePosition, Offset, TimestampMs
from cordwood.storage.files import FileSystem
from cordwood.storage.indexes.key_index import KeyIndex
from cordwood.storage.indexes.offset_index import OffsetIndex
from cordwood.storage.indexes.time_index import TimeIndex, fitting_entries
from cordwood.storage.indexes.transaction_index import TransactionIndex
from cordwood.storage.log_file.segment_facts import SegmentFacts
from cordwood.storage.log_file.segment_reader import IndexHint
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from cordwood.storage.segment_parts.segment_names import SegmentNames

# Index entries are written to the file in pieces of this size, so that other processes can search
# an active segment. Writing each entry would cost two system calls per few kilobytes of log.
_UNFLUSHED_ENTRIES_MAX: Final = 128


class SegmentIndexes:
    """The indexes of one segment. Its owner is the segment; the log's writer alone changes them.

    is_full             an index has no room for another entry; updated when one is added
    has_many_unflushed  `flush` has something to do
    needs_rebuilding    entries past the end of the log are on their way to the disk
    """

    __slots__ = (
        "_base_offset",
        "_fs",
        "_limits",
        "_names",
        "_unflushed_count",
        "facts",
        "has_many_unflushed",
        "is_full",
        "key",
        "needs_rebuilding",
        "offset",
        "time",
        "transaction",
    )

    def __init__(
        self,
        fs: FileSystem,
        names: SegmentNames,
        limits: SegmentLimits,
        *,
        offset: OffsetIndex,
        time: TimeIndex,
        transaction: TransactionIndex,
    ) -> None:
        self.offset = offset
        self.time = time
        self.transaction = transaction
        self.key = KeyIndex(fs, names.path(FileKind.KEYINDEX))
        self.facts = SegmentFacts()
        self.is_full = False
        self.has_many_unflushed = False
        self.needs_rebuilding = False
        self._unflushed_count = 0
        self._fs = fs
        self._names = names
        self._base_offset = names.base_offset
        self._limits = limits

    # --- opening -----------------------------------------------------------------------------

    @classmethod
    def create(cls, fs: FileSystem, names: SegmentNames, limits: SegmentLimits) -> Self:
        """The empty indexes of a new segment."""
        base, index_bytes = names.base_offset, limits.index_bytes_max
        indexes = cls(
            fs,
            names,
            limits,
            offset=OffsetIndex.create(fs, names.path(FileKind.INDEX), base, max_bytes=index_bytes),
            time=TimeIndex.create(fs, names.path(FileKind.TIMEINDEX), base, max_bytes=index_bytes),
            transaction=TransactionIndex.open_active(fs, names.path(FileKind.TXNINDEX), base),
        )
        indexes._note_room()
        return indexes

    @classmethod
    def open_sealed(
        cls,
        fs: FileSystem,
        names: SegmentNames,
        limits: SegmentLimits,
        *,
        mapped: bool,
        has_transactions: bool,
    ) -> Self:
        """Indexes for reading. Opens no file. See `Segment.open_sealed`."""
        base = names.base_offset
        return cls(
            fs,
            names,
            limits,
            offset=OffsetIndex.open_sealed(fs, names.path(FileKind.INDEX), base, mapped=mapped),
            time=TimeIndex.open_sealed(fs, names.path(FileKind.TIMEINDEX), base, mapped=mapped),
            transaction=TransactionIndex.open_sealed(
                fs,
                names.path(FileKind.TXNINDEX),
                base,
                mapped=mapped,
                must_exist=has_transactions,
            ),
        )

    def activate(self, *, is_synced: bool) -> None:
        """Take entries again. `is_synced`: the last owner made the indexes durable."""
        fs, names, base = self._fs, self._names, self._base_offset
        index_bytes = self._limits.index_bytes_max
        self.offset = OffsetIndex.open_active(
            fs, names.path(FileKind.INDEX), base, max_bytes=index_bytes, is_synced=is_synced
        )
        self.time = TimeIndex.open_active(
            fs, names.path(FileKind.TIMEINDEX), base, max_bytes=index_bytes, is_synced=is_synced
        )
        self.transaction = TransactionIndex.open_active(
            fs, names.path(FileKind.TXNINDEX), base, is_synced=is_synced
        )
        self._note_room()

    def reopen_transactions(self, offset: Offset) -> None:
        """Keep the aborted transactions that ended below `offset`; the index takes new ones."""
        self.transaction = TransactionIndex.open_active(
            self._fs, self._names.path(FileKind.TXNINDEX), self._base_offset
        )
        self.transaction.truncate_to(offset)

    # --- searching ---------------------------------------------------------------------------

    def hint(self, offset: Offset) -> IndexHint:
        """A batch at or before the one that holds `offset`."""
        try:
            return self.offset.lookup(offset)
        except (FormatError, OSError):
            # Derived: without the index, reading takes longer.
            return self._base_offset, FilePosition(0)

    # --- entries -----------------------------------------------------------------------------

    def add(self, last_offset: Offset, position: FilePosition) -> None:
        """Add the batch at `position`, and the largest timestamp of the facts."""
        facts = self.facts
        if not self.is_full:
            self.offset.add(last_offset, position)
            if self.time.add(
                facts.max_timestamp,
                Offset(max(facts.max_timestamp_offset, self._base_offset)),
            ):
                facts.indexed_timestamp = facts.max_timestamp
            self._note_entries(1)
        facts.unindexed_bytes = 0

    def add_walked(self, decoder: BatchDecoder, count: int, chunk_position: int) -> None:
        """Add the first `count` batches that a walk found, and their facts."""
        offset_entries, time_entries = bytearray(8 * count), bytearray(12 * count)
        words = self.facts.words()
        offset_size, time_size = batch_scan.index_batches(
            decoder.rows,
            count,
            chunk_position,
            self._base_offset,
            self._limits.index_interval_bytes,
            words,
            offset_entries,
            time_entries,
        )
        self.facts = SegmentFacts.of_words(words)
        if self.is_full:
            return
        fitting = fitting_entries(
            memoryview(offset_entries)[:offset_size],
            memoryview(time_entries)[:time_size],
            offset_room=self.offset.room,
            time_room=self.time.room,
        )
        self.offset.extend(fitting.offset_entries)
        self.time.extend(fitting.time_entries)
        self._note_entries(len(fitting.offset_entries) // 8)

    def _note_entries(self, count: int) -> None:
        self._unflushed_count += count
        self.has_many_unflushed = self._unflushed_count >= _UNFLUSHED_ENTRIES_MAX
        self.is_full = self.offset.is_full or self.time.is_full

    def _note_room(self) -> None:
        self.is_full = self.offset.is_full or self.time.is_full

    def resume_walk(
        self,
        *,
        first_timestamp: TimestampMs,
        max_timestamp: TimestampMs,
        max_timestamp_offset: Offset,
        record_count: int,
    ) -> None:
        """Set the facts to those of the batches that are not walked."""
        self.facts.unindexed_bytes = 0
        self.facts.first_timestamp = first_timestamp
        self.facts.max_timestamp = max_timestamp
        self.facts.indexed_timestamp = max_timestamp
        self.facts.max_timestamp_offset = max_timestamp_offset
        self.facts.record_count = record_count
        self._note_room()

    def clear(self) -> None:
        """Clear entries and facts, before the whole file is walked."""
        self.offset.clear()
        self.time.clear()
        self.facts = SegmentFacts()
        self._note_room()

    def truncate_to(self, next_offset: Offset) -> None:
        """Drop the entries from `next_offset` on. The facts are `reset_facts`'s to drop."""
        self.offset.truncate_to(next_offset)
        self.time.truncate_to(next_offset)
        self.transaction.truncate_to(next_offset)

    def reset_facts(self) -> None:
        """Nothing is known of the batches any more: walk them."""
        self.facts = SegmentFacts()
        self._note_room()

    # --- files -------------------------------------------------------------------------------

    def flush(self, *, at_least: int = _UNFLUSHED_ENTRIES_MAX) -> None:
        """Write the entries for other processes, once there are enough of them."""
        if self._unflushed_count >= at_least:
            self.offset.flush()
            self.time.flush()
            self._note_flushed()

    def sync(self) -> None:
        """Make the entries so far durable."""
        self.offset.sync()
        self.time.sync()
        self.transaction.sync()
        self._note_flushed()

    def _note_flushed(self) -> None:
        self._unflushed_count = 0
        self.has_many_unflushed = False

    def seal(self) -> None:
        """Make them durable; they take no more entries. If this fails, repeat it."""
        self.offset.seal()
        self.time.seal()
        self.transaction.seal()

    def load(self) -> None:
        """Open them, as long as their names are theirs."""
        for index in (self.offset, self.time, self.transaction):
            index.count  # noqa: B018  loads it

    def release(self) -> None:
        """Close the files until the next read."""
        self.offset.release()
        self.time.release()
        self.transaction.release()
        self.key.release()

    def close(self) -> None:
        """Close files and maps; nothing is flushed."""
        self.offset.close()
        self.time.close()
        self.transaction.close()
        self.key.release()

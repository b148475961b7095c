"""A segment: one log file and the indexes that shorten the way to a place in it.

Invariant: each batch starts, in bytes and in offsets, at or after where the one before it
ended. The log file alone is the truth; everything else here can be derived from it.

The life of the files:

    active     the log file is open for writing, zeros may lie behind its last batch; index
               entries are in memory and reach their files in pieces
    frozen     takes no more batches; not yet synced (`seal` does that, off the append path)
    sealed     immutable and durable; files are opened when read and given back under pressure
"""

import os
import threading
from collections.abc import Sequence
from typing import Final

from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format import batch_scan
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_placing import index_stretches
from cordwood.format.file_names import DELETED, NO_SUFFIX, SWAP, FileKind, segment_file_name
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.quantities import INT64_MAX, KIB, MIB, NO_TIMESTAMP, FilePosition, Offset, TimestampMs
from cordwood.storage.files import Buffer, File, FileSystem, write_all
from cordwood.storage.handle_cache import HandleCache
from cordwood.storage.key_index import KeyIndex
from cordwood.storage.offset_index import OffsetIndex
from cordwood.storage.segment_facts import NOT_SEEN, SegmentFacts
from cordwood.storage.segment_reader import IndexHint, SegmentReader
from cordwood.storage.segment_times import find_first, find_largest
from cordwood.storage.time_index import TimeIndex, fitting_entries
from cordwood.storage.transaction_index import TransactionIndex
from cordwood.value_class import dataclass, replace

SEGMENT_KINDS: Final = (
    FileKind.LOG,
    FileKind.INDEX,
    FileKind.TIMEINDEX,
    FileKind.TXNINDEX,
    FileKind.KEYINDEX,
)

# Index entries are written to the file in pieces of this size, so that other processes can search
# an active segment. Writing each entry would cost two system calls per few kilobytes of log.
_UNFLUSHED_ENTRIES_MAX: Final = 128
_BOUNDARIES_KEPT: Final = 8  # of readers at the end of the log
_STRETCH_INTERVALS: Final = 8  # small batches of one write share an entry for so many intervals

_REWRITE_BYTES: Final = 1 * MIB
_ZEROS: Final = memoryview(bytes(256 * KIB))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLimits:
    """How large indexes grow and how sparse they are."""

    index_bytes_max: int
    index_interval_bytes: int
    is_dense: bool = False  # each batch starts where the one before it ended: never compacted


class Segment:
    """One segment. The log's writer alone appends, freezes, truncates and seals; anyone reads.

    size            bytes of whole batches in the file; grows with each append
    ahead_end       up to where zeros may follow them in the file: see `write_ahead`
    synced_size     what the last sync covered, or is about to cover
    grows_alone     zeros could not be written ahead; the file grows with its batches
    next_offset     where the batch after the last one begins; for a sealed segment the offset
                    known when it was opened, which may be the base of the segment after it
    is_index_full   an index has no room for another entry; updated when one is added
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: Offset,
        *,
        size: int,
        next_offset: Offset,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        transaction_index: TransactionIndex,
        handles: HandleCache,
        limits: SegmentLimits,
        created_ms: TimestampMs,
        file: File | None = None,
        offset_limit: int = INT64_MAX,
        swapped: frozenset[FileKind] = frozenset(),
    ) -> None:
        self.base_offset = base_offset
        self.size = size
        self.ahead_end = 0
        self.synced_size = size
        self.grows_alone = False
        self.next_offset = next_offset
        self.offset_index = offset_index
        self.time_index = time_index
        self.transaction_index = transaction_index
        self.created_ms = created_ms
        self.offset_limit = offset_limit
        self.directory = directory
        self._swapped = swapped
        self.key_index = KeyIndex(fs, self.path(FileKind.KEYINDEX))
        self._fs = fs
        self._file = file
        self._handles = handles
        self._limits = limits
        self._stretch_max = _STRETCH_INTERVALS * limits.index_interval_bytes
        self.facts = SegmentFacts()
        self._unflushed_entries = 0
        self._is_frozen = file is None
        self.needs_new_indexes = False
        self._is_retired = False
        self._distrusted_from: Offset | None = None
        self.is_index_full = file is not None and (offset_index.is_full or time_index.is_full)
        self._largest: tuple[TimestampMs, Offset] | None = None
        self._boundaries: tuple[IndexHint, ...] = ()
        self._lock = threading.Lock()

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

        def path(kind: FileKind) -> str:
            return os.path.join(directory, segment_file_name(base_offset, kind))

        index_bytes = limits.index_bytes_max
        offset_index = OffsetIndex.create(
            fs, path(FileKind.INDEX), base_offset, max_bytes=index_bytes
        )
        time_index = TimeIndex.create(
            fs, path(FileKind.TIMEINDEX), base_offset, max_bytes=index_bytes
        )
        transaction_index = TransactionIndex.open_active(fs, path(FileKind.TXNINDEX), base_offset)
        return cls(
            fs,
            directory,
            base_offset,
            size=0,
            next_offset=base_offset,
            offset_index=offset_index,
            time_index=time_index,
            transaction_index=transaction_index,
            handles=handles,
            limits=limits,
            created_ms=now_ms,
            file=fs.create(path(FileKind.LOG), exclusive=False),
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

        def path(kind: FileKind) -> str:
            suffix = SWAP if kind in swapped else NO_SUFFIX
            return os.path.join(directory, segment_file_name(base_offset, kind, suffix))

        return cls(
            fs,
            directory,
            base_offset,
            size=size,
            next_offset=next_offset,
            offset_index=OffsetIndex.open_sealed(
                fs, path(FileKind.INDEX), base_offset, mapped=mapped
            ),
            time_index=TimeIndex.open_sealed(
                fs, path(FileKind.TIMEINDEX), base_offset, mapped=mapped
            ),
            transaction_index=TransactionIndex.open_sealed(
                fs,
                path(FileKind.TXNINDEX),
                base_offset,
                mapped=mapped,
                must_exist=has_transactions,
            ),
            handles=handles,
            limits=limits,
            created_ms=NO_TIMESTAMP,
            offset_limit=INT64_MAX if is_last else next_offset,
            swapped=swapped,
        )

    def activate(self, *, now_ms: TimestampMs, is_synced: bool = False) -> None:
        """Make an existing segment take batches again, from `size` and `next_offset` on.

        Index entries past the end of the log are dropped. `is_synced`: the last owner made the
        indexes durable.
        """
        index_bytes = self._limits.index_bytes_max
        self.key_index.remove()
        self._file = self._fs.open_write(self.path(FileKind.LOG))
        self.offset_index = OffsetIndex.open_active(
            self._fs,
            self.path(FileKind.INDEX),
            self.base_offset,
            max_bytes=index_bytes,
            is_synced=is_synced,
        )
        self.time_index = TimeIndex.open_active(
            self._fs,
            self.path(FileKind.TIMEINDEX),
            self.base_offset,
            max_bytes=index_bytes,
            is_synced=is_synced,
        )
        self.transaction_index = TransactionIndex.open_active(
            self._fs, self.path(FileKind.TXNINDEX), self.base_offset, is_synced=is_synced
        )
        self.created_ms = now_ms
        self.ahead_end = 0
        self._is_frozen = False
        self._note_index_room()

    def reopen_transaction_index(self, offset: Offset) -> None:
        """Keep the aborted transactions that ended below `offset`; the index takes new ones."""
        self.transaction_index = TransactionIndex.open_active(
            self._fs, self.path(FileKind.TXNINDEX), self.base_offset
        )
        self.transaction_index.truncate_to(offset)

    # --- facts -------------------------------------------------------------------------------

    def path(self, kind: FileKind, suffix: str | None = None) -> str:
        """The path of a file, or the one it would have with `suffix`."""
        if suffix is None:
            suffix = SWAP if kind in self._swapped else NO_SUFFIX
        return os.path.join(self.directory, segment_file_name(self.base_offset, kind, suffix))

    @property
    def name(self) -> str:
        return self.path(FileKind.LOG)

    @property
    def is_active(self) -> bool:
        return not self._is_frozen

    @property
    def is_sealed(self) -> bool:
        """Whether the files are complete and durable, indexes included."""
        return self._is_frozen and not self.offset_index.is_active and not self.needs_new_indexes

    @property
    def is_archived(self) -> bool:
        """Whether the files lie in an archive and are fetched when read."""
        return False

    @property
    def record_count(self) -> int:
        """Records appended since it was opened, plus those that recovery counted."""
        return self.facts.record_count

    @property
    def first_batch_timestamp(self) -> TimestampMs:
        """Largest timestamp of the first batch; NO_TIMESTAMP if there is no batch or timestamp."""
        seen = self.facts.first_timestamp
        return NO_TIMESTAMP if seen == NOT_SEEN else seen

    def _note_index_room(self) -> None:
        self.is_index_full = self.offset_index.is_full or self.time_index.is_full

    @property
    def largest_timestamp(self) -> tuple[TimestampMs, Offset]:
        """The largest timestamp of the segment and the last offset of the batch that has it.

        (-1, base offset) when no record has one.
        """
        if self.facts.max_timestamp != NO_TIMESTAMP or not self._is_frozen:
            return (
                self.facts.max_timestamp,
                Offset(max(self.facts.max_timestamp_offset, self.base_offset)),
            )
        if self._largest is None:
            self._largest = find_largest(self)
        return self._largest

    def first_timestamp(self) -> TimestampMs | None:
        return find_first(self)

    def modified_ms(self) -> TimestampMs:
        return TimestampMs(self._fs.modified_ms(self.name))

    # --- writing -----------------------------------------------------------------------------

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
        is_first = self.facts.first_timestamp == NOT_SEEN
        stretch_max = self._stretch_max
        for stretch in index_stretches(
            list(batches), base_offset, 0 if is_first else stretch_max, stretch_max
        ):
            self._note_appended(*stretch)

    def append_one(
        self, data: Buffer, max_timestamp: TimestampMs, record_count: int, base_offset: Offset
    ) -> None:
        """As `append`, for the one batch that `data` is."""
        self._write(data, base_offset)
        # As `_note_appended` for a stretch of one batch.
        facts, position, size = self.facts, self.size, len(data)
        end = base_offset + record_count
        if max_timestamp > facts.max_timestamp:
            facts.max_timestamp = max_timestamp
            facts.max_timestamp_offset = Offset(end - 1)
        if facts.first_timestamp == NOT_SEEN:
            facts.first_timestamp = max_timestamp
        if facts.unindexed_bytes > self._limits.index_interval_bytes:
            self._add_index_entry(Offset(end - 1), FilePosition(position))
        facts.unindexed_bytes += size
        facts.record_count += record_count
        self.size = position + size
        self.next_offset = Offset(end)

    def _write(self, data: Buffer, base_offset: Offset) -> None:
        file = self._file
        assert file is not None, self.name
        assert not self._is_frozen, self.name
        assert base_offset >= self.next_offset, (base_offset, self.next_offset, self.name)
        write_all(file, self.size, data)

    def append_scanned(self, decoder: BatchDecoder, count: int) -> None:
        """Write the first `count` batches of a scan at the end, as they are. Not yet durable.

        They may leave offsets out. On an `OSError` as after `append`.
        """
        file = self._file
        assert file is not None, self.name
        assert not self._is_frozen, self.name
        first, last = decoder.batch(0), decoder.batch(count - 1)
        assert first.base_offset >= self.next_offset, (first, self.next_offset, self.name)
        position, stop = self.size, last.position + last.size
        write_all(file, position, decoder.data[first.position : stop])
        self.index_walked(decoder, count, position - first.position)
        self.size = position + stop - first.position
        self.next_offset = last.next_offset

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
        position = FilePosition(self.size)
        facts = self.facts
        if facts.first_timestamp == NOT_SEEN:
            facts.first_timestamp = max_timestamp
        if facts.unindexed_bytes > self._limits.index_interval_bytes:
            # An entry names one batch, by its last offset: a reader expects it there. The time
            # entry beside it counts no batch behind that one: see `time_index`.
            if first_timestamp > facts.max_timestamp:
                facts.max_timestamp = first_timestamp
                facts.max_timestamp_offset = Offset(first_end - 1)
            self._add_index_entry(Offset(first_end - 1), position)
        if max_timestamp > facts.max_timestamp:
            facts.max_timestamp = max_timestamp
            facts.max_timestamp_offset = max_timestamp_offset
        facts.unindexed_bytes += size
        facts.record_count += record_count
        self.size = position + size
        self.next_offset = next_offset

    def repair(self) -> None:
        """After a failed append, cut off the bytes that reached the file."""
        assert self._file is not None, self.name
        if self._file.size() > self.size:
            self._file.truncate_to(self.size)
        self.ahead_end = 0

    def write_ahead(self, end: int) -> None:
        """Fill the file with zeros from the last batch up to `end`. Durable after `sync_log`.

        The next batches overwrite blocks that the file has already, which makes their sync
        cheaper. Nobody may append meanwhile. On an `OSError` there may be fewer zeros.
        """
        assert self._file is not None, self.name
        assert not self._is_frozen, self.name
        position, self.ahead_end = self.size, end  # before the first zero: an interrupt may come
        while position < end:
            count = min(end - position, len(_ZEROS))
            write_all(self._file, position, _ZEROS[:count])
            position += count

    def trim(self) -> None:
        """Let the file end with its last batch. Durable after `sync_log`."""
        if self.ahead_end > self.size:
            assert self._file is not None, self.name
            self._file.truncate_to(self.size)
        self.ahead_end = 0

    def restore_to(self, next_offset: Offset) -> None:
        """After an append that was interrupted, end at `next_offset` again.

        Bytes, index entries and facts past it are removed. The facts are empty then: walk it.
        """
        self.repair()
        position = self.reader().locate(next_offset, self.hint(next_offset))
        self.truncate_to(FilePosition(self.size) if position is None else position, next_offset)

    def _add_index_entry(self, last_offset: Offset, position: FilePosition) -> None:
        facts = self.facts
        if not self.is_index_full:
            self.offset_index.add(last_offset, position)
            if self.time_index.add(
                facts.max_timestamp,
                Offset(max(facts.max_timestamp_offset, self.base_offset)),
            ):
                facts.indexed_timestamp = facts.max_timestamp
            self._unflushed_entries += 1
            self._note_index_room()
        facts.unindexed_bytes = 0

    @property
    def has_many_unflushed(self) -> bool:
        """Whether `flush_index` has something to do."""
        return self._unflushed_entries >= _UNFLUSHED_ENTRIES_MAX

    def flush_index(self, *, at_least: int = _UNFLUSHED_ENTRIES_MAX) -> None:
        """Write the index entries for other processes, once there are enough of them."""
        if self._unflushed_entries >= at_least:
            self.offset_index.flush()
            self.time_index.flush()
            self._unflushed_entries = 0

    def sync_log(self) -> None:
        """Make the batches durable. The name of the file needs a sync of the directory."""
        if self._file is not None:
            self._rewrite_distrusted()
            self._file.sync()

    @property
    def sync_descriptor(self) -> int | None:
        """The descriptor, if `sync_log` is no more than its fdatasync; else None."""
        file = self._file
        if file is None or self._distrusted_from is not None or not file.syncs_by_descriptor:
            return None
        return file.fileno()

    def sync_index(self) -> None:
        """Make the entries so far durable."""
        self.offset_index.sync()
        self.time_index.sync()
        self.transaction_index.sync()
        self._unflushed_entries = 0

    def complete_time_index(self) -> bool:
        """Add the segment's largest timestamp to the time index; True if it was missing.

        Kafka and we read the last entry of a closed log as its largest timestamp.
        """
        timestamp, offset = self.largest_timestamp
        if not self.size or timestamp <= NO_TIMESTAMP:
            return False
        return self.time_index.add(timestamp, offset, force=True)

    def freeze(self) -> None:
        """Take no more batches. The time index gets the segment's largest timestamp.

        The file must end with its last batch: see `trim`.
        """
        assert self.ahead_end <= self.size, self.name
        self.complete_time_index()
        self._is_frozen = True

    def seal(self) -> None:
        """Make a frozen segment durable and give its files to the cache of open files."""
        self.sync_log()
        self.seal_indexes()

    def seal_indexes(self) -> None:
        """The second half of `seal`. The log file is durable; if this fails, repeat it."""
        assert self._is_frozen, self.name
        self.offset_index.seal()
        self.time_index.seal()
        self.transaction_index.seal()
        self._file = None

    # --- results of a walk -----------------------------------------------------------------

    def index_walked(self, decoder: BatchDecoder, count: int, chunk_position: int) -> None:
        """Add the first `count` batches that a walk found to the indexes and the facts."""
        offset_entries, time_entries = bytearray(8 * count), bytearray(12 * count)
        words = self.facts.words()
        offset_size, time_size = batch_scan.index_batches(
            decoder.rows,
            count,
            chunk_position,
            self.base_offset,
            self._limits.index_interval_bytes,
            words,
            offset_entries,
            time_entries,
        )
        self.facts = SegmentFacts.of_words(words)
        if self.is_index_full:
            return
        fitting = fitting_entries(
            memoryview(offset_entries)[:offset_size],
            memoryview(time_entries)[:time_size],
            offset_room=self.offset_index.room,
            time_room=self.time_index.room,
        )
        self.offset_index.extend(fitting.offset_entries)
        self.time_index.extend(fitting.time_entries)
        self._unflushed_entries += len(fitting.offset_entries) // 8
        self._note_index_room()

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
        self._note_index_room()

    def clear_facts(self) -> None:
        """Clear the indexes and the facts, before the whole file is walked."""
        self.offset_index.clear()
        self.time_index.clear()
        self.facts = SegmentFacts()
        self._largest = None
        self._note_index_room()

    # --- cutting -----------------------------------------------------------------------------

    def truncate_to(self, position: FilePosition, next_offset: Offset) -> None:
        """Cut at a batch boundary. Durable after `sync_log`."""
        assert self._file is not None, self.name
        self._file.truncate_to(position)
        self.ahead_end = 0
        self.offset_index.truncate_to(next_offset)
        self.time_index.truncate_to(next_offset)
        self.transaction_index.truncate_to(next_offset)
        self._boundaries = ()
        self.size = position
        self.next_offset = next_offset
        self.facts = SegmentFacts()
        self._note_index_room()

    def distrust_from(self, offset: Offset) -> None:
        """Treat the batches from `offset` on as not durable, even after a sync.

        A sync that failed, under the last owner or unnoticed, may have left pages that read well
        and count as clean. The next `sync_log` writes them again first.
        """
        known = self._distrusted_from
        self._distrusted_from = offset if known is None else min(known, offset)

    def _rewrite_distrusted(self) -> None:
        assert self._file is not None, self.name
        offset = self._distrusted_from
        if offset is None:
            return
        position: int | None = 0
        if offset > self.base_offset:
            try:
                position = self.reader().locate(offset, self.hint(offset))
            except CorruptSegmentError as error:
                position = error.position  # it begins with damage, which stays
        while position is not None and position < self.size:
            piece = self._file.read_at(position, min(_REWRITE_BYTES, self.size - position))
            write_all(self._file, position, piece)
            position += len(piece)
        self._distrusted_from = None

    def cut_tail(self, position: FilePosition) -> None:
        """Cut off bytes behind the last batch; indexes and facts do not change."""
        assert self._file is not None, self.name
        assert position == self.size, (position, self.size)
        self._file.truncate_to(position)
        self.ahead_end = 0

    def cut_frozen(self, next_offset: Offset) -> None:
        """Cut a segment that was just frozen, while its indexes may be on their way to disk.

        They then hold entries past the end: `needs_new_indexes` says so.
        """
        position = self.reader().locate(next_offset, self.hint(next_offset))
        if position is None:
            return
        file = self._fs.open_write(self.name)
        file.truncate_to(position)
        file.sync()
        self._boundaries = ()
        self.size = position
        self.next_offset = next_offset
        self.needs_new_indexes = True

    # --- reading -----------------------------------------------------------------------------

    def file(self) -> File:
        """The log file, opened if necessary. Keep the reference while reading."""
        file = self._file
        if file is None:
            with self._lock:
                file = self._file
                if file is None:
                    file = self._file = self._fs.open_read(self.name)
        if self._is_frozen and not self._is_retired:
            self._handles.touch(self)
        return file

    def file_at(self, position: int, length: int) -> File:
        """The log file, which has all its bytes."""
        return self.file()

    def allow_gaps(self) -> None:
        """Batches that are appended from here on need not start where the last one ended."""
        self._limits = replace(self._limits, is_dense=False)

    def reader(self, *, size: int | None = None) -> SegmentReader:
        return SegmentReader(
            self.file(),
            self.base_offset,
            self.size if size is None else size,
            offset_limit=self.offset_limit,
            is_dense=self._limits.is_dense,
        )

    def hint(self, offset: Offset) -> IndexHint:
        """A batch at or before the one that holds `offset`, from the index."""
        try:
            return self.offset_index.lookup(offset)
        except (FormatError, OSError):
            # Derived: without the index, reading takes longer.
            return self.base_offset, FilePosition(0)

    def boundary_before(self, offset: Offset) -> tuple[Offset, FilePosition] | None:
        """A batch that begins at or before `offset`: its first offset and its position.

        Of the places that readers were sent up to, who come back for what follows; None where
        none is known.
        """
        known = [boundary for boundary in self._boundaries if boundary[0] <= offset]
        return max(known) if known else None

    def note_boundary(self, offset: Offset, position: FilePosition) -> None:
        """Note that readers have seen everything before `offset` and will ask for the next batch.

        Kept for the active segment alone, which is read at its end.
        """
        if not self._is_frozen and (offset, position) not in self._boundaries:
            self._boundaries = (*self._boundaries[1 - _BOUNDARIES_KEPT :], (offset, position))

    def batches_of(self, key: bytes, *, size: int) -> list[FilePosition] | None:
        """Positions of batches that may hold `key`, from the key index; None if it cannot tell.

        `size` is that of the log file now: an index that was made from another is not asked.
        """
        if not self._is_frozen:
            return None
        found = self.key_index.batches_of(key, log_size=size)
        if found is not None:
            self._handles.touch(self)
        return found

    def build_key_index(self) -> int:
        """Build the key index of a sealed segment; return its entries."""
        assert self._is_frozen, self.name
        return self.key_index.build(self.reader(), self.base_offset, self.size)

    def release(self) -> None:
        """Close the files until the next read. See `HandleCache`."""
        if self._is_frozen and not self._is_retired and not self.offset_index.is_active:
            self._file = None
            self.offset_index.release()
            self.time_index.release()
            self.transaction_index.release()
            self.key_index.release()

    # --- leaving -----------------------------------------------------------------------------

    def retire(self) -> None:
        """Another segment will take the names: readers of this one keep its files.

        They stay open until nobody refers to this object any more.
        """
        self._is_retired = True
        self._handles.forget(self)
        self.file()
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.count  # noqa: B018  loads it

    def mark_deleted(self) -> list[str]:
        """Rename every file to `.deleted`; return the new paths. Readers keep what they hold."""
        marked: list[str] = []
        for kind in SEGMENT_KINDS:
            old, new = self.path(kind), self.path(kind, DELETED)
            try:
                self._fs.rename(old, new)
            except FileNotFoundError:
                continue
            marked.append(new)
        self._handles.forget(self)
        return marked

    def close(self) -> None:
        """Close files and maps; nothing is flushed."""
        self._is_frozen = True
        self._handles.forget(self)
        self._file = None
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()
        self.key_index.release()

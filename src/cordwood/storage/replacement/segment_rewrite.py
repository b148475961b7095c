"""A segment that is being rewritten, in `.cleaned` files next to those it will replace.

Nobody reads it before it has its final name. Until `finish` it is a log file without indexes;
`finish` reads the file back, verifies every checksum, builds the indexes and makes everything
durable. If a crash interrupts it, the next start removes it.
"""

import contextlib
import errno
import os
from typing import Final

from cordwood.errors import CorruptSegmentError
from cordwood.format import batch_scan
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder
from cordwood.format.file_names import CLEANED, FileKind, segment_file_name
from cordwood.format.index_entry import (
    AbortedTransaction,
)
from cordwood.quantities import MIB, NO_TIMESTAMP, FilePosition, Offset, TimestampMs
from cordwood.storage.files import Buffer, File, FileSystem, write_all
from cordwood.storage.indexes.offset_index import OffsetIndex
from cordwood.storage.indexes.time_index import TimeIndex, fitting_entries
from cordwood.storage.indexes.transaction_index import TransactionIndex
from cordwood.storage.log_file.segment_facts import SegmentFacts
from cordwood.storage.log_file.segment_reader import SegmentReader
from cordwood.storage.replacement.file_copy import copy_file
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from cordwood.storage.segment_parts.segment_names import SEGMENT_KINDS

_VERIFY_BYTES: Final = 1 * MIB
_BATCHES_PER_CHUNK: Final = 8192


class SegmentRewrite:
    """The files of one new segment. For one thread.

    kinds   the kinds of files that exist, once finished
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: Offset,
        *,
        limits: SegmentLimits,
        adopted: str | None = None,
    ) -> None:
        """Begin an empty segment, or take over the log file at `adopted` by moving it."""
        self.base_offset = base_offset
        self.size = 0
        self.kinds: list[FileKind] = []
        self._fs = fs
        self._directory = directory
        self._limits = limits
        self._aborted: list[AbortedTransaction] = []
        self.discard()  # leftovers of an earlier attempt
        if adopted is None:
            self._file = fs.create(self.path(FileKind.LOG))
        else:
            self._file = self._adopt(adopted)
            self.size = self._file.size()

    def _adopt(self, path: str) -> File:
        try:
            self._fs.rename(path, self.path(FileKind.LOG))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            copy_file(self._fs, path, self.path(FileKind.LOG))  # it is on another disk
        return self._fs.open_write(self.path(FileKind.LOG))

    def path(self, kind: FileKind, suffix: str = CLEANED) -> str:
        name = segment_file_name(self.base_offset, kind, suffix)
        return os.path.join(self._directory, name)

    def append(self, batches: Buffer) -> None:
        """Write whole batches at the end."""
        write_all(self._file, self.size, batches)
        self.size += len(batches)

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Index an aborted transaction whose marker was kept."""
        self._aborted.append(transaction)

    def sync_log(self) -> None:
        self._file.sync()

    def finish(self, *, modified_ms: int) -> int:
        """Verify, index and sync; return the number of records.

        The names are durable once the directory is synced.
        """
        offset_entries, time_entries, state = self._read_back()
        limit = self._limits.index_bytes_max
        offset_index = OffsetIndex.create(
            self._fs, self.path(FileKind.INDEX), self.base_offset, max_bytes=limit
        )
        time_index = TimeIndex.create(
            self._fs, self.path(FileKind.TIMEINDEX), self.base_offset, max_bytes=limit
        )
        # A full index is no problem: lookups beyond it start at its last entry.
        fitting = fitting_entries(
            memoryview(offset_entries),
            memoryview(time_entries),
            offset_room=offset_index.room,
            time_room=time_index.room,
        )
        offset_index.extend(fitting.offset_entries)
        offset_index.seal()
        time_index.extend(fitting.time_entries)
        if state[tables.S_MAX_TIMESTAMP] > NO_TIMESTAMP:
            time_index.add(
                TimestampMs(state[tables.S_MAX_TIMESTAMP]),
                Offset(max(state[tables.S_MAX_TIMESTAMP_OFFSET], self.base_offset)),
                force=True,
            )
        time_index.seal()
        self.kinds = [FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX]
        if self._aborted:
            self._write_aborted()
        self._file.close()
        # Retention depends on the age of the records, not on the time of compaction.
        self._fs.set_modified_ms(self.path(FileKind.LOG), modified_ms)
        return state[tables.S_RECORD_COUNT]

    def _write_aborted(self) -> None:
        index = TransactionIndex.open_active(
            self._fs, self.path(FileKind.TXNINDEX), self.base_offset
        )
        for transaction in self._aborted:
            index.append(transaction)
        index.seal()
        self.kinds.append(FileKind.TXNINDEX)

    def _read_back(self) -> tuple[bytearray, bytearray, list[int]]:
        reader = SegmentReader(self._file, self.base_offset, self.size)
        reader.decoder = BatchDecoder(batches_max=_BATCHES_PER_CHUNK)
        state = SegmentFacts().words()
        offset_entries, time_entries = bytearray(), bytearray()
        for first, stop in reader.chunks(
            FilePosition(0), self.base_offset, chunk_bytes=_VERIFY_BYTES
        ):
            assert first == 0, first
            offsets, times = bytearray(8 * stop), bytearray(12 * stop)
            offset_size, time_size = batch_scan.index_batches(
                reader.decoder.rows,
                stop,
                reader.chunk_position,
                self.base_offset,
                self._limits.index_interval_bytes,
                state,
                offsets,
                times,
            )
            offset_entries += memoryview(offsets)[:offset_size]
            time_entries += memoryview(times)[:time_size]
        if reader.position != self.size:
            raise CorruptSegmentError(
                self._file.name,
                reader.position,
                f"{self.size} bytes were written, but {reader.position} were read back",
                first_offset=reader.next_offset,
                next_offset=None,
            )
        return offset_entries, time_entries, state.tolist()

    def discard(self) -> None:
        """Remove all its files."""
        for kind in SEGMENT_KINDS:
            with contextlib.suppress(FileNotFoundError):
                self._fs.remove(self.path(kind))

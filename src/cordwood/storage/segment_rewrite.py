"""A segment being written anew, in `.cleaned` files beside the ones it will replace.

Nobody reads it before it takes its final name. Until `finish` it is a log file without indexes;
`finish` reads that file back, verifies every checksum, derives the indexes from what it read,
and makes all of it durable. Left over by a crash, it is thrown away at the next start.
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
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    AbortedTransaction,
)
from cordwood.quantities import MIB, NO_TIMESTAMP, FilePosition, Offset, TimestampMs
from cordwood.storage.file_copy import copy_file
from cordwood.storage.files import Buffer, File, FileSystem, write_all
from cordwood.storage.offset_index import OffsetIndex
from cordwood.storage.segment import SEGMENT_KINDS, SegmentLimits, new_walk_state
from cordwood.storage.segment_reader import SegmentReader
from cordwood.storage.time_index import TimeIndex
from cordwood.storage.transaction_index import TransactionIndex

_VERIFY_BYTES: Final = 1 * MIB
_BATCHES_PER_CHUNK: Final = 8192


class SegmentRewrite:
    """The files of one segment to come. For one thread.

    kinds   the files there are, once finished
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
        """Begin an empty one; or take over the log file at `adopted`, which is gone from there."""
        self.base_offset = base_offset
        self.size = 0
        self.kinds: list[FileKind] = []
        self._fs = fs
        self._directory = directory
        self._limits = limits
        self._aborted: list[AbortedTransaction] = []
        self.discard()  # what an earlier attempt may have left
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
            copy_file(self._fs, path, self.path(FileKind.LOG))  # it lies on another disk
        return self._fs.open_write(self.path(FileKind.LOG))

    def path(self, kind: FileKind, suffix: str = CLEANED) -> str:
        name = segment_file_name(self.base_offset, kind, suffix)
        return os.path.join(self._directory, name)

    def append(self, batches: Buffer) -> None:
        """Write whole batches at the end."""
        write_all(self._file, self.size, batches)
        self.size += len(batches)

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """The marker of an aborted transaction was kept: readers must still know of it."""
        self._aborted.append(transaction)

    def sync_log(self) -> None:
        self._file.sync()

    def finish(self, *, modified_ms: int) -> int:
        """Verify, index and sync; return how many records there are.

        The names are durable once the directory is synced.
        """
        offset_entries, time_entries, state = self._read_back()
        limit = self._limits.index_bytes_max
        offset_index = OffsetIndex.create(
            self._fs, self.path(FileKind.INDEX), self.base_offset, max_bytes=limit
        )
        # A full index is as good as a shorter one: lookups start at its last entry.
        offset_room = limit // OFFSET_ENTRY_SIZE * OFFSET_ENTRY_SIZE
        offset_index.extend(memoryview(offset_entries)[:offset_room])
        offset_index.seal()
        time_index = TimeIndex.create(
            self._fs, self.path(FileKind.TIMEINDEX), self.base_offset, max_bytes=limit
        )
        time_room = max(limit // TIME_ENTRY_SIZE - 1, 0) * TIME_ENTRY_SIZE
        time_index.extend(memoryview(time_entries)[:time_room])
        if state[tables.S_MAX_TIMESTAMP] > NO_TIMESTAMP and limit >= TIME_ENTRY_SIZE:
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
        # Retention goes by the age of what is in it, not by when it was compacted.
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
        state = new_walk_state()
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
                f"{self.size} bytes were written, {reader.position} read back",
                first_offset=reader.next_offset,
                next_offset=None,
            )
        return offset_entries, time_entries, state.tolist()

    def discard(self) -> None:
        """Remove whatever there is of it."""
        for kind in SEGMENT_KINDS:
            with contextlib.suppress(FileNotFoundError):
                self._fs.remove(self.path(kind))

"""The second pass of a distributed compaction: rewrite one group of segments into staging.

The filter of the store's own cleaner decides which records to keep, with a map of the keys of this
group: the group's newest offsets, and the newer offsets that Spark found in later groups. A
repeated task writes other files; only the files that its result names are swapped in.
"""

import os
import uuid
from array import array
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from cordwood.errors import DiskFullError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch_header import decode_batch_header
from cordwood.format.index_entry import AbortedTransaction
from cordwood.log.compaction import record_filter
from cordwood.log.compaction.batch_filter import RECORDS_PER_RUN, BatchFilter
from cordwood.log.compaction.compaction_transactions import TransactionWalk, WalkState
from cordwood.log.compaction.compaction_walk import map_chunk
from cordwood.log.compaction.key_map import KeyMap
from cordwood.log.inbox.staging_run import mark_staging
from cordwood.log.inbox.store_change import StagedSegment
from cordwood.quantities import INT32_MAX, Offset, TimestampMs
from cordwood.spark.jobs.compaction.group_plan import GroupPlan
from cordwood.spark.jobs.compaction.group_walk import RunSecret, chunks_of, new_key_map, open_group
from cordwood.storage.disk.file_access import FileAccess
from cordwood.storage.files import File, FileSystem, RealFileSystem, write_all
from cordwood.value_class import dataclass

SEGMENT_BYTES_MAX: Final = INT32_MAX  # positions in an offset index are 32 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedGroup:
    """Result of the first pass: the number of keys, and the transactions up to here."""

    key_count: int
    before: WalkState


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenGroup:
    """The result of a group. `files` lie in its staging directory; none if it is unchanged."""

    number: int
    files: tuple[StagedSegment, ...]
    aborted: tuple[AbortedTransaction, ...]
    records_read: int
    records_kept: int
    keyless_dropped: int
    bytes_read: int
    bytes_written: int


def rewrite_group(
    group: GroupPlan,
    run: RunSecret,
    scanned: ScannedGroup,
    superseded: Iterable[pa.RecordBatch],
    *,
    segment_bytes_max: int = SEGMENT_BYTES_MAX,
) -> RewrittenGroup:
    """Write the kept records of the group.

    `superseded` has a row (low, high, newest) for each key of the group that has a newer record
    after it.
    """
    newest = _newest_keys(group, run, scanned.key_count, superseded)
    return filter_group(group, run, newest, scanned.before, segment_bytes_max=segment_bytes_max)


def filter_group(
    group: GroupPlan,
    run: RunSecret,
    newest: KeyMap,
    before: WalkState,
    *,
    segment_bytes_max: int = SEGMENT_BYTES_MAX,
) -> RewrittenGroup:
    """Write the records of the group that `newest` leaves. `before` are the transactions so far."""
    fs = RealFileSystem(FileAccess.of_partition(group.directory))
    fs.make_directory(group.staging)
    if run.run_id:
        mark_staging(fs, group.staging, run.run_id)
    if fs.free_bytes(group.staging) < group.size:
        raise DiskFullError(group.staging)
    batch_filter = BatchFilter(
        newest,
        TransactionWalk(group.aborted, before),
        retained=group.retained,
        marker_epochs=dict(group.marker_epochs),
        now_ms=TimestampMs(run.now_ms),
        delete_retention_ms=group.delete_retention_ms,
    )
    writer = StagedLogs(fs, group.staging, Offset(group.start), bytes_max=segment_bytes_max)
    try:
        for decoder, first, stop in chunks_of(open_group(group, fs)):
            batch_filter.take(decoder, first, stop, writer.write)
        is_changed = batch_filter.has_changed or len(group.segments) > 1
        files = writer.finish() if is_changed else ()
    finally:
        writer.close()
    if not is_changed:
        writer.discard()
    counts = batch_filter.counts
    return RewrittenGroup(
        number=group.number,
        files=files,
        aborted=tuple(batch_filter.aborted),
        records_read=counts[record_filter.COUNT_READ],
        records_kept=counts[record_filter.COUNT_KEPT],
        keyless_dropped=counts[record_filter.COUNT_KEYLESS],
        bytes_read=group.size,
        bytes_written=sum(file.size for file in files),
    )


def _newest_keys(
    group: GroupPlan, run: RunSecret, key_count: int, superseded: Iterable[pa.RecordBatch]
) -> KeyMap:
    """The newest offset of each key of the group, anywhere in the dirty part of the log."""
    key_map = new_key_map(run.secret, key_count_max=key_count, start_offset=group.first_dirty)
    if group.stop > group.first_dirty:
        walk = TransactionWalk(group.aborted)
        table = array("q", bytes(8 * tables.RECORD_ROW * RECORDS_PER_RUN))
        for decoder, first, stop in chunks_of(open_group(group)):
            map_chunk(key_map, decoder, first, stop, walk, table)
    for batch in superseded:
        _put_hashed(key_map, batch)
    key_map.pass_to(group.upper)
    return key_map


def _put_hashed(key_map: KeyMap, batch: pa.RecordBatch) -> None:
    """Enter keys known only by their hashes. Their offsets are newer than any in the map."""
    count = batch.num_rows
    hashes = array("Q", bytes(16 * count))
    hashes[0::2] = _words(batch, "low", "Q")
    hashes[1::2] = _words(batch, "high", "Q")
    table = array("q", bytes(8 * tables.RECORD_ROW * count))  # sizes of 0 mark the keys as present
    table[tables.R_OFFSET :: tables.RECORD_ROW] = _words(batch, "newest", "q")
    taken = key_map.put_hashed(hashes, table, count)
    assert taken == count, (taken, count)


def _words(batch: pa.RecordBatch, name: str, kind: str) -> "array[int]":
    column = batch.column(name)
    buffer = column.buffers()[1]
    assert column.null_count == 0, name
    assert buffer is not None, name
    start = 8 * column.offset
    words = array(kind)
    words.frombytes(memoryview(buffer)[start : start + 8 * len(column)])
    return words


class StagedLogs:
    """Log files in a staging directory: one, or more if it exceeds the size of a segment."""

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: Offset, *, bytes_max: int
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._bytes_max = bytes_max
        self._attempt = uuid.uuid4().hex
        self._staged: list[StagedSegment] = []
        self._file: File
        self._open(base_offset)

    def _open(self, base_offset: Offset) -> None:
        name = f"{base_offset:020d}-{self._attempt}.log"
        self._file = self._fs.create(os.path.join(self._directory, name))
        self._name, self._base_offset, self._size = name, base_offset, 0

    def write(self, batches: memoryview) -> None:
        """Append whole batches."""
        if self._size + len(batches) <= self._bytes_max:
            self._append(batches)
            return
        at = 0
        while at < len(batches):
            header = decode_batch_header(batches, at)
            if self._size and self._size + header.size > self._bytes_max:
                self._seal()
                self._open(header.base_offset)
            self._append(batches[at : at + header.size])
            at += header.size

    def _append(self, batches: memoryview) -> None:
        write_all(self._file, self._size, batches)
        self._size += len(batches)

    def _seal(self) -> None:
        self._file.sync()
        self._file.close()
        self._staged.append(
            StagedSegment(name=self._name, base_offset=self._base_offset, size=self._size)
        )

    def finish(self) -> tuple[StagedSegment, ...]:
        """Sync all files; return them."""
        self._seal()
        self._fs.sync_directory(self._directory)
        return tuple(self._staged)

    def close(self) -> None:
        """Close the file. May be called again."""
        self._file.close()

    def discard(self) -> None:
        """Remove the written files."""
        for name in (*(file.name for file in self._staged), self._name):
            path = os.path.join(self._directory, name)
            if self._fs.exists(path):
                self._fs.remove(path)

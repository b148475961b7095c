"""Snapshots of producer state: written at an offset, loaded at start, completed by replay.

A snapshot file is named by the offset up to which it is valid. It is derived: if snapshots are
lost, the replay takes longer.
"""

import logging
import os
from collections.abc import Sequence

from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder, BatchInfo
from cordwood.format.batch_header import TRANSACTIONAL, advance_sequence
from cordwood.format.control_record import ControlType, control_type_of, decode_marker
from cordwood.format.file_names import FileKind, segment_file_name
from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.small_files.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from cordwood.log.reading.segment_list import SegmentList
from cordwood.log.rules.producer_entry import NO_COORDINATOR_EPOCH
from cordwood.log.rules.producer_state import (
    BatchFacts,
    MarkerFacts,
    ProducerStates,
    plan_stray_snapshots,
)
from cordwood.quantities import MIB, NO_PRODUCER_ID, NO_SEQUENCE, Offset, ProducerId, TimestampMs
from cordwood.storage.files import FileSystem, read_whole, write_all
from cordwood.storage.segment_parts.readable_segment import ReadableSegment

logger = logging.getLogger(__name__)

_SNAPSHOT_BYTES_MAX = 256 * MIB  # five million producers
# What is read to find the last batches of one producer, once after a restart.
_RECALLED_BYTES = 4 * MIB
_RECALLED_RECORDS = 10_000


def snapshot_path(directory: str, offset: Offset) -> str:
    return os.path.join(directory, segment_file_name(offset, FileKind.SNAPSHOT))


def write_snapshot(fs: FileSystem, directory: str, states: ProducerStates, *, sync: bool) -> str:
    """Save the state at its end offset. Without `sync` it may not survive a power cut."""
    path = snapshot_path(directory, states.map_end_offset)
    file = fs.create(path, exclusive=False)
    try:
        write_all(file, 0, encode_producer_snapshot(states.to_snapshot()))
        if sync:
            file.sync()
    finally:
        file.close()
    states.last_snapshot_offset = states.map_end_offset
    return path


def sync_snapshot(fs: FileSystem, path: str) -> None:
    """Make a snapshot durable, if it still exists."""
    try:
        file = fs.open_write(path)
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()


def remove_strays(
    fs: FileSystem, directory: str, snapshots: Sequence[Offset], segments: Sequence[Offset]
) -> None:
    for offset in plan_stray_snapshots(snapshots, segments):
        remove_snapshot(fs, directory, offset)


def remove_snapshot(fs: FileSystem, directory: str, offset: Offset) -> None:
    try:
        fs.remove(snapshot_path(directory, offset))
    except FileNotFoundError:
        return


def read_snapshot(fs: FileSystem, directory: str, offset: Offset) -> list[ProducerSnapshotEntry]:
    """The content of the snapshot at `offset`. Raises `FormatError` if it is damaged."""
    path = snapshot_path(directory, offset)
    return decode_producer_snapshot(read_whole(fs, path, limit=_SNAPSHOT_BYTES_MAX))


def load_newest(
    fs: FileSystem,
    directory: str,
    snapshots: Sequence[Offset],
    *,
    log_start: Offset,
    log_end: Offset,
    newest: Offset | None = None,
    now_ms: TimestampMs,
) -> ProducerStates:
    """The state of the newest valid snapshot within the log, or an empty state at its start.

    Snapshots beyond `newest` are left alone: what lies before them is to be replayed too.
    """
    for offset in sorted(snapshots, reverse=True):
        path = snapshot_path(directory, offset)
        if offset > log_end:
            fs.remove(path)
            continue
        if newest is not None and offset > newest:
            continue
        if offset < log_start:
            break
        try:
            entries = read_snapshot(fs, directory, offset)
        except FormatError as error:
            logger.warning("removing producer snapshot %s: %s", path, error)
            fs.remove(path)
            continue
        states = ProducerStates.from_snapshot(entries, end_offset=offset, now_ms=now_ms)
        states.last_snapshot_offset = offset
        return states
    states = ProducerStates(end_offset=log_start)
    states.last_snapshot_offset = Offset(log_start - 1)
    return states


def replay(states: ProducerStates, segments: SegmentList, end: Offset) -> None:
    """Apply the batches between the snapshot and the end of the log.

    Aborted transactions found on the way go into the transaction index of active segments.
    Stretches that cannot be read are passed over: recovery has reported them.
    """
    offset = max(states.map_end_offset, segments.first_offset)
    for index in range(segments.floor(offset), len(segments)):
        segment = segments[index]
        reader = segment.reader()
        try:
            position = reader.locate(offset, segment.hint(offset))
        except CorruptSegmentError as error:
            position = (
                reader.locate(error.next_offset, segment.hint(error.next_offset))
                if (error.next_offset is not None)
                else None
            )
        while position is not None:
            try:
                for first, stop in reader.chunks(position, reader.next_offset, start_offset=offset):
                    apply_batches(states, segment, reader.decoder, first, stop)
                position = None
            except CorruptSegmentError as error:
                following = reader.resume_after(error.position + 1, error.first_offset)
                if following is None:
                    break
                position = reader.locate(following.base_offset, segment.hint(following.base_offset))
    states.advance_to(end)


def find_older(
    segments: SegmentList, producer_id: ProducerId, *, before: Offset
) -> list[BatchFacts]:
    """The batches of one producer that lie shortly before `before`, in their order.

    Reads a few megabytes at most, of one segment. What cannot be read is not found.
    """
    segment = segments[max(segments.floor(Offset(before - 1)), 0)]
    reader = segment.reader()
    found: list[BatchFacts] = []
    count = _RECALLED_RECORDS
    try:
        located = reader.locate(before, segment.hint(before))
        end = segment.size if located is None else located
        while True:
            start = Offset(max(before - count, segment.base_offset))
            position = reader.locate(start, segment.hint(start))
            if position is None or end - position <= _RECALLED_BYTES or count == 1:
                break
            count //= 2
        if position is None:
            return found
        walk = reader.chunks(position, reader.next_offset, start_offset=start, stop_offset=before)
        for first, stop in walk:
            for index in range(first, stop):
                batch = reader.decoder.batch(index)
                if batch.producer_id == producer_id and not batch.is_control:
                    found.append(facts_of(batch))
    except (CorruptSegmentError, OSError) as error:
        logger.warning("batches before offset %d cannot be read: %s", before, error)
    return found


def apply_batches(
    states: ProducerStates, segment: ReadableSegment, decoder: BatchDecoder, first: int, stop: int
) -> None:
    """Apply batches [first, stop) of `decoder`, which lie in `segment`, without checking them."""
    row, column = tables.BATCH_ROW, tables.B_PRODUCER_ID
    ids = decoder.rows[first * row + column : stop * row : row]
    if not ids or max(ids) == NO_PRODUCER_ID:
        return
    for index in range(first, stop):
        batch = decoder.batch(index)
        if batch.producer_id == NO_PRODUCER_ID:
            continue
        if not batch.is_control:
            states.update(facts_of(batch))
            continue
        marker = marker_in(decoder, index)
        if marker is not None:
            finish_marker(states, segment, marker)


def facts_of(batch: BatchInfo) -> BatchFacts:
    """The facts of a stored batch that concern its producer."""
    return BatchFacts(
        producer_id=ProducerId(batch.producer_id),
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        last_sequence=(
            NO_SEQUENCE
            if batch.base_sequence == NO_SEQUENCE
            else advance_sequence(batch.base_sequence, batch.last_offset_delta)
        ),
        first_offset=batch.base_offset,
        last_offset=Offset(batch.next_offset - 1),
        max_timestamp=batch.max_timestamp,
        is_transactional=bool(batch.attributes & TRANSACTIONAL),
    )


def marker_in(decoder: BatchDecoder, index: int) -> MarkerFacts | None:
    """The transaction end in a control batch; None for other control records.

    Compaction empties the batch of a marker when the records of its transaction are gone. Such a
    batch still ends the transaction: a snapshot from before the compaction has it open. Whether
    it was aborted no longer matters.
    """
    batch = decoder.batch(index)
    records = decoder.parse(index).records() if batch.record_count else []
    kind, coordinator_epoch = ControlType.COMMIT, NO_COORDINATOR_EPOCH
    if records:
        key, value = records[0].key or b"", records[0].value or b""
        kind = control_type_of(key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        try:
            coordinator_epoch = decode_marker(key, value).coordinator_epoch
        except FormatError as error:
            logger.warning("the marker at offset %d is incomplete: %s", batch.base_offset, error)
    return MarkerFacts(
        producer_id=ProducerId(batch.producer_id),
        producer_epoch=batch.producer_epoch,
        coordinator_epoch=coordinator_epoch,
        offset=Offset(batch.next_offset - 1),
        timestamp=batch.max_timestamp,
        is_abort=kind is ControlType.ABORT,
    )


def finish_marker(states: ProducerStates, segment: ReadableSegment, marker: MarkerFacts) -> None:
    """A marker was written: close its transaction, and index it if it was aborted."""
    completed = states.append_marker(marker)
    if completed is None:
        return
    index = segment.indexes.transaction
    # A replay may begin before the entries that survived.
    if completed.is_aborted and index.is_active and completed.last_offset > index.last_offset:
        index.append(
            AbortedTransaction(
                producer_id=completed.producer_id,
                first_offset=completed.first_offset,
                last_offset=completed.last_offset,
                last_stable_offset=states.last_stable_offset_after(completed),
            )
        )
    states.complete(completed)

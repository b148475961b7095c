"""The end of a segment as a segment of its own.

Replicas roll their segments at different offsets, so an archive that another leader made may end
inside of a segment of this one. What follows is written to a file of its own, and its indexes are
built again, as recovery does it. Batches are the same in all replicas, so the archive ends between
two of them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cordwood.errors import StorageError
from cordwood.format.file_names import FileKind, segment_file_name
from cordwood.log.partition.state.log_parts import segment_limits
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import MIB, FilePosition, Offset, TimestampMs
from cordwood.storage.files import FileSystem, make_durable_directory, write_all
from cordwood.storage.recovery import walk_segment
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.handle_cache import HandleCache

_PIECE_BYTES: Final = 4 * MIB


@contextmanager
def segment_tail(
    fs: FileSystem,
    directory: str,
    segment: Segment,
    start: Offset,
    end: Offset,
    *,
    config: TopicConfig,
    allows_gaps: bool,
    now_ms: TimestampMs,
) -> Iterator[Segment]:
    """The batches of `segment` from `start` on, sealed, in `directory`, which is removed after.

    Raises `StorageError` if no batch begins at `start`.
    """
    position, begins_at = _place_of(segment, start)
    if position is None or begins_at != start:
        raise StorageError(
            f"{segment.name}: the archive ends at offset {start}, inside of a batch that begins at "
            f"{begins_at}; the archive and this replica have different batches"
        )
    make_durable_directory(fs, directory)
    try:
        size = segment.size - position
        _write_rest(fs, segment, position, os.path.join(directory, _name(start, FileKind.LOG)))
        tail = Segment.open_sealed(
            fs,
            directory,
            start,
            size=size,
            next_offset=start,
            handles=HandleCache(),
            limits=segment_limits(config, allows_gaps=allows_gaps),
            is_last=True,
        )
        tail.activate(now_ms=now_ms)
        try:
            walk_segment(tail, start, lambda _decoder, _first, _stop: None)
            if tail.size != size or tail.next_offset > end:
                raise StorageError(
                    f"{segment.name} is damaged: {tail.size} of {size} bytes from offset {start} "
                    "on are sound"
                )
            for aborted in segment.indexes.transaction.entries():
                if aborted.last_offset >= start:
                    tail.indexes.transaction.append(aborted)
            tail.freeze()
            tail.seal()
            fs.set_modified_ms(tail.path(FileKind.LOG), segment.modified_ms())
            yield tail
        finally:
            tail.close()
    finally:
        fs.remove_tree(directory)


def _place_of(segment: Segment, offset: Offset) -> tuple[FilePosition | None, Offset]:
    """Where the batch that holds `offset` begins, in bytes and in offsets."""
    reader = segment.reader()
    position = reader.locate(offset, segment.hint(offset))
    return position, reader.next_offset


def _write_rest(fs: FileSystem, segment: Segment, position: int, path: str) -> None:
    source = fs.open_read(segment.path(FileKind.LOG))
    try:
        target = fs.create(path, exclusive=False)
        try:
            written = 0
            while position + written < segment.size:
                left = segment.size - position - written
                piece = source.read_at(position + written, min(_PIECE_BYTES, left))
                if not piece:
                    raise StorageError(f"{segment.name} is {left} bytes shorter than it should be")
                write_all(target, written, piece)
                written += len(piece)
        finally:
            target.close()
    finally:
        source.close()


def _name(offset: Offset, kind: FileKind) -> str:
    return segment_file_name(offset, kind)

"""Estimates the bytes between offsets from segment sizes and indexes.

Indexes are hints: the estimates plan work, and never decide what is read.
"""

from collections.abc import Iterator
from typing import Final

from cordwood.errors import FormatError
from cordwood.log.reading.log_reader import LogReader
from cordwood.quantities import INT64_MAX, FilePosition, Offset
from cordwood.spark.source.planning import Piece
from cordwood.storage.segment_parts.readable_segment import ReadableSegment

_UNCUT: Final = INT64_MAX
_GRAINS: Final = 8  # a limit in bytes is met to within an eighth


def pieces_between(log: LogReader, start: int, stop: int, *, target_bytes: int) -> Iterator[Piece]:
    """[start, stop) in pieces of about `target_bytes` at most, cut at segments and index entries.

    Index files are opened only for segments that are read in part or cut. An archived segment is
    cut by the number of its offsets: its index would cost the driver a request, and a task that
    reads a part of it fetches only that part.
    """
    segments = log.view().segments
    at = start
    for index in range(max(segments.floor(Offset(start)), 0), len(segments)):
        if at >= stop:
            return
        is_last = index == len(segments) - 1
        end = stop if is_last else min(stop, segments[index + 1].base_offset)
        if at < end:
            yield from _pieces_within(segments[index], at, end, target_bytes)
            at = end


def _pieces_within(
    segment: ReadableSegment, start: int, stop: int, target_bytes: int
) -> Iterator[Piece]:
    begin = 0 if start <= segment.base_offset else segment.hint(Offset(start))[1]
    is_to_its_end = stop >= segment.next_offset
    end = segment.size if is_to_its_end else segment.hint(Offset(stop))[1]
    at, position = start, begin
    cuts = (
        _even_cuts(start, stop, begin, end, target_bytes)
        if segment.is_archived
        else _cuts(segment, begin, end, target_bytes)
    )
    for cut, cut_position in cuts:
        if at < cut < stop:
            yield Piece(start=at, stop=cut, size_bytes=cut_position - position)
            at, position = cut, cut_position
    yield Piece(start=at, stop=stop, size_bytes=max(end - position, 0))


def _even_cuts(
    start: int, stop: int, begin: int, end: int, step: int
) -> Iterator[tuple[Offset, int]]:
    """Offsets at even distances, as if all records were of one size."""
    parts = max(min((end - begin + step // 2) // step, stop - start), 1)
    for part in range(1, parts):
        yield (
            Offset(start + (stop - start) * part // parts),
            begin + (end - begin) * part // parts,
        )


def _cuts(
    segment: ReadableSegment, begin: int, end: int, step: int
) -> Iterator[tuple[Offset, int]]:
    """Offsets at intervals of about `step` bytes, with their approximate positions."""
    wanted = begin + step
    while wanted + step // 2 < end:
        try:
            last_offset = segment.indexes.offset.upper_bound(FilePosition(wanted), 0)
        except (FormatError, OSError):
            return  # only a hint: without it the pieces are larger
        if last_offset is None:
            return
        yield Offset(last_offset + 1), wanted
        wanted += step


def offset_behind(log: LogReader, start: int, stop: int, *, size_bytes: int) -> int:
    """The offset in (start, stop] about `size_bytes` after `start`, rounded down."""
    left = size_bytes
    grain = max(size_bytes // _GRAINS, 1)
    for piece in pieces_between(log, start, stop, target_bytes=grain):
        if piece.size_bytes > left and piece.start > start:
            return piece.start
        left -= piece.size_bytes
        if left <= 0:
            return piece.stop
    return stop


def size_between(log: LogReader, start: int, stop: int) -> int:
    """The approximate size of [start, stop) in bytes."""
    return sum(piece.size_bytes for piece in pieces_between(log, start, stop, target_bytes=_UNCUT))

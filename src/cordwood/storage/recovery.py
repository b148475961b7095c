"""Recovery of a log: finds its end, and what of it is torn or damaged.

`segment_files.tidy_directory` comes first. Each step can be repeated on the state that it leaves:

    walk_segment      re-reads one segment and rebuilds its indexes; changes no log file
    plan_recovery     decides from the walks, purely, what is a torn tail and what is damage

A torn tail is bytes at the end that were never acknowledged: they are cut off. Damage is
acknowledged bytes that changed: it is reported with its offsets, nothing after it is deleted,
and the log continues after it. Zeros behind the last batch, which were written ahead, are cut off
and are neither.
"""

import logging
from collections.abc import Callable, Sequence

from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_header import HEADER_SIZE, BatchHeader, decode_batch_header
from cordwood.quantities import NO_TIMESTAMP, FilePosition, Offset
from cordwood.storage.log_file.zero_tail import zeros_at_end
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.segment_times import is_true_entry
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Acknowledged records that cannot be read: offsets [first_offset, next_offset) of a log.

    The file is left as it is. Reading continues at `next_offset`.
    """

    path: str
    position: int
    first_offset: Offset
    next_offset: Offset
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path} is damaged at byte {self.position}: {self.reason}; "
            f"offsets [{self.first_offset}, {self.next_offset}) cannot be read"
        )


# --- batches ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BadStretch:
    """Bytes of a segment that are not valid batches. `next_offset` is None if none follow."""

    position: int
    first_offset: Offset
    next_offset: Offset | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The result of re-reading a segment. `end` and `next_offset` follow its last valid batch.

    `zero_bytes` are the zeros at the end of the file that belong to no batch.
    """

    path: str
    base_offset: Offset
    file_size: int
    end: FilePosition
    next_offset: Offset
    bad: tuple[BadStretch, ...]
    found_batches: bool
    zero_bytes: int = 0

    @property
    def is_untrimmed(self) -> bool:
        """Whether nothing but zeros lies between the last batch and where the next file begins.

        They were written ahead. The roll cut them off, and the cut was lost.
        """
        return not self._has_bad_tail and 0 < self.zero_bytes == self.file_size - self.end

    @property
    def _has_bad_tail(self) -> bool:
        return bool(self.bad) and self.bad[-1].next_offset is None

    @property
    def written_size(self) -> int:
        """The size of the file without the zeros at its end."""
        return self.file_size - self.zero_bytes


BatchVisitor = Callable[[BatchDecoder, int, int], None]


def walk_segment(segment: Segment, from_offset: Offset, visit: BatchVisitor) -> Walk:
    """Re-read an active segment from `from_offset` on, verify checksums, and rebuild its indexes.

    Synced indexes cover what comes before. The walk starts at the last index entry below
    `from_offset`, or at the start of the file if the indexes cannot be trusted. `visit` sees each
    run of valid batches.
    """
    file_size = segment.file().size()
    start, start_offset = _walk_start(segment, from_offset, file_size)
    reader = segment.reader(size=file_size)
    position, next_offset = start, start_offset
    end, end_offset = start, start_offset
    bad: list[BadStretch] = []
    found = False
    while True:
        try:
            for first, stop in reader.chunks(position, next_offset):
                assert first == 0, first  # batches are indexed in file order
                segment.indexes.add_walked(reader.decoder, stop, reader.chunk_position)
                visit(reader.decoder, first, stop)
                found = True
                end, end_offset = FilePosition(reader.position), reader.next_offset
        except CorruptSegmentError as error:
            bad.append(
                BadStretch(
                    position=error.position,
                    first_offset=error.first_offset,
                    next_offset=error.next_offset,
                    reason=error.reason,
                )
            )
            following = reader.resume_after(error.position + 1, error.first_offset)
            if following is None:
                break
            position = FilePosition(following.position)
            next_offset = following.base_offset
        else:
            break
    extent = segment.writer.extent
    extent.size, extent.next_offset = end, end_offset
    return Walk(
        path=segment.name,
        base_offset=segment.base_offset,
        file_size=file_size,
        end=end,
        next_offset=end_offset,
        bad=tuple(bad),
        found_batches=found or start > 0,
        zero_bytes=zeros_at_end(segment.file(), end, file_size),
    )


def rebuild_indexes(segment: Segment) -> None:
    """Rebuild the indexes of a sealed segment from its log file, which is not changed."""
    logger.warning("rebuilding the indexes of %s", segment.name)
    size, next_offset = segment.size, segment.next_offset
    segment.activate(now_ms=segment.modified_ms())
    walk_segment(segment, Offset(0), lambda _decoder, _first, _stop: None)
    extent = segment.writer.extent
    extent.size, extent.next_offset = size, next_offset
    segment.freeze()
    segment.seal()
    segment.indexes.needs_rebuilding = False


def _walk_start(
    segment: Segment, from_offset: Offset, file_size: int
) -> tuple[FilePosition, Offset]:
    """Drop index entries that cannot be trusted; return where reading starts."""
    if from_offset > segment.base_offset and _has_sane_indexes(segment, file_size):
        entry_offset, position = segment.indexes.offset.lookup(Offset(from_offset - 1))
        header = _header_at(segment, position)
        if (
            position > 0
            and header is not None
            and header.last_offset == entry_offset
            and _has_true_times(segment, entry_offset)
        ):
            segment.indexes.offset.truncate_to(Offset(entry_offset + 1))
            segment.indexes.time.truncate_to(Offset(entry_offset + 1))
            segment.indexes.transaction.truncate_to(from_offset)
            timestamp, offset = segment.indexes.time.last_entry
            first = _header_at(segment, FilePosition(0))
            segment.indexes.resume_walk(
                first_timestamp=NO_TIMESTAMP if first is None else first.max_timestamp,
                max_timestamp=timestamp,
                max_timestamp_offset=offset,
                record_count=header.base_offset - segment.base_offset,
            )
            return position, header.base_offset
    segment.indexes.clear()
    return FilePosition(0), segment.base_offset


def _has_sane_indexes(segment: Segment, file_size: int) -> bool:
    try:
        segment.indexes.offset.sanity_check(log_size=file_size)
        segment.indexes.time.sanity_check()
    except FormatError:
        return False
    return True


def _has_true_times(segment: Segment, last_offset: Offset) -> bool:
    """Whether the last time index entry up to `last_offset` matches the log."""
    segment.indexes.time.truncate_to(Offset(last_offset + 1))
    entry = segment.indexes.time.last_entry
    return entry[0] == NO_TIMESTAMP or is_true_entry(segment, entry)


def _header_at(segment: Segment, position: FilePosition) -> BatchHeader | None:
    try:
        return decode_batch_header(segment.file().read_at(position, HEADER_SIZE))
    except FormatError:
        return None


# --- the decision ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """What to do with the segments that were walked.

    kept          how many of them are kept; the others hold nothing that was acknowledged
    cut_position  where the last kept one is truncated; None: it is not
    end_offset    the end of the log, where it continues
    is_appendable whether the last kept segment can take more batches
    """

    kept: int
    cut_position: FilePosition | None
    end_offset: Offset
    is_appendable: bool
    damages: tuple[Damage, ...]


def plan_recovery(
    walks: Sequence[Walk], *, durable: Offset, is_durable_exact: bool, allows_gaps: bool
) -> RecoveryPlan:
    """Distinguish a torn tail from damage.

    Everything below `durable` was synced. `is_durable_exact`: nothing at or after it was ever
    acknowledged, so a bad stretch there, or a missing file, ends the log even if valid batches
    follow. Otherwise the batches that follow may have been acknowledged, and are kept.
    `allows_gaps`: compaction may have removed offsets between segments, and `durable` may be older
    than that, so a gap proves nothing.
    """
    damages: list[Damage] = []
    for number, walk in enumerate(walks):
        for bad in walk.bad:
            behind = bad.next_offset
            if behind is None:
                later = (w for w in walks[number + 1 :] if w.found_batches)
                behind = next((w.base_offset for w in later), None)
            is_promised = bad.first_offset < durable
            if not is_promised and (behind is None or is_durable_exact):
                return _cut(number, FilePosition(bad.position), bad.first_offset, damages)
            damages.append(
                Damage(
                    path=walk.path,
                    position=bad.position,
                    first_offset=bad.first_offset,
                    next_offset=Offset(max(behind or durable, bad.first_offset)),
                    reason=bad.reason,
                )
            )
        later_walks = walks[number + 1 :]
        if allows_gaps or not later_walks or not _has_gap(walk, later_walks[0]):
            continue
        has_batches_behind = any(later.found_batches for later in later_walks)
        if walk.next_offset >= durable and (is_durable_exact or not has_batches_behind):
            return _cut(number, walk.end, walk.next_offset, damages)
        damages.append(_missing(walk, walk.next_offset, later_walks[0].base_offset))
    last = walks[-1]
    has_bad_tail = bool(last.bad) and last.bad[-1].next_offset is None
    end_offset = Offset(max(last.next_offset, *(d.next_offset for d in damages), 0))
    if end_offset < durable:
        damages.append(_missing(last, end_offset, durable))
        end_offset = durable
    return RecoveryPlan(
        kept=len(walks),
        cut_position=None,
        end_offset=end_offset,
        is_appendable=not has_bad_tail and end_offset == last.next_offset,
        damages=tuple(damages),
    )


def _cut(
    number: int, position: FilePosition, end_offset: Offset, damages: list[Damage]
) -> RecoveryPlan:
    return RecoveryPlan(
        kept=number + 1,
        cut_position=position,
        end_offset=end_offset,
        is_appendable=True,
        damages=tuple(damages),
    )


def _has_gap(walk: Walk, following: Walk) -> bool:
    """Whether batches or whole files are missing before the next segment."""
    has_bad_tail = bool(walk.bad) and walk.bad[-1].next_offset is None
    return not has_bad_tail and walk.next_offset < following.base_offset


def _missing(last: Walk, end_offset: Offset, durable: Offset) -> Damage:
    return Damage(
        path=last.path,
        position=last.end,
        first_offset=end_offset,
        next_offset=durable,
        reason="the file ends before synced records",
    )

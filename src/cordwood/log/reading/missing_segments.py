"""Which segments of a log are missing, though nobody may have removed them.

A deletion moves the mapped mark of the start, or its checkpoint, before it removes a file. So a log
whose first file begins behind both has lost files. The segment manifest tells of those that
compaction has rewritten. `SegmentGaps` finds the others in the records.
"""

from collections.abc import Callable, Sequence

from cordwood.format.small_files.segment_manifest import Hole, SegmentManifest
from cordwood.quantities import INT64_MAX, Offset


def missing_segments(
    bases: Sequence[Offset],
    *,
    manifest: SegmentManifest | None,
    mark: Offset | None,
    checkpoint: Offset | None,
    end_of: Callable[[Offset], Offset],
) -> list[Hole]:
    """The holes of a log that has the segments `bases`. One at the front ends at the first of them.

    Without a `mark`, as in a directory that Kafka wrote, only the manifest proves a hole.
    `end_of` is that of `SegmentManifest.holes`.
    """
    start = Offset(max(mark or 0, checkpoint or 0))
    holes = [] if manifest is None else manifest.holes(bases, start=start, end_of=end_of)
    if bases and mark is not None and start < bases[0] and missing_front(holes, bases[0]) is None:
        holes.insert(0, Hole(start, bases[0]))
    return holes


def missing_front(holes: Sequence[Hole], first_base: Offset) -> Hole | None:
    """The hole before the first segment, if there is one."""
    return holes[0] if holes and holes[0].next == first_base else None


def gaps_end(manifest: SegmentManifest | None, *, was_compacted: bool) -> Offset:
    """From this offset on, a missing offset is damage."""
    if manifest is not None:
        return manifest.end
    return Offset(INT64_MAX if was_compacted else 0)

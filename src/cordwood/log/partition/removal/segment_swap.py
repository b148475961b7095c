"""Replaces segments by rewritten ones, so that a crash leaves either the old or the new.

    step  names                         after a crash, recovery leaves
    1     x.log.cleaned, old x.log      the old segments: `.cleaned` files are removed
    2     x.log.swap, old x.log         the new ones: they are complete and take their names
    3     x.log.swap, x.log.deleted     the new ones
    4     x.log, x.log.deleted          the new ones

Each step ends with a sync of the directory: names reach the disk in any order, and a later step
must not be on the disk without the one before it. Step 2 renames the highest base offset first. To
recovery, a `.cleaned` file means that the `.swap` files from its offset on are incomplete.
`storage/replacement/segment_files` states which segments count during each step.
"""

from collections.abc import Sequence

from cordwood.format.file_names import CLEANED, SWAP, SegmentFileName
from cordwood.storage.files import FileSystem
from cordwood.storage.replacement.segment_files import place_swaps
from cordwood.storage.replacement.segment_rewrite import SegmentRewrite
from cordwood.storage.segment import Segment


def announce(fs: FileSystem, directory: str, new: Sequence[SegmentRewrite]) -> None:
    """Step 2: from here on the new segments will replace the old ones, even after a crash."""
    for rewrite in sorted(new, key=lambda rewrite: rewrite.base_offset, reverse=True):
        for kind in rewrite.kinds:
            fs.rename(rewrite.path(kind, CLEANED), rewrite.path(kind, SWAP))
    fs.sync_directory(directory)


def replace(
    fs: FileSystem, directory: str, old: Sequence[Segment], new: Sequence[SegmentRewrite]
) -> list[str]:
    """Steps 3 and 4; return the paths of the files to unlink."""
    doomed = [path for segment in old for path in segment.handles.mark_deleted()]
    fs.sync_directory(directory)
    swaps = [
        SegmentFileName(base_offset=rewrite.base_offset, kind=kind, suffix=SWAP)
        for rewrite in new
        for kind in rewrite.kinds
    ]
    place_swaps(fs, directory, swaps)
    return doomed

"""Putting rewritten segments in the place of others, so that a crash leaves one or the other.

    step  names                         a crash then leaves, once recovery is through
    1     x.log.cleaned, old x.log      the old segments: `.cleaned` is thrown away
    2     x.log.swap, old x.log         the new ones: all of it is there, so it goes in
    3     x.log.swap, x.log.deleted     the new ones
    4     x.log, x.log.deleted          the new ones

Each step ends with a sync of the directory: names reach the disk in any order, and a later step
must not be there without the one before. In step 2 the highest base offset is renamed first,
because recovery takes a `.cleaned` file for a sign that the `.swap` files from its offset on are
not all there.
"""

from collections.abc import Sequence

from cordwood.format.file_names import CLEANED, NO_SUFFIX, SWAP, FileKind
from cordwood.storage.files import FileSystem
from cordwood.storage.segment import Segment
from cordwood.storage.segment_rewrite import SegmentRewrite


def announce(fs: FileSystem, directory: str, new: Sequence[SegmentRewrite]) -> None:
    """Step 2: from here on the new segments go in, whatever happens."""
    for rewrite in sorted(new, key=lambda rewrite: rewrite.base_offset, reverse=True):
        for kind in rewrite.kinds:
            fs.rename(rewrite.path(kind, CLEANED), rewrite.path(kind, SWAP))
    fs.sync_directory(directory)


def replace(
    fs: FileSystem, directory: str, old: Sequence[Segment], new: Sequence[SegmentRewrite]
) -> list[str]:
    """Steps 3 and 4; return the paths of what is to be unlinked."""
    doomed = [path for segment in old for path in segment.mark_deleted()]
    fs.sync_directory(directory)
    for rewrite in new:
        # Log files first: recovery takes an index beside a `.log.swap` for that of the old one.
        for kind in sorted(rewrite.kinds, key=lambda kind: kind is not FileKind.LOG):
            fs.rename(rewrite.path(kind, SWAP), rewrite.path(kind, NO_SUFFIX))
    fs.sync_directory(directory)
    return doomed

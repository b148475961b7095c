"""The names of the files of one segment."""

import os
from typing import Final

from cordwood.format.file_names import NO_SUFFIX, SWAP, FileKind, segment_file_name
from cordwood.quantities import Offset
from cordwood.value_class import dataclass

SEGMENT_KINDS: Final = (
    FileKind.LOG,
    FileKind.INDEX,
    FileKind.TIMEINDEX,
    FileKind.TXNINDEX,
    FileKind.KEYINDEX,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentNames:
    """Where the files of a segment lie. Those in `swapped` have the suffix `.swap`."""

    directory: str
    base_offset: Offset
    swapped: frozenset[FileKind] = frozenset()

    def path(self, kind: FileKind, suffix: str | None = None) -> str:
        """The path of a file, or the one it would have with `suffix`."""
        if suffix is None:
            suffix = SWAP if kind in self.swapped else NO_SUFFIX
        return os.path.join(self.directory, segment_file_name(self.base_offset, kind, suffix))

    @property
    def log(self) -> str:
        return self.path(FileKind.LOG)

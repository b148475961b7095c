"""One segment in an archive: its files, and the objects that hold them."""

from typing import Final

from cordwood.archive.manifests.block_sums import sums_size
from cordwood.format.file_names import FileKind
from cordwood.quantities import Offset, TimestampMs
from cordwood.value_class import dataclass

_PACKED: Final = "packed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """One file of a segment. A producer snapshot describes the end of the segment.

    `position` is where it begins in the packed object; None if it is an object of its own.
    """

    kind: FileKind
    size: int
    sha256: str
    position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSums:
    """The sums of the log file's blocks, at the beginning of the packed object: `block_sums`."""

    block_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCopy:
    """One archived segment. `next_offset` is where the segment after it begins."""

    copy_id: str
    base_offset: Offset
    next_offset: Offset
    first_timestamp: TimestampMs
    max_timestamp: TimestampMs
    max_timestamp_offset: Offset
    modified_ms: TimestampMs  # of the local log file: when the last batch was appended
    archived_ms: TimestampMs
    files: tuple[ArchivedFile, ...]
    sums: ArchivedSums | None = None  # without them, the log file can only be verified whole

    @property
    def size(self) -> int:
        """Bytes of the log file."""
        return self.file(FileKind.LOG).size

    def file(self, kind: FileKind) -> ArchivedFile:
        found = self.find(kind)
        assert found is not None, (self, kind)
        return found

    def find(self, kind: FileKind) -> ArchivedFile | None:
        return next((file for file in self.files if file.kind is kind), None)

    def object_name(self, kind: FileKind) -> str:
        """The object that holds the file of this kind."""
        file = self.find(kind)
        is_packed = file is not None and file.position is not None
        return self.packed_name if is_packed else self._name(kind.value)

    @property
    def packed_name(self) -> str:
        return self._name(_PACKED)

    def object_names(self) -> set[str]:
        """Every object of this copy."""
        names = {self.object_name(file.kind) for file in self.files}
        return names if self.sums is None else {*names, self.packed_name}

    def _name(self, extension: str) -> str:
        return f"{self.base_offset:020d}-{self.copy_id}.{extension}"

    @property
    def sums_size(self) -> int:
        """Bytes of the sums, from position 0 of the packed object on."""
        return 0 if self.sums is None else sums_size(self.size, self.sums.block_bytes)

    @property
    def packed_size(self) -> int:
        """Bytes of the packed object."""
        ends = [f.position + f.size for f in self.files if f.position is not None]
        return max([self.sums_size, *ends])

"""What a dump of a file is made of: lines, and at the end how far the file is sound."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cordwood.storage.files import File


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """What is asked of a dump. `limit` is of batches, or of records where these are shown."""

    start_offset: int = 0
    limit: int | None = None
    shows_records: bool = False
    shows_values: bool = False
    decodes_groups: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedFile:
    """A file to dump. `base_offset` is what its name says; None where that says nothing."""

    path: str
    file: File
    size: int
    base_offset: int | None


@dataclass(frozen=True, slots=True)
class DumpLine:
    """A line for people, and the same for programs; None where programs need none."""

    text: str
    fields: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Soundness:
    """How far a file is what it should be: the last thing a dump says.

    position   everything before is sound
    offset     the first that no sound record has; None where the file is not about offsets
    problem    what is wrong there; None: nothing, as far as was looked
    is_torn    the problem is what an interrupted write leaves, or one that is under way
    """

    position: int
    offset: int | None = None
    problem: str | None = None
    is_torn: bool = False
    remark: str = "the end of the file"

    @property
    def is_damaged(self) -> bool:
        return self.problem is not None and not self.is_torn

    def line(self) -> DumpLine:
        where = f"sound up to position {self.position}"
        if self.offset is not None:
            where += f", offset {self.offset}"
        text = f"{where}: {self.remark}" if self.problem is None else f"{where}; {self._then()}"
        fields = {
            "kind": "soundness",
            "position": self.position,
            "offset": self.offset,
            "problem": self.problem,
            "is_torn": self.is_torn,
        }
        return DumpLine(text, fields)

    def _then(self) -> str:
        return f"then: {self.problem}" + (
            " (torn: an interrupted write, or one under way)" if self.is_torn else ""
        )


Dump = Iterator[DumpLine | Soundness]

"""The parts of a dump: lines, and a final statement up to where the file is sound."""

from collections.abc import Iterator
from typing import Any

from cordwood.storage.files import File
from cordwood.value_class import dataclass

Fields = dict[str, Any]  # what JSON shows of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """What to show. `limit` counts batches, or records if records are shown."""

    start_offset: int = 0
    limit: int | None = None
    shows_records: bool = False
    shows_values: bool = False
    decodes_groups: bool = False
    decodes_transactions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedFile:
    """A file to dump. `base_offset` comes from its name; None if the name has none."""

    path: str
    file: File
    size: int
    base_offset: int | None


@dataclass(frozen=True, slots=True)
class DumpLine:
    """A line as text and as JSON fields; None for a line without JSON, such as a heading."""

    text: str
    fields: Fields | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Soundness:
    """Up to where a file is sound; the last line of a dump.

    position   all bytes before it are sound
    offset     the offset after the last sound record; None if the file has no offsets
    problem    what is wrong there; None: no problem found
    is_torn    the problem is the trace of an interrupted or ongoing write
    """

    position: int
    offset: int | None = None
    problem: str | None = None
    is_torn: bool = False
    remark: str = "end of file"

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
            " (torn: an interrupted or ongoing write)" if self.is_torn else ""
        )


Dump = Iterator[DumpLine | Soundness]

"""Where readers at the end of a log stopped: they come back for what follows."""

from typing import Final

from cordwood.quantities import FilePosition, Offset

_KEPT: Final = 8


class ReadBoundaries:
    """Batch boundaries in one segment. Any thread may ask and note; a lost note does no harm.

    is_open   takes notes; only for an active segment, which is read at its end
    """

    __slots__ = ("_known", "is_open")

    def __init__(self, *, is_open: bool = False) -> None:
        self.is_open = is_open
        self._known: tuple[tuple[Offset, FilePosition], ...] = ()

    def before(self, offset: Offset) -> tuple[Offset, FilePosition] | None:
        """A batch that begins at or before `offset`: its first offset and its position.

        None where none is known.
        """
        known = [boundary for boundary in self._known if boundary[0] <= offset]
        return max(known) if known else None

    def note(self, offset: Offset, position: FilePosition) -> None:
        """A reader has seen everything before `offset` and will ask for the batch at `position`."""
        if self.is_open and (offset, position) not in self._known:
            self._known = (*self._known[1 - _KEPT :], (offset, position))

    def forget(self) -> None:
        """The segment was cut: what was known may lie behind its end."""
        self._known = ()

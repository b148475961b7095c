"""The offset index of a segment: from an offset to a nearby position in the log file.

It is sparse: about one entry per `index.interval.bytes` of log, with a batch's last offset and
its position. A lookup returns a position at or before the wanted batch, and the reader continues
from there. If the index lost its end, or all entries, reading takes longer but stays correct:
below the first entry the answer is the start of the segment.
"""

from typing import Final

from cordwood.errors import FormatError
from cordwood.format import batch_scan
from cordwood.format.index_entry import (
    OFFSET_ENTRY,
    OFFSET_ENTRY_SIZE,
    OffsetEntry,
    decode_offset_entry,
    encode_offset_entry,
)
from cordwood.quantities import INT32_MAX, FilePosition, Offset
from cordwood.storage.indexes.entry_file import floor_slot
from cordwood.storage.indexes.entry_index import BoundedIndex

_RELATIVE_OFFSET: Final = 0  # fields of the entry, in order
_POSITION: Final = 1


class OffsetIndex(BoundedIndex):
    """Entries in strictly increasing order of offset and of position."""

    __slots__ = ()

    _ENTRY_SIZE = OFFSET_ENTRY_SIZE
    _LAYOUT = OFFSET_ENTRY
    _OFFSET_FIELD = _RELATIVE_OFFSET

    @property
    def last_offset(self) -> Offset:
        """Offset of the last entry; the base offset if there is none."""
        entries = self._file.entries
        if not entries:
            return self.base_offset
        position = len(entries) - OFFSET_ENTRY_SIZE
        relative_offset: int = OFFSET_ENTRY.unpack_from(entries, position)[_RELATIVE_OFFSET]
        if relative_offset < 0:
            decode_offset_entry(entries, position)  # raises with the reason
        return Offset(self.base_offset + relative_offset)

    def add(self, offset: Offset, position: FilePosition) -> None:
        """Add that the batch ending with `offset` starts at `position`. In memory: see `flush`.

        Raises `FormatError` if full, not after the last entry, or too far from the base.
        """
        entries = self._file.active
        if entries is None or len(entries) >= self._size_max:
            raise self._full_error()
        relative_offset = offset - self.base_offset
        if entries:
            last_at = len(entries) - OFFSET_ENTRY_SIZE
            if relative_offset <= OFFSET_ENTRY.unpack_from(entries, last_at)[_RELATIVE_OFFSET]:
                last_offset = self.last_offset
                raise FormatError(f"offset {offset} is not beyond the last entry's, {last_offset}")
        if 0 <= relative_offset <= INT32_MAX and 0 <= position <= INT32_MAX:
            entries += OFFSET_ENTRY.pack(relative_offset, position)
        else:  # raises with the reason
            encode_offset_entry(OffsetEntry(relative_offset=relative_offset, position=position))

    def lookup(self, offset: Offset) -> tuple[Offset, FilePosition]:
        """The last entry at or below `offset`; the start of the segment if there is none.

        The entry is only a hint: a damaged file may hold any number that is not negative.
        """
        relative_offset, position = batch_scan.floor_entry(
            self._file.entries, offset - self.base_offset
        )
        if relative_offset < 0 or position < 0:
            return self.base_offset, FilePosition(0)
        return Offset(self.base_offset + relative_offset), FilePosition(position)

    def around(self, offset: Offset) -> tuple[int, int, int, int, int]:
        """The entries between which the batch with `offset` lies. As `lookup`, they are hints.

        The last offset and the position of the last entry at or below `offset`, the same of the
        entry after it, and the position of the one after that. A position of 0 means that there
        is no such entry. One is made for every record that is looked up, so it is a tuple.
        """
        return batch_scan.entries_around(self._file.entries, self.base_offset, offset)

    def entry(self, slot: int) -> tuple[Offset, FilePosition]:
        """The entry in that slot, counted from 0; `IndexError` if there is none."""
        found = decode_offset_entry(*self._slot_at(slot))
        return Offset(self.base_offset + found.relative_offset), FilePosition(found.position)

    def upper_bound(self, position: FilePosition, size: int) -> Offset | None:
        """Offset of the first entry at or after `position` + `size`; None if there is none."""
        entries = self._file.entries
        slot = 1 + floor_slot(entries, OFFSET_ENTRY, _POSITION, position + size - 1)
        if slot >= len(entries) // OFFSET_ENTRY_SIZE:
            return None
        return self.entry(slot)[0]

    def position_beyond(self, offset: Offset) -> FilePosition | None:
        """A position at or behind the end of the batch that holds `offset`; None if unknown.

        The entry after the last one at or below `offset` names this batch or a later one, so the
        entry after that begins behind it.
        """
        entries = self._file.entries
        slot = 2 + floor_slot(entries, OFFSET_ENTRY, _RELATIVE_OFFSET, offset - self.base_offset)
        if slot >= len(entries) // OFFSET_ENTRY_SIZE:
            return None
        return self.entry(slot)[1]

    def sanity_check(self, *, log_size: int) -> None:
        """Raise `FormatError` unless the entries can be those of a log file of `log_size` bytes.

        Reads every entry: about 30 ms for the index of a 1 GiB segment.
        """
        self._file.check_size()
        last_offset = last_position = -1
        for relative_offset, position in OFFSET_ENTRY.iter_unpack(bytes(self._file.entries)):
            if relative_offset <= last_offset or position <= last_position:
                raise FormatError(
                    f"entry ({relative_offset}, {position}) follows "
                    f"({last_offset}, {last_position}): both must increase from 0 on"
                )
            last_offset, last_position = relative_offset, position
        if last_position >= log_size:
            raise FormatError(f"position {last_position} is past the log's {log_size} bytes")

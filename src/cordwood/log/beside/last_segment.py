"""The last segment of a log as a process sees it that does not own the log."""

from typing import Final

from cordwood.errors import CorruptSegmentError
from cordwood.log.rules.ahead_policy import PAGE_BYTES
from cordwood.quantities import Offset
from cordwood.storage.segment import Segment
from cordwood.storage.zero_tail import is_zeros

# Fewer zeros than these are not looked for: batches end with zeros, too.
_ZEROS_MIN: Final = 16


class LastSegment(Segment):
    """A segment whose file may end with zeros that its owner wrote ahead of the batches.

    file_size   bytes in the file when it was last looked at
    size        bytes of the batches up to `next_offset`; found when first asked for
    """

    file_size = 0
    _measured: tuple[int, Offset, int] | None = None  # file size, next offset, size

    @property
    def size(self) -> int:
        key = self.file_size, self.next_offset
        measured = self._measured
        if measured is None or measured[:2] != key:
            measured = self._measured = (*key, self._end_of_batches(*key))
        return measured[2]

    @size.setter
    def size(self, file_size: int) -> None:
        self.file_size = file_size

    @property
    def has_zeros(self) -> bool:
        """Whether the file ends with zeros, written ahead or not."""
        size = self.file_size
        return size >= _ZEROS_MIN and is_zeros(self.file(), size - _ZEROS_MIN, size)

    def _end_of_batches(self, file_size: int, next_offset: Offset) -> int:
        """Where the batches below `next_offset` end.

        A file with zeros ends with a page. A batch that is being written may reach across the size
        that was seen, so the last bytes there need not be zeros any more.
        """
        try:
            if file_size % PAGE_BYTES and not self.has_zeros:
                return file_size
            if next_offset <= self.base_offset:
                return 0
            last = Offset(next_offset - 1)
            reader = self.reader(size=file_size)
            position = reader.locate(last, self.hint(last))
            if position is None:
                return file_size
            for _ in reader.chunks(position, reader.next_offset, stop_offset=next_offset):
                pass
        except (CorruptSegmentError, FileNotFoundError):
            return file_size  # reading reports the damage, or finds the file gone
        return reader.position

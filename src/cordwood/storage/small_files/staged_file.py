"""Files of staged batches: written by a process with records, read by the owner of the log.

They are not synced. Nothing is acknowledged before the batches are in their logs, and checksums
detect a file that a power failure tore; its writer then writes it again.
"""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from cordwood.errors import FormatError, RecordTooLargeError
from cordwood.format.staged_batches import (
    END_SIZE,
    MAGIC,
    PlaceName,
    StagedIndex,
    decode_end,
    decode_index,
)
from cordwood.storage.files import Buffer, File, FileSystem, write_all


class StagedFileWriter:
    """Writes one file, by one thread. Without `finish` the file is not valid."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._file = fs.create(path)
        self._index = StagedIndex()
        self.size = len(MAGIC)
        try:
            write_all(self._file, 0, MAGIC)
        except BaseException:
            self._file.close()
            raise

    @property
    def batch_count(self) -> int:
        return self._index.batch_count

    def add(self, place: PlaceName, batch: Buffer) -> None:
        """Write one encoded batch after the others of its partition."""
        write_all(self._file, self.size, batch)
        self._index.add(place, self.size, len(batch))
        self.size += len(batch)

    def finish(self) -> int:
        """Write the index of the batches; return the size of the whole file."""
        end = self._index.encode(self.size)
        write_all(self._file, self.size, end)
        self.size += len(end)
        self.close()
        return self.size

    def close(self) -> None:
        self._file.close()


class StagedFile:
    """A finished file, opened for reading. For any thread.

    Raises `FormatError`, on opening or on reading a batch, if the file is damaged.
    """

    def __init__(self, fs: FileSystem, path: str, *, size: int) -> None:
        self.path = path
        self._file: File = fs.open_read(path)
        try:
            found = self._file.size()
            if found != size:
                raise FormatError(f"{path} has {found} bytes, not {size}")
            end = decode_end(self._file.read_at(max(size - END_SIZE, 0), END_SIZE), size)
            described = size - END_SIZE - end.index_position
            self._index = decode_index(end, self._file.read_at(end.index_position, described))
        except BaseException as error:
            self._file.close()
            error.add_note(f"in {path}")
            raise

    def sizes(self) -> dict[PlaceName, int]:
        """The bytes of batches for each partition."""
        return self._index.sizes()

    def batches(self, place: PlaceName, *, size_max: int) -> Iterator[memoryview]:
        """The batches of a partition, in order; each is writable, and valid until the next.

        Raises `RecordTooLargeError` for a batch larger than `size_max`, before allocating memory.
        """
        buffer = bytearray(0)
        for position, size in self._index.of(place):
            if size > size_max:
                raise RecordTooLargeError(size=size, limit=size_max)
            if len(buffer) < size:
                buffer = bytearray(size)
            view = memoryview(buffer)[:size]
            if self._file.read_into(position, view) != size:
                raise FormatError(f"{self.path} became shorter", position=position)
            yield view

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

"""The key index of one sealed segment: building its file, and lookups.

Building reads the segment once for each part of the hashes that fits in memory: once for most
segments, more often for one with very many small records. The file is renamed into place and not
synced: every part of it has a checksum, and an index damaged by a power failure is built again.
"""

import logging
from array import array
from typing import Final

from cordwood.errors import FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format import key_hashes
from cordwood.format.batch import BatchDecoder
from cordwood.format.key_index import (
    ENTRIES_PER_PAGE,
    ENTRY_SIZE,
    HEADER_SIZE,
    KeyIndexPages,
    encode_header,
    encode_pages,
)
from cordwood.quantities import KIB, FilePosition, Offset
from cordwood.storage.files import TEMPORARY_SUFFIX, FileSystem, write_all
from cordwood.storage.log_file.segment_reader import SegmentReader

logger = logging.getLogger(__name__)

# Entries in memory at a time; each takes 32 bytes, including the space to sort them.
_NOTES_MAX: Final = 2_000_000
_HASHES: Final = 1 << 64
_PARTS_MAX: Final = 16
_ROOM_MIN: Final = 4 * KIB


class KeyIndex:
    """Lookups in the index of one segment, opened on first use. For any thread."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._pages: KeyIndexPages | None = None
        self.is_damaged = False

    @property
    def path(self) -> str:
        return self._path

    def is_usable(self, log_size: int) -> bool:
        """Whether there is an index that was built from a log file of this size."""
        return not self.is_damaged and self._load(log_size) is not None

    def batches_of(self, key: bytes, *, log_size: int) -> list[FilePosition] | None:
        """Positions of the batches that may contain `key`, in order; None if unusable."""
        pages = self._load(log_size)
        if pages is None:
            return None
        try:
            return list(pages.batches_of(key))
        except FormatError as error:
            self._note_damage(error)
            return None

    def _load(self, log_size: int) -> KeyIndexPages | None:
        pages = self._pages
        if pages is None:
            try:
                file = self._fs.open_read(self._path)
                try:
                    pages = KeyIndexPages(file.map())
                finally:
                    file.close()
            except FileNotFoundError:
                return None
            except FormatError as error:
                self._note_damage(error)
                return None
            self._pages = pages
        return pages if pages.log_size == log_size else None

    def _note_damage(self, error: FormatError) -> None:
        if not self.is_damaged:
            logger.warning("%s is damaged and will be rebuilt: %s", self._path, error)
        self.is_damaged = True

    def release(self) -> None:
        """Unmap the file until the next lookup."""
        self._pages = None

    def remove(self) -> None:
        """Remove the index, because the log file is about to change."""
        self._pages = None
        try:
            self._fs.remove(self._path)
        except FileNotFoundError:
            return

    def build(self, reader: SegmentReader, base_offset: Offset, log_size: int) -> int:
        """Build the file from the segment that `reader` reads; return the number of entries.

        Raises `CorruptSegmentError` or `FormatError` if the segment cannot be read completely:
        an index of a part would hide keys.
        """
        notes = KeyNotes(_NOTES_MAX)
        start = FilePosition(0)
        parts = 1
        # The first pass counts the entries; usually it is the only one.
        while not notes.walk(reader, start, base_offset, last_hash=_HASHES // parts - 1):
            if parts < _PARTS_MAX:
                parts *= 2
            else:
                notes.limit *= 2
        temporary = self._path + TEMPORARY_SUFFIX
        file = self._fs.create(temporary, exclusive=False)
        try:
            position, count, rest = HEADER_SIZE, 0, bytearray()
            for part in range(parts):
                if part:
                    low = part * (_HASHES // parts)
                    high = low + _HASHES // parts - 1
                    while not notes.walk(
                        reader, start, base_offset, first_hash=low, last_hash=high
                    ):
                        notes.limit *= 2  # one key in very many batches: its entries stay together
                entries = notes.sorted_entries()
                count += len(entries) // ENTRY_SIZE
                rest += entries
                whole = len(rest) - len(rest) % (ENTRIES_PER_PAGE * ENTRY_SIZE)
                if part == parts - 1:
                    whole = len(rest)
                pages = encode_pages(memoryview(rest)[:whole])
                write_all(file, position, pages)
                position += len(pages)
                rest = rest[whole:]
            write_all(file, 0, encode_header(log_size=log_size, entry_count=count))
        finally:
            file.close()
        self._fs.rename(temporary, self._path)
        self._pages = None
        self.is_damaged = False
        return count


class KeyNotes:
    """Hashes of keys and the batches that contain them, in log order, in memory."""

    def __init__(self, limit: int) -> None:
        self.count = 0
        self.limit = limit
        self.hashes = array("Q", bytes(8 * _ROOM_MIN))
        self.positions = array("Q", bytes(8 * _ROOM_MIN))

    def walk(
        self,
        reader: SegmentReader,
        position: FilePosition,
        next_offset: Offset,
        *,
        first_hash: int = 0,
        last_hash: int = _HASHES - 1,
    ) -> bool:
        """Note only the keys from `position` on; False if there are too many."""
        self.count = 0
        for first, end in reader.chunks(position, next_offset):
            if not self.note_chunk(reader, first, end, first_hash=first_hash, last_hash=last_hash):
                return False
        return True

    def note_chunk(
        self,
        reader: SegmentReader,
        first: int,
        end: int,
        *,
        first_hash: int = 0,
        last_hash: int = _HASHES - 1,
    ) -> bool:
        """Note the keys of batches [first, end) of a chunk; False if there are too many."""
        decoder: BatchDecoder = reader.decoder
        wanted = sum(
            decoder.rows[
                first * tables.BATCH_ROW + tables.B_RECORD_COUNT : end * tables.BATCH_ROW : (
                    tables.BATCH_ROW
                )
            ]
        )
        self._make_room(self.count + wanted)
        batch = first
        for run in decoder.runs(first, end):
            count, batch = key_hashes.collect_keys(
                run,
                decoder.rows,
                batch,
                end,
                reader.chunk_position,
                first_hash,
                last_hash,
                self,
            )
            if count < 0:
                return False
            self.count = count
        return True

    def _make_room(self, wanted: int) -> None:
        room = min(max(wanted, 2 * len(self.hashes)), self.limit)
        if wanted > len(self.hashes) < room:
            more = bytes(8 * (room - len(self.hashes)))
            self.hashes.frombytes(more)
            self.positions.frombytes(more)

    def sorted_entries(self) -> memoryview:
        """The notes as entries of a key index."""
        count = self.count
        spare = array("Q", bytes(8 * count)), array("Q", bytes(8 * count))
        key_hashes.sort_keys(self.hashes, self.positions, count, *spare)
        out = bytearray(ENTRY_SIZE * count)
        kept = key_hashes.put_entries(self.hashes, self.positions, count, out)
        return memoryview(out)[: kept * ENTRY_SIZE]

    def batches_of(self, key: bytes) -> list[FilePosition]:
        """Positions of the batches that may contain `key`, in order; the notes are unsorted."""
        wanted = key_hashes.key_hash(key)
        found: list[FilePosition] = []
        at = key_hashes.last_note_of(self.hashes, self.count, wanted)
        while at >= 0:
            position = FilePosition(self.positions[at])
            if not found or found[-1] != position:
                found.append(position)
            at = key_hashes.last_note_of(self.hashes, at, wanted)
        found.reverse()
        return found

"""Reading one segment's log file, batch by batch, and getting past damage in it.

Everything that reads a log uses this: reading records, scans, time lookups, recovery. A batch is
returned only after its checksum was verified. If the file is damaged, the error says which offsets
cannot be read and where reading can go on; nothing is skipped silently.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format import batch_scan
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import DAMAGE_STOPS, BatchDecoder, BatchInfo, RecordRun, describe_stop
from cordwood.format.batch_header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    decode_batch_header,
)
from cordwood.quantities import INT32_MAX, INT64_MAX, KIB, MIB, FilePosition, Offset
from cordwood.storage.files import File
from cordwood.storage.log_file.torn_offset import torn_by
from cordwood.value_class import replace

_CHUNK_BYTES_MIN: Final = 32 * KIB
_CHUNK_BYTES_MAX: Final = 2 * MIB
_SEARCH_BYTES: Final = 1 * MIB
_CONFIRMATIONS_MAX: Final = 16  # batches in a row that may confirm each other's offsets

# What an index knows of a batch: its last offset and its position. Position 0 means unknown.
IndexHint = tuple[Offset, FilePosition]

_SHORT_STOPS: Final = (tables.STOP_SHORT_HEADER, tables.STOP_SHORT_BATCH)


class _Located(NamedTuple):
    """The chunk in which `locate` ended, so that `chunks` need not read it again."""

    position: FilePosition
    first: int
    sound: int
    batches: int
    got: int


class SegmentReader:
    """Walks the batches of one segment file. For one thread; holds its buffers.

    Only the first `size` bytes are read: bytes after them may be half-written. No batch may end
    past `offset_limit`; with `is_dense` each starts at the offset where the one before it ended.
    After each step of `chunks`, batch rows in `decoder` have positions relative to
    `chunk_position`.
    """

    def __init__(
        self,
        file: File,
        base_offset: Offset,
        size: int,
        *,
        offset_limit: int = INT64_MAX,
        is_dense: bool = False,
    ) -> None:
        self.decoder = BatchDecoder()
        self._buffer = bytearray(_CHUNK_BYTES_MIN)
        self._file = file
        self._base_offset = base_offset
        self._size = size
        self._offset_limit = min(offset_limit, base_offset + INT32_MAX + 1)
        self._is_dense = is_dense
        self._located: _Located | None = None
        self.chunk_position = 0
        self.position = 0
        self.next_offset = base_offset

    def take_buffers_of(self, other: "SegmentReader") -> None:
        """Use the buffers of a reader that is done with its own segment."""
        self.decoder, self._buffer = other.decoder, other._buffer
        self._located = None

    def chunks(
        self,
        position: FilePosition,
        next_offset: Offset,
        *,
        start_offset: Offset = Offset(0),
        stop_offset: int = INT64_MAX,
        chunk_bytes: int = _CHUNK_BYTES_MIN,
    ) -> Iterator[tuple[int, int]]:
        """Runs [first, end) of sound batches from `position` on, as indexes into `decoder`.

        The batch at `position` starts at `next_offset`, or after it if gaps are allowed. Batches
        that end at or before `start_offset` are skipped; the walk ends before the first batch
        that begins at or past `stop_offset`. `position` and `next_offset` of this object always
        name the end of what was returned. Raises `CorruptSegmentError`, unless reading can go on
        at or before `start_offset`: then no wanted record is damaged.
        """
        located, self._located = self._located, None
        self.position, self.next_offset = position, next_offset
        while self.position < self._size:
            if located is not None and located.position == position:
                first, sound, count, got = self._again(located, stop_offset)
                located = None
            else:
                count, got = self._load(chunk_bytes, stop_offset)
                sound, first = self.decoder.sound_count(), 0
            while first < sound and self.decoder.field(first, tables.B_NEXT_OFFSET) <= start_offset:
                first += 1
            if sound:
                self._advance(sound)
            if first < sound:
                yield first, sound
            if self.next_offset >= min(stop_offset, self._offset_limit):
                return  # bytes after this may be half-written, and are not wanted
            if self.decoder.stop == tables.STOP_OFFSET and sound == count:
                return
            try:
                if sound < count:
                    raise self._damage("the checksum does not match")
                chunk_bytes = self._after(count, got, chunk_bytes)
            except CorruptSegmentError as error:
                if error.next_offset is None or error.next_offset > start_offset:
                    raise
                self._go_on_behind_damage()

    def locate(self, offset: Offset, hint: IndexHint) -> FilePosition | None:
        """Position of the batch that holds `offset`, or of the first one after; None past the end.

        `next_offset` of this object is then the offset at which that batch starts. `hint` comes
        from an index and is believed only if that batch is there. Checksums are verified on the
        way: a damaged header could lead past sound batches, or claim the offsets of others.
        Raises `CorruptSegmentError` if `offset` itself cannot be read.
        """
        self.position, self.next_offset = FilePosition(0), self._base_offset
        self._located = None
        if hint[1]:
            self._start_at(hint, offset)
        chunk_bytes = _CHUNK_BYTES_MIN
        while self.position < self._size:
            count, got = self._load(chunk_bytes, INT64_MAX)
            sound = self.decoder.sound_count()
            index = self._first_behind(offset, sound)
            if index < sound:
                self.next_offset = Offset(self.decoder.field(index, tables.B_BASE_OFFSET))
                position = FilePosition(
                    self.chunk_position + self.decoder.field(index, tables.B_POSITION)
                )
                self._located = _Located(position, index, sound, count, got)
                return position
            if sound:
                self._advance(sound)
            try:
                if sound < count:
                    raise self._damage("the checksum does not match")
                chunk_bytes = self._after(count, got, chunk_bytes)
            except CorruptSegmentError as error:
                if error.next_offset is None or error.next_offset > offset:
                    raise
                self._go_on_behind_damage()
        return None

    def _first_behind(self, offset: Offset, count: int) -> int:
        """Index of the first batch that ends after `offset`, of `count`; `count` if none does."""

        def end_of(index: int) -> Offset:
            return Offset(self.decoder.field(index, tables.B_NEXT_OFFSET))

        return bisect_right(range(count), offset, key=end_of)

    def _again(self, located: "_Located", stop_offset: int) -> tuple[int, int, int, int]:
        """The chunk that `locate` has verified, as a step of `chunks`: first, sound, count, got."""
        for index in range(located.first, located.batches):
            if self.decoder.field(index, tables.B_BASE_OFFSET) >= stop_offset:
                self.decoder.stop = tables.STOP_OFFSET
                return located.first, min(index, located.sound), index, located.got
        return located.first, located.sound, located.batches, located.got

    def runs_at(
        self, position: FilePosition, *, start_offset: Offset, stop_offset: Offset
    ) -> Iterator[RecordRun]:
        """The records of the batch at `position`, which comes from an index."""
        header = decode_batch_header(self._file.read_at(position, HEADER_SIZE))
        for first, _ in self.chunks(position, header.base_offset, chunk_bytes=header.size):
            yield from self.decoder.runs(
                first, first + 1, start_offset=start_offset, stop_offset=stop_offset
            )
            return

    def resume_after(self, position: int, offset_min: Offset) -> BatchInfo | None:
        """The first sound batch that starts after `position`: reading can go on there.

        Its position is the one in the file. Bytes count as a batch only if the checksum matches,
        and nothing suggests that the offset is not the one that was written.
        """
        at = position
        buffer = bytearray(min(_SEARCH_BYTES, max(self._size - at, 0)))
        while self._size - at >= HEADER_SIZE:
            view = memoryview(buffer)[: min(len(buffer), self._size - at)]
            got = self._file.read_into(at, view)
            found = batch_scan.find_batch_start(
                view, 0, got, offset_min, self._offset_limit - 1, self._size - at
            )
            if found >= 0:
                batch = self._sound_batch_at(at + found, offset_min)
                if batch is not None and self._has_whole_offset(batch):
                    return batch
                at += found + 1
            elif got < len(view):
                return None
            else:
                at += got - HEADER_SIZE + 1  # a header may straddle the end of what was read
        return None

    # --- one chunk ---------------------------------------------------------------------------

    def _load(self, chunk_bytes: int, stop_offset: int) -> tuple[int, int]:
        wanted = min(chunk_bytes, self._size - self.position)
        if len(self._buffer) < wanted:
            self._buffer = bytearray(wanted)
        view = memoryview(self._buffer)
        got = self._file.read_into(self.position, view[:wanted])
        self.chunk_position = self.position
        count = self.decoder.scan(
            view,
            0,
            got,
            next_offset_min=self.next_offset,
            stop_offset=stop_offset,
            offset_limit=self._offset_limit,
            is_dense=self._is_dense,
        )
        if got < wanted:
            self._size = self.position + got  # the file is shorter than expected
        return count, got

    def _advance(self, count: int) -> None:
        last = count - 1
        self.position = (
            self.chunk_position
            + self.decoder.field(last, tables.B_POSITION)
            + self.decoder.field(last, tables.B_SIZE)
        )
        self.next_offset = Offset(self.decoder.field(last, tables.B_NEXT_OFFSET))

    def _after(self, count: int, got: int, chunk_bytes: int) -> int:
        """How many bytes to read next, after a chunk is used up. Raises if the file is damaged."""
        stop = self.decoder.stop
        if stop in _SHORT_STOPS and self.chunk_position + got < self._size:
            if count:
                return min(chunk_bytes * 4, _CHUNK_BYTES_MAX)
            needed = self._size_at(0, got)
            if needed > self._size - self.position:
                raise self._damage(describe_stop(stop))
            return max(needed, _CHUNK_BYTES_MIN)
        if stop in DAMAGE_STOPS:
            raise self._damage(describe_stop(stop))
        return min(max(chunk_bytes, _CHUNK_BYTES_MIN) * 4, _CHUNK_BYTES_MAX)

    def _size_at(self, at: int, got: int) -> int:
        if got - at < HEADER_SIZE:
            return HEADER_SIZE
        return LOG_OVERHEAD + int.from_bytes(self._buffer[at + 8 : at + 12], "big", signed=True)

    # --- damage ------------------------------------------------------------------------------

    def _damage(self, reason: str) -> CorruptSegmentError:
        following = self.resume_after(self.position + 1, self.next_offset)
        return CorruptSegmentError(
            self._file.name,
            self.position,
            reason,
            first_offset=self.next_offset,
            next_offset=None if following is None else following.base_offset,
        )

    def _go_on_behind_damage(self) -> None:
        following = self.resume_after(self.position + 1, self.next_offset)
        assert following is not None, self._file.name
        self.position, self.next_offset = following.position, following.base_offset

    def _start_at(self, hint: IndexHint, offset: Offset) -> None:
        """Start where the index says, if the batch there ends with exactly the offset it says.

        No checksum covers the base offset of a batch; this comparison detects a damaged one. A
        batch that ends before `offset` is skipped if the header after it has the next offset.
        """
        last_offset, position = hint
        header = self._header_at(position)
        if header is None or header.last_offset != last_offset:
            return
        if header.base_offset < self._base_offset:
            return
        self.position, self.next_offset = position, header.base_offset
        if last_offset < offset and self._is_dense:
            behind = self._header_at(FilePosition(position + header.size))
            if behind is not None and behind.base_offset == last_offset + 1:
                self.position, self.next_offset = position + header.size, behind.base_offset

    def _header_at(self, position: FilePosition) -> BatchHeader | None:
        try:
            return decode_batch_header(self._file.read_at(position, HEADER_SIZE))
        except FormatError:
            return None

    def _sound_batch_at(self, position: int, offset_min: Offset) -> BatchInfo | None:
        prefix = self._file.read_at(position, LOG_OVERHEAD)
        size = LOG_OVERHEAD + int.from_bytes(prefix[8:], "big")
        whole = memoryview(self._file.read_at(position, size))
        probe = BatchDecoder()
        if probe.scan(whole, 0, len(whole), next_offset_min=offset_min) != 1:
            return None
        return replace(probe.batch(0), position=position) if probe.sound_count() == 1 else None

    def _has_whole_offset(self, batch: BatchInfo) -> bool:
        """Whether the base offset of a batch behind damage is certain.

        No checksum covers it, and what was before the batch is lost. If the sector with its first
        bytes is lost too, the offset is too small, by `torn_by` or a multiple of it. Then the log
        must go on so closely behind the batch that there is no room for the larger offset. If the
        next offset may be torn in the same way, the one behind it must confirm it, and so on. A
        power cut that tears many in a row, all alike, is not expected.
        """
        position, size = batch.position, batch.size
        base_offset, next_offset = batch.base_offset, batch.next_offset
        for _ in range(_CONFIRMATIONS_MAX):
            room = torn_by(position, base_offset)
            if not room or next_offset + room > self._offset_limit:
                return True
            position += size
            behind = self._header_at(FilePosition(position))
            if behind is None:
                return False
            missing = behind.base_offset - next_offset
            if not 0 <= missing < (1 if self._is_dense else room):
                return False
            size, base_offset = behind.size, behind.base_offset
            next_offset = Offset(behind.last_offset + 1)
        return True

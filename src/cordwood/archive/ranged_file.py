"""The log file of an archived segment, fetched by range and kept in parts on the local disk.

A read fetches the blocks that it touches and that are not here. What holds whenever a byte is
returned:

* Its block has the SHA-256 of the manifest's sums, so it is what was archived. An object that was
  damaged, cut short, replaced or made longer is a `StorageError`; nothing of such a block is kept.
* A block is fetched by one thread at a time. Who needs it meanwhile waits for that thread, and
  tries again by itself if that thread fails. A block that is only queued can be taken by anyone.
* The parts that are here count in the cache. If the cache removes them, readers that have the file
  open go on with it, and later readers begin a new one.
* What one reader reads in order, for the first time, waits for it in memory (`held_pieces`) and
  not in the file. It is dropped when that reader is past it. Several readers in order share the
  file, and who needs a file gets what is in memory written there.

Locks: `_lock` is taken after the cache's, and never while the cache is called, because the cache
calls `release` with its own lock held. Only the lock of `PieceMemory` is taken after it.
"""

import io
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from cordwood.archive.block_sums import check_blocks
from cordwood.archive.fetch_threads import FetchThreads
from cordwood.archive.held_pieces import HeldPiece, Room, read_held
from cordwood.archive.kept_blocks import HERE, MISSING, QUEUED, Claim, KeptBlocks
from cordwood.archive.object_port import PIECE_BYTES, ObjectStore
from cordwood.archive.read_streams import ReadStreams, ahead_of
from cordwood.archive.segment_cache import SegmentCache
from cordwood.errors import FormatError, StorageError
from cordwood.quantities import KIB, MIB
from cordwood.storage.files import Buffer, File, FileSystem, write_all
from cordwood.value_class import dataclass

_TRIES: Final = 3
# A reader that looks at a header reads the batch next, so this much is fetched at least.
_NEAR_BYTES: Final = 64 * KIB
# More than the threads fetch at once, so that none of them has to wait while the reader waits for
# the first piece. With the pieces that the reader is about to leave, it fits into the memory.
AHEAD_BYTES: Final = 48 * MIB
_SEGMENTS_AHEAD: Final = 8  # of small segments, each of which costs requests of its own
_EXPECTED_MAX: Final = 16


class _Sums(Protocol):
    def __call__(self, first: int, end: int) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RangedObject:
    """The object behind a file, and how its blocks are verified.

    `sums` returns the sums of the blocks [first, end), verified, and may have to fetch them.
    """

    objects: ObjectStore
    key: str
    size: int
    block_bytes: int
    sums: _Sums

    @property
    def name(self) -> str:
        return f"{self.objects.url}/{self.key}"


class RangedFile:
    """Implements `File` for reading. Any thread may use it. Owned by its segment."""

    def __init__(
        self,
        source: RangedObject,
        *,
        path: str,
        fs: FileSystem,
        cache: SegmentCache,
        threads: FetchThreads,
        when_opened: Callable[[], None],
        following: Callable[[], "RangedFile | None"],
    ) -> None:
        """`path` is in the directory of `cache`. `following` is the file of the next segment."""
        self._source = source
        self._block_bytes = source.block_bytes
        self._count = -(-source.size // source.block_bytes)
        self._path = path
        self._fs = fs
        self._cache = cache
        self._threads = threads
        self._when_opened = when_opened
        self._following = following
        self._opening = threading.Lock()
        # Taken as it is: a signal can interrupt the `__enter__` of a condition with the lock held.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._kept: KeptBlocks | None = None
        self._seen = bytearray()  # 1: the block was in memory once; empty if none was
        self._ahead_max = min(AHEAD_BYTES, cache.bytes_max // 4)
        self._streams = ReadStreams()
        self._expected: deque[tuple[int, int]] = deque(maxlen=_EXPECTED_MAX)

    # --- as a file ---------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._source.name

    def size(self) -> int:
        return self._source.size

    def read_at(self, position: int, size: int) -> bytes:
        wanted = min(size, self._source.size - position)
        if wanted <= 0:
            return b""
        file, pieces = self._ready(position, wanted)
        if not pieces:
            return file.read_at(position, wanted)
        data = bytearray(wanted)
        return bytes(data[: read_held(file, pieces, position, memoryview(data))])

    def read_into(self, position: int, buffer: memoryview) -> int:
        wanted = min(len(buffer), self._source.size - position)
        if wanted <= 0:
            return 0
        file, pieces = self._ready(position, wanted)
        if not pieces:
            return file.read_into(position, buffer[:wanted])
        return read_held(file, pieces, position, buffer[:wanted])

    def map(self) -> memoryview:
        return self.holding(0, self._source.size).map()

    def fileno(self) -> int:
        raise io.UnsupportedOperation("only a part of the file is here: see `holding`")

    @property
    def sync_descriptor(self) -> None:
        return None

    def write_at(self, position: int, data: Buffer) -> int:
        raise io.UnsupportedOperation("an archived file does not change")

    def truncate_to(self, size: int) -> None:
        raise io.UnsupportedOperation("an archived file does not change")

    def sync(self) -> None:
        """Nothing to do: it cannot be written."""

    def close(self) -> None:
        """Close the local file until the next read; running reads keep it open."""
        with self._lock:
            if self._kept is not None:
                self._kept.file = None

    # --- blocks ------------------------------------------------------------------------------

    def holding(self, position: int, size: int) -> File:
        """A local file that has these bytes at this position, and maybe no others."""
        return self._brought(position, size, into_file=True)[0]

    def _ready(self, position: int, size: int) -> tuple[File, list[HeldPiece]]:
        """The local file, and the pieces in memory with those of these bytes that it has not."""
        return self._brought(position, size, into_file=False)

    def _brought(
        self, position: int, size: int, *, into_file: bool
    ) -> tuple[File, list[HeldPiece]]:
        kept, file = self._open()
        end = min(position + size, self._source.size)
        first, last = self._blocks(position, end)
        with self._lock:
            run = self._streams.note(position, end)
            is_alone = self._streams.is_one
        may_hold = is_alone and not into_file
        self._fetch_ahead(kept, file, last, end, run, may_hold=may_hold)
        may_hold = may_hold and ahead_of(run, self._ahead_max) > 0
        while True:
            pieces = self._bring(kept, file, first, last, position, may_hold=may_hold)
            if not pieces or not into_file:
                break
            self._write_held(kept, file, pieces)
        self._cache.touch(self._path)
        self._note_read(pieces, end)
        if is_alone:
            self._leave_behind(end - run, end if end == self._source.size else position)
        return file, pieces

    def _note_read(self, pieces: list[HeldPiece], end: int) -> None:
        if pieces:
            with self._lock:
                for piece in pieces:
                    piece.note_read(end)

    def _leave_behind(self, start: int, position: int) -> None:
        """The only reader in order came from `start` to `position`: drop what is behind it."""
        with self._lock:
            kept = self._kept
            left = [] if kept is None else kept.drop_used_up(start, position)
        if left:
            self._threads.memory.remove(left)

    def drop_held(self, piece: HeldPiece) -> None:
        """The memory needs the room: see `PieceOwner`."""
        with self._lock:
            if self._kept is not None:
                self._kept.drop(piece)

    def expect(self, position: int, end: int) -> None:
        """Who reads at `position` will go on to `end`: fetch that at once."""
        if end - position > _NEAR_BYTES:
            with self._lock:
                self._expected.append((position, end))

    def release(self) -> None:
        """The cache removes the parts that are here: see `Holder`."""
        with self._lock:
            kept, self._kept = self._kept, None
            if kept is not None:
                self._end(kept)

    def _end(self, kept: KeptBlocks) -> None:
        """No reader will begin with this file any more."""
        kept.is_removed = True
        pieces = kept.pieces(0, self._count)
        for piece in pieces:
            kept.drop(piece)
        self._threads.memory.remove(pieces)

    def _blocks(self, position: int, end: int) -> tuple[int, int]:
        return position // self._block_bytes, -(-end // self._block_bytes)

    def _open(self) -> tuple[KeptBlocks, File]:
        for _ in range(_TRIES):
            with self._opening:
                kept = self._kept
                if kept is None:
                    token = object()
                    file = self._cache.admit(self._path, self, token)
                    kept = KeptBlocks(self._count, file, token)
                    with self._lock:
                        self._kept = kept
                else:
                    held = kept.file
                    if held is None:
                        try:
                            held = self._fs.open_write(self._path)
                        except FileNotFoundError:
                            # Removed since we looked, or the cache's directory was emptied.
                            self._cache.forget(self._path)
                            self.release()
                            continue
                        with self._lock:
                            if self._kept is not kept:
                                continue  # what we opened may belong to another
                            kept.file = held
                    file = held
            self._when_opened()
            return kept, file
        raise OSError(f"{self._path} vanishes again and again; is the cache used twice?")

    def _bring(
        self, kept: KeptBlocks, file: File, first: int, last: int, position: int, *, may_hold: bool
    ) -> list[HeldPiece]:
        """Return when the blocks [first, last), which are read from `position` on, are here.

        Those that are not in the file are in the pieces.
        """
        while True:
            claim = Claim()
            try:
                with self._lock:
                    if kept.are_ready(first, last):
                        return kept.pieces(first, last)
                    others = self._claim(kept, claim, first, last, position)
                    if not claim.is_open:
                        self._changed.wait()  # another thread fetches the rest
                        continue
                for run in others:
                    self._offer(kept, file, *run, may_hold=may_hold)
                self._fetch(kept, file, claim, may_hold=may_hold)
            finally:
                try:
                    self._give_up(kept, claim)
                finally:  # an interrupt may have come before
                    self._give_up(kept, claim)

    def _claim(
        self, kept: KeptBlocks, claim: Claim, first: int, last: int, position: int
    ) -> list[tuple[int, int]]:
        """Claim the first run of blocks to fetch; return the others, which are to be offered."""
        runs = kept.runs(first, last, QUEUED, self._piece)
        if not runs:
            return []
        start, end = runs[0]
        if len(runs) == 1:
            probable = max(
                [position + _NEAR_BYTES, *(e for at, e in self._expected if at == position)]
            )
            wanted = min(-(-probable // self._block_bytes), self._count, start + self._piece)
            while end < wanted and kept.blocks[end] <= QUEUED:
                end += 1
        kept.claim(claim, start, end)
        fresh = [run for run in runs[1:] if kept.blocks.find(MISSING, *run) >= 0]
        for run in fresh:
            kept.set_state(*run, QUEUED)
        return fresh

    def _give_up(self, kept: KeptBlocks, claim: Claim) -> None:
        """Somebody else may try, unless the blocks came."""
        if claim.is_open:
            with self._lock:
                kept.give_up(claim)
                self._changed.notify_all()

    @property
    def _piece(self) -> int:
        return max(PIECE_BYTES // self._block_bytes, 1)

    def _fetch(self, kept: KeptBlocks, file: File, claim: Claim, *, may_hold: bool) -> None:
        """Fetch the claimed blocks, all or none of them, into memory or into the file."""
        source, first, end = self._source, claim.first, claim.end
        position = first * self._block_bytes
        size = min(end * self._block_bytes, source.size) - position
        memory, room = self._threads.memory, Room(size)
        try:
            # What was in memory before goes to the file.
            may_hold = may_hold and self._seen.find(1, first, end) < 0 and memory.reserve(room)
            sums = source.sums(first, end)
            data = source.objects.get_range(source.key, position, size, whole=source.size)
            check_blocks(data, sums, self._block_bytes)
            if may_hold:
                self._cache.note_fetched(size)
                self._hold(kept, claim, HeldPiece(self, first, end, position, data), room)
            else:
                self._write(kept, file, position, data)
                self._settle(kept, claim)
        except FormatError as error:
            raise StorageError(f"{source.name} is damaged: {error.reason}") from error
        finally:
            memory.give_back(room)

    def _hold(self, kept: KeptBlocks, claim: Claim, piece: HeldPiece, room: Room) -> None:
        """Keep a piece in memory. Nobody counts it if its file was removed: see `_end`."""
        with self._lock:
            kept.hold(piece)
            if not kept.is_removed:
                self._threads.memory.add(piece, room)
            self._seen = self._seen or bytearray(self._count)
            self._seen[piece.first : piece.end] = b"\1" * (piece.end - piece.first)
            self._changed.notify_all()
            claim.is_open = False

    def _settle(self, kept: KeptBlocks, claim: Claim) -> None:
        """The claimed blocks are in the file."""
        with self._lock:
            kept.set_state(claim.first, claim.end, HERE)
            self._changed.notify_all()
            claim.is_open = False

    def _write(self, kept: KeptBlocks, file: File, position: int, data: bytes) -> None:
        """Write verified bytes to the file, and count them in the cache."""
        is_counted = self._cache.grow(self._path, kept.token, len(data))
        if not is_counted:
            self._forget(kept)
        try:
            write_all(file, position, data)
        except BaseException:
            if is_counted:
                self._cache.grow(self._path, kept.token, -len(data))
            raise

    def _write_held(self, kept: KeptBlocks, file: File, pieces: list[HeldPiece]) -> None:
        """Somebody needs a file: write what is in memory to it."""
        for piece in pieces:
            claim = Claim()
            try:
                with self._lock:
                    if not kept.drop(piece):
                        continue
                    kept.claim(claim, piece.first, piece.end)
                self._write(kept, file, piece.position, piece.data)
                self._settle(kept, claim)
            finally:
                try:
                    self._give_up(kept, claim)
                finally:  # an interrupt may have come before
                    self._give_up(kept, claim)
                self._threads.memory.remove([piece])

    def _forget(self, kept: KeptBlocks) -> None:
        """The cache does not count this file: the next reader begins another one."""
        with self._lock:
            if self._kept is kept:
                self._kept = None
            self._end(kept)

    # --- fetching ahead ----------------------------------------------------------------------

    def _fetch_ahead(
        self, kept: KeptBlocks, file: File, first: int, end: int, run: int, *, may_hold: bool
    ) -> None:
        """Queue what a reader wants next that read `run` bytes in order, up to `end`.

        `first` is the first block after those that it reads now.
        """
        ahead = ahead_of(run, self._ahead_max)
        left = ahead - self._queue(kept, file, first, end, ahead, may_hold=may_hold)
        here = self
        for _ in range(_SEGMENTS_AHEAD):
            if not left and end < self._source.size:
                return
            following = here._following()
            if following is None:
                return
            with following._lock:
                following._streams.expect(run)
                may_hold = may_hold and following._streams.is_one
            if not left:
                return
            left -= following._queue(*following._open(), 0, 0, left, may_hold=may_hold)
            here = following

    def _queue(
        self, kept: KeptBlocks, file: File, first: int, position: int, size: int, *, may_hold: bool
    ) -> int:
        """Queue the missing blocks, from `first` on, of [position, position + size).

        Returns how many of these bytes are in this file; all, if the threads have too much to do.
        """
        if not size:
            return 0
        end = -(-(position + size) // self._block_bytes)
        if size >= PIECE_BYTES:
            end = -(-end // self._piece) * self._piece  # whole pieces: fewer requests
        with self._lock:
            runs = kept.runs(first, min(end, self._count), MISSING, self._piece)
            for run in runs:
                kept.set_state(*run, QUEUED)
        accepted = [self._offer(kept, file, *run, may_hold=may_hold) for run in runs]
        return min(size, self._source.size - position) if all(accepted) else size

    def _offer(self, kept: KeptBlocks, file: File, first: int, end: int, *, may_hold: bool) -> bool:
        """Offer blocks that are `QUEUED` to the threads."""
        task = _AheadTask(self, kept, file, first, end, may_hold=may_hold)
        if self._threads.offer(self._source.objects, task):
            return True
        task.cancel()
        return False

    def run_ahead(
        self, kept: KeptBlocks, file: File, first: int, end: int, *, may_hold: bool
    ) -> None:
        """Fetch those of the blocks that are still queued. In a thread of `FetchThreads`."""
        while True:
            claim = Claim()
            try:
                with self._lock:
                    queued = kept.blocks.find(QUEUED, first, end)
                    if queued < 0:
                        return
                    if kept.is_removed:
                        self._unqueue(kept, first, end)
                        return
                    kept.claim(claim, queued, kept.end_of_run(queued, end))
                self._fetch(kept, file, claim, may_hold=may_hold)
            except (OSError, StorageError):
                return  # whoever reads these blocks tries again, and is told what is wrong
            finally:
                if claim.is_open:
                    self._give_up(kept, claim)
                    self.cancel_ahead(kept, first, end)

    def cancel_ahead(self, kept: KeptBlocks, first: int, end: int) -> None:
        with self._lock:
            self._unqueue(kept, first, end)

    def _unqueue(self, kept: KeptBlocks, first: int, end: int) -> None:
        kept.unqueue(first, end)
        self._changed.notify_all()


class _AheadTask:
    """A `FetchTask` for some blocks of a file."""

    def __init__(
        self,
        file: RangedFile,
        kept: KeptBlocks,
        local: File,
        first: int,
        end: int,
        *,
        may_hold: bool,
    ) -> None:
        self._file = file
        self._kept = kept
        self._local = local
        self._first = first
        self._end = end
        self._may_hold = may_hold

    def run(self) -> None:
        self._file.run_ahead(
            self._kept, self._local, self._first, self._end, may_hold=self._may_hold
        )

    def cancel(self) -> None:
        self._file.cancel_ahead(self._kept, self._first, self._end)

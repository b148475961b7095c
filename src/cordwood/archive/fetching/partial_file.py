"""A local file with some of the blocks of an archived file, and who brings the others.

It begins empty, and ends when the cache removes it or does not count it any more. Who reads from it
then goes on with it; later readers begin another one.

Locks: `_lock` is taken after the cache's, and never while the cache is called, because the cache
calls `end` with its own lock held. Only the lock of `PieceMemory` is taken after it.
"""

import threading
from collections.abc import Callable
from typing import Final, Protocol

from cordwood.archive.cache.claims import LOOK_S
from cordwood.archive.cache.held_pieces import HeldPiece, Room
from cordwood.archive.cache.kept_blocks import HERE, MISSING, QUEUED, BlockClaim, KeptBlocks
from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.fetching.fetch_threads import FetchThreads
from cordwood.archive.manifests.block_sums import block_count, check_blocks
from cordwood.archive.objects.object_port import PIECE_BYTES, ObjectStore
from cordwood.errors import FormatError, StorageError
from cordwood.quantities import KIB
from cordwood.storage.files import File, write_all
from cordwood.value_class import dataclass

# A reader that looks at a header reads the batch next, so this much is fetched at least.
NEAR_BYTES: Final = 64 * KIB


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

    @property
    def count(self) -> int:
        return block_count(self.size, self.block_bytes)


class SeenBlocks:
    """Which blocks of an object were in memory once, whatever local file it had then."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks = bytearray()  # empty if none was: most objects are never read

    def has(self, first: int, end: int) -> bool:
        """Whether one of the blocks was."""
        return self._marks.find(1, first, end) >= 0

    def note(self, first: int, end: int, count: int) -> None:
        """The blocks [first, end) of `count` are in memory."""
        self._marks = self._marks or bytearray(count)
        self._marks[first:end] = b"\1" * (end - first)


class PartialFile:
    """Any thread may use it. Owned by a `RangedFile`, for as long as the cache counts it.

    `may_hold` says that a piece may wait in memory for its reader, and not in the file.
    """

    def __init__(
        self,
        source: RangedObject,
        *,
        path: str,
        file: File,
        token: object,
        cache: SegmentCache,
        threads: FetchThreads,
        seen: SeenBlocks,
        probable_end: Callable[[int], int],
    ) -> None:
        """`cache` has `file` at `path`, with `token`.

        `probable_end` is how far a reader goes that reads at this position; it takes no lock
        beyond its own.
        """
        self.file: File | None = file  # None: closed until it is used again
        self.is_removed = False
        self.kept = KeptBlocks(source.count)
        self._source = source
        self._block_bytes = source.block_bytes
        self._piece = max(PIECE_BYTES // source.block_bytes, 1)
        self._path = path
        self._token = token
        self._cache = cache
        self._threads = threads
        self._seen = seen
        self._probable_end = probable_end
        # Taken as it is: a signal can interrupt the `__enter__` of a condition with the lock held.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    # --- the file ----------------------------------------------------------------------------

    def reopen(self, file: File) -> bool:
        """Use `file`, which was opened again. False if it was removed: it may be another's."""
        with self._lock:
            if self.is_removed:
                return False
            self.file = file
            return True

    def close(self) -> None:
        """Close the file until the next read; running reads keep it open."""
        with self._lock:
            self.file = None

    def end(self) -> None:
        """No reader will begin with this file any more."""
        with self._lock:
            self.is_removed = True
            self.file = None  # who reads has it
            pieces = self.kept.pieces(0, self._source.count)
            for piece in pieces:
                self.kept.drop(piece)
            self._threads.memory.remove(pieces)

    # --- bringing blocks ---------------------------------------------------------------------

    def bring(
        self, file: File, first: int, last: int, position: int, *, may_hold: bool
    ) -> list[HeldPiece]:
        """Return when the blocks [first, last), which are read from `position` on, are here.

        Those that are not in the file are in the pieces.
        """
        while True:
            claim = BlockClaim()
            try:
                with self._lock:
                    if self.kept.are_ready(first, last):
                        return self.kept.pieces(first, last)
                    others = self._claim(claim, first, last, position)
                    if not claim.is_open:
                        if not self.kept.give_up_void(first, last):
                            self._changed.wait(LOOK_S)  # another thread fetches the rest
                        continue
                for run in others:
                    self._offer(file, *run, may_hold=may_hold)
                self._fetch(file, claim, may_hold=may_hold)
            finally:
                try:
                    self._give_up(claim)
                finally:  # an interrupt may have come before
                    self._give_up(claim)

    def _claim(
        self, claim: BlockClaim, first: int, last: int, position: int
    ) -> list[tuple[int, int]]:
        """Claim the first run of blocks to fetch; return the others, which are to be offered."""
        kept = self.kept
        runs = kept.runs(first, last, QUEUED, self._piece)
        if not runs:
            return []
        start, end = runs[0]
        if len(runs) == 1:
            probable = block_count(self._probable_end(position), self._block_bytes)
            wanted = min(probable, self._source.count, start + self._piece)
            while end < wanted and kept.blocks[end] <= QUEUED:
                end += 1
        kept.claim(claim, start, end)
        fresh = [run for run in runs[1:] if kept.blocks.find(MISSING, *run) >= 0]
        for run in fresh:
            kept.set_state(*run, QUEUED)
        return fresh

    def _give_up(self, claim: BlockClaim) -> None:
        """Somebody else may try, unless the blocks came."""
        if claim.is_open:
            with self._lock:
                self.kept.give_up(claim)
                self._changed.notify_all()

    def _fetch(self, file: File, claim: BlockClaim, *, may_hold: bool) -> None:
        """Fetch the claimed blocks, all or none of them, into memory or into the file."""
        source, first, end = self._source, claim.first, claim.end
        position = first * self._block_bytes
        size = min(end * self._block_bytes, source.size) - position
        memory, room = self._threads.memory, Room(size)
        try:
            # What was in memory before goes to the file.
            may_hold = may_hold and not self._seen.has(first, end) and memory.reserve(room)
            sums = source.sums(first, end)
            data = source.objects.get_range(source.key, position, size, whole=source.size)
            check_blocks(data, sums, self._block_bytes)
            if may_hold:
                self._cache.note_fetched(size)
                self._hold(claim, HeldPiece(self, first, end, position, data), room)
            else:
                self._write(file, position, data)
                self._settle(claim)
        except FormatError as error:
            raise StorageError(f"{source.name} is damaged: {error.reason}") from error
        finally:
            memory.give_back(room)

    def _settle(self, claim: BlockClaim) -> None:
        """The claimed blocks are in the file."""
        with self._lock:
            self.kept.set_state(claim.first, claim.end, HERE)
            self._changed.notify_all()
            claim.is_open = False

    def _write(self, file: File, position: int, data: bytes) -> None:
        """Write verified bytes to the file, and count them in the cache."""
        is_counted = self._cache.grow(self._path, self._token, len(data))
        if not is_counted:
            self.end()
        try:
            write_all(file, position, data)
        except BaseException:
            if is_counted:
                self._cache.grow(self._path, self._token, -len(data))
            raise

    # --- pieces in memory --------------------------------------------------------------------

    def _hold(self, claim: BlockClaim, piece: HeldPiece, room: Room) -> None:
        """Keep a piece in memory. Nobody counts it if the file was removed: see `end`."""
        with self._lock:
            self.kept.hold(piece)
            if not self.is_removed:
                self._threads.memory.add(piece, room)
            self._seen.note(piece.first, piece.end, self._source.count)
            self._changed.notify_all()
            claim.is_open = False

    def drop_held(self, piece: HeldPiece) -> None:
        """The memory needs the room: see `PieceOwner`."""
        with self._lock:
            self.kept.drop(piece)

    def note_read(self, pieces: list[HeldPiece], end: int) -> None:
        """Somebody read these up to `end`."""
        if pieces:
            with self._lock:
                for piece in pieces:
                    piece.note_read(end)

    def leave_behind(self, start: int, position: int) -> None:
        """The only reader in order came from `start` to `position`: drop what is behind it."""
        with self._lock:
            left = self.kept.drop_used_up(start, position)
        if left:
            self._threads.memory.remove(left)

    def write_held(self, file: File, pieces: list[HeldPiece]) -> None:
        """Somebody needs a file: write what is in memory to it."""
        for piece in pieces:
            claim = BlockClaim()
            try:
                with self._lock:
                    if not self.kept.drop(piece):
                        continue
                    self.kept.claim(claim, piece.first, piece.end)
                self._write(file, piece.position, piece.data)
                self._settle(claim)
            finally:
                try:
                    self._give_up(claim)
                finally:  # an interrupt may have come before
                    self._give_up(claim)
                self._threads.memory.remove([piece])

    # --- fetching ahead ----------------------------------------------------------------------

    def queue(self, file: File, first: int, position: int, size: int, *, may_hold: bool) -> int:
        """Queue the missing blocks, from `first` on, of [position, position + size).

        Returns how many of these bytes are in this file; all, if the threads have too much to do.
        """
        if not size:
            return 0
        end = block_count(position + size, self._block_bytes)
        if size >= PIECE_BYTES:
            end = -(-end // self._piece) * self._piece  # whole pieces: fewer requests
        with self._lock:
            runs = self.kept.runs(first, min(end, self._source.count), MISSING, self._piece)
            for run in runs:
                self.kept.set_state(*run, QUEUED)
        accepted = [self._offer(file, *run, may_hold=may_hold) for run in runs]
        return min(size, self._source.size - position) if all(accepted) else size

    def _offer(self, file: File, first: int, end: int, *, may_hold: bool) -> bool:
        """Offer blocks that are `QUEUED` to the threads."""
        task = _AheadTask(self, file, first, end, may_hold=may_hold)
        if self._threads.offer(self._source.objects, task):
            return True
        task.cancel()
        return False

    def run_ahead(self, file: File, first: int, end: int, *, may_hold: bool) -> None:
        """Fetch those of the blocks that are still queued. In a thread of `FetchThreads`."""
        while True:
            claim = BlockClaim()
            try:
                with self._lock:
                    queued = self.kept.blocks.find(QUEUED, first, end)
                    if queued < 0:
                        return
                    if self.is_removed:
                        self._unqueue(first, end)
                        return
                    self.kept.claim(claim, queued, self.kept.end_of_run(queued, end))
                self._fetch(file, claim, may_hold=may_hold)
            except (OSError, StorageError):
                return  # whoever reads these blocks tries again, and is told what is wrong
            finally:
                if claim.is_open:
                    self._give_up(claim)
                    self.cancel_ahead(first, end)

    def cancel_ahead(self, first: int, end: int) -> None:
        with self._lock:
            self._unqueue(first, end)

    def _unqueue(self, first: int, end: int) -> None:
        self.kept.unqueue(first, end)
        self._changed.notify_all()


class _AheadTask:
    """A `FetchTask` for some blocks of a file."""

    def __init__(
        self, partial: PartialFile, file: File, first: int, end: int, *, may_hold: bool
    ) -> None:
        self._partial = partial
        self._file = file
        self._first = first
        self._end = end
        self._may_hold = may_hold

    def run(self) -> None:
        self._partial.run_ahead(self._file, self._first, self._end, may_hold=self._may_hold)

    def cancel(self) -> None:
        self._partial.cancel_ahead(self._first, self._end)

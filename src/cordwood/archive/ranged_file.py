"""The log file of an archived segment, fetched by range and kept in parts on the local disk.

A read fetches the blocks that it touches and that are not here. What holds whenever a byte is
returned:

* Its block has the SHA-256 of the manifest's sums, so it is what was archived. An object that was
  damaged, cut short, replaced or made longer is a `StorageError`; nothing of such a block is kept.
* A block is fetched by one thread at a time. Who needs it meanwhile waits for that thread, and
  tries again by itself if that thread fails. A block that is only queued can be taken by anyone.
* The parts that are here count in the cache. If the cache removes them, readers that have the file
  open go on with it, and later readers begin a new one.

Locks: `_changed` is taken last, and never while the cache is called, because the cache calls
`release` with its own lock held.
"""

import io
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from cordwood.archive.block_sums import check_blocks
from cordwood.archive.fetch_threads import FetchThreads
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
# On the disk, not in memory. Twice what the threads fetch at once, so that none of them has to wait
# while the reader waits for the first piece.
AHEAD_BYTES: Final = 64 * MIB
_SEGMENTS_AHEAD: Final = 8  # of small segments, each of which costs requests of its own
_EXPECTED_MAX: Final = 16

_MISSING: Final = 0
_QUEUED: Final = 1
_COMING: Final = 2
_HERE: Final = 3


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


class _Kept:
    """A local file with some of the blocks. `blocks` has one state for each of them."""

    __slots__ = ("blocks", "file", "is_removed")

    def __init__(self, count: int, file: File) -> None:
        self.blocks = bytearray(count)
        self.file: File | None = file  # None: closed until it is used again
        self.is_removed = False


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
        self._changed = threading.Condition()
        self._kept: _Kept | None = None
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
        return self.holding(position, wanted).read_at(position, wanted) if wanted > 0 else b""

    def read_into(self, position: int, buffer: memoryview) -> int:
        wanted = min(len(buffer), self._source.size - position)
        if wanted <= 0:
            return 0
        return self.holding(position, wanted).read_into(position, buffer[:wanted])

    def map(self) -> memoryview:
        return self.holding(0, self._source.size).map()

    def fileno(self) -> int:
        raise io.UnsupportedOperation("only a part of the file is here: see `holding`")

    @property
    def syncs_by_descriptor(self) -> bool:
        return False

    def write_at(self, position: int, data: Buffer) -> int:
        raise io.UnsupportedOperation("an archived file does not change")

    def truncate_to(self, size: int) -> None:
        raise io.UnsupportedOperation("an archived file does not change")

    def sync(self) -> None:
        """Nothing to do: it cannot be written."""

    def close(self) -> None:
        """Close the local file until the next read; running reads keep it open."""
        with self._changed:
            if self._kept is not None:
                self._kept.file = None

    # --- blocks ------------------------------------------------------------------------------

    def holding(self, position: int, size: int) -> File:
        """A local file that has these bytes at this position, and maybe no others."""
        kept, file = self._open()
        end = min(position + size, self._source.size)
        first, last = self._blocks(position, end)
        with self._changed:
            run = self._streams.note(position, end)
        self._fetch_ahead(kept, file, last, end, run)
        self._bring(kept, file, first, last, position)
        self._cache.touch(self._path)
        return file

    def expect(self, position: int, end: int) -> None:
        """Who reads at `position` will go on to `end`: fetch that at once."""
        if end - position > _NEAR_BYTES:
            with self._changed:
                self._expected.append((position, end))

    def release(self) -> None:
        """The cache removes the parts that are here: see `Holder`."""
        with self._changed:
            if self._kept is not None:
                self._kept.is_removed = True
                self._kept = None

    def _blocks(self, position: int, end: int) -> tuple[int, int]:
        return position // self._block_bytes, -(-end // self._block_bytes)

    def _open(self) -> tuple[_Kept, File]:
        for _ in range(_TRIES):
            with self._opening:
                kept = self._kept
                if kept is None:
                    file = self._cache.admit(self._path, self)
                    kept = _Kept(self._count, file)
                    with self._changed:
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
                        kept.file = held
                    file = held
            self._when_opened()
            return kept, file
        raise OSError(f"{self._path} vanishes again and again; is the cache used twice?")

    def _bring(self, kept: _Kept, file: File, first: int, last: int, position: int) -> None:
        """Return when the blocks [first, last), which are read from `position` on, are here."""
        while True:
            with self._changed:
                if kept.blocks.count(_HERE, first, last) == last - first:
                    return
                runs = self._claim(kept, first, last, position)
                if not runs:
                    self._changed.wait()  # another thread fetches the rest
                    continue
            for run in runs[1:]:
                self._offer(kept, file, *run)
            self._fetch(kept, file, *runs[0])

    def _claim(self, kept: _Kept, first: int, last: int, position: int) -> list[tuple[int, int]]:
        """Runs of blocks to fetch: the first is ours to fetch, the others are to be offered."""
        runs = self._runs(kept, first, last, _QUEUED)
        if not runs:
            return []
        start, end = runs[0]
        if len(runs) == 1:
            probable = max(
                [position + _NEAR_BYTES, *(e for at, e in self._expected if at == position)]
            )
            wanted = min(-(-probable // self._block_bytes), self._count, start + self._piece)
            while end < wanted and kept.blocks[end] <= _QUEUED:
                end += 1
        _set(kept, start, end, _COMING)
        fresh = [run for run in runs[1:] if kept.blocks.find(_MISSING, *run) >= 0]
        for run in fresh:
            _set(kept, *run, _QUEUED)
        return [(start, end), *fresh]

    def _runs(self, kept: _Kept, first: int, end: int, state_max: int) -> list[tuple[int, int]]:
        """Blocks in [first, end) in no state above `state_max`, as runs of at most a piece."""
        runs: list[tuple[int, int]] = []
        start = first
        for number in range(first, end + 1):
            is_wanted = number < end and kept.blocks[number] <= state_max
            if start < number and (not is_wanted or number % self._piece == 0):
                runs.append((start, number))
                start = number
            if not is_wanted:
                start = number + 1
        return runs

    @property
    def _piece(self) -> int:
        return max(PIECE_BYTES // self._block_bytes, 1)

    def _fetch(self, kept: _Kept, file: File, first: int, end: int) -> None:
        """Fetch blocks that are `_COMING`, all or none of them."""
        source, is_here, grown = self._source, False, 0
        try:
            sums = source.sums(first, end)
            position = first * self._block_bytes
            size = min(end * self._block_bytes, source.size) - position
            data = source.objects.get_range(source.key, position, size, whole=source.size)
            check_blocks(data, sums, self._block_bytes)
            if self._cache.grow(self._path, self, size):
                grown = size
            else:
                self._forget(kept)
            write_all(file, position, data)
            is_here = True
        except FormatError as error:
            raise StorageError(f"{source.name} is damaged: {error.reason}") from error
        finally:
            if grown and not is_here:
                self._cache.grow(self._path, self, -grown)
            with self._changed:
                _set(kept, first, end, _HERE if is_here else _MISSING)
                self._changed.notify_all()

    def _forget(self, kept: _Kept) -> None:
        """The cache does not count this file: the next reader begins another one."""
        with self._changed:
            if self._kept is kept:
                self._kept = None
            kept.is_removed = True

    # --- fetching ahead ----------------------------------------------------------------------

    def _fetch_ahead(self, kept: _Kept, file: File, first: int, end: int, run: int) -> None:
        """Queue what a reader wants next that read `run` bytes in order, up to `end`.

        `first` is the first block after those that it reads now.
        """
        ahead = ahead_of(run, self._ahead_max)
        left = ahead - self._queue(kept, file, first, end, ahead)
        here = self
        for _ in range(_SEGMENTS_AHEAD):
            if not left and end < self._source.size:
                return
            following = here._following()
            if following is None:
                return
            with following._changed:
                following._streams.expect(run)
            if not left:
                return
            left -= following._queue(*following._open(), 0, 0, left)
            here = following

    def _queue(self, kept: _Kept, file: File, first: int, position: int, size: int) -> int:
        """Queue the missing blocks, from `first` on, of [position, position + size).

        Returns how many of these bytes are in this file; all, if the threads have too much to do.
        """
        if not size:
            return 0
        end = -(-(position + size) // self._block_bytes)
        if size >= PIECE_BYTES:
            end = -(-end // self._piece) * self._piece  # whole pieces: fewer requests
        with self._changed:
            runs = self._runs(kept, first, min(end, self._count), _MISSING)
            for run in runs:
                _set(kept, *run, _QUEUED)
        accepted = [self._offer(kept, file, *run) for run in runs]
        return min(size, self._source.size - position) if all(accepted) else size

    def _offer(self, kept: _Kept, file: File, first: int, end: int) -> bool:
        """Offer blocks that are `_QUEUED` to the threads."""
        task = _AheadTask(self, kept, file, first, end)
        if self._threads.offer(self._source.objects, task):
            return True
        task.cancel()
        return False

    def run_ahead(self, kept: _Kept, file: File, first: int, end: int) -> None:
        """Fetch those of the blocks that are still queued. In a thread of `FetchThreads`."""
        while True:
            with self._changed:
                queued = kept.blocks.find(_QUEUED, first, end)
                if queued < 0:
                    return
                if kept.is_removed:
                    self._unqueue(kept, first, end)
                    return
                stop = queued
                while stop < end and kept.blocks[stop] == _QUEUED:
                    stop += 1
                _set(kept, queued, stop, _COMING)
            try:
                self._fetch(kept, file, queued, stop)
            except (OSError, StorageError):
                return  # whoever reads these blocks tries again, and is told what is wrong
            finally:
                if kept.blocks[queued] != _HERE:
                    self.cancel_ahead(kept, first, end)

    def cancel_ahead(self, kept: _Kept, first: int, end: int) -> None:
        with self._changed:
            self._unqueue(kept, first, end)

    def _unqueue(self, kept: _Kept, first: int, end: int) -> None:
        kept.blocks[first:end] = kept.blocks[first:end].replace(b"\1", b"\0")
        self._changed.notify_all()


def _set(kept: _Kept, first: int, end: int, state: int) -> None:
    kept.blocks[first:end] = bytes([state]) * (end - first)


class _AheadTask:
    """A `FetchTask` for some blocks of a file."""

    def __init__(self, file: RangedFile, kept: _Kept, local: File, first: int, end: int) -> None:
        self._file = file
        self._kept = kept
        self._local = local
        self._first = first
        self._end = end

    def run(self) -> None:
        self._file.run_ahead(self._kept, self._local, self._first, self._end)

    def cancel(self) -> None:
        self._file.cancel_ahead(self._kept, self._first, self._end)

"""The log file of an archived segment, fetched by range and kept in parts on the local disk.

A read fetches the blocks that it touches and that are not here. What holds whenever a byte is
returned:

* Its block has the SHA-256 of the manifest's sums, so it is what was archived. An object that was
  damaged, cut short, replaced or made longer is a `StorageError`; nothing of such a block is kept.
* A block is fetched by one thread at a time. Who needs it meanwhile waits for that thread, and
  tries again by itself if that thread fails, or is interrupted wherever that may be. A block that
  is only queued can be taken by anyone.
* The parts that are here count in the cache (`partial_file`). If the cache removes them, readers
  that have the file open go on with it, and later readers begin a new one.
* What one reader reads in order, for the first time, waits for it in memory (`held_pieces`) and
  not in the file. It is dropped when that reader is past it. Several readers in order share the
  file, and who needs a file gets what is in memory written there.

Locks: `_opening` is taken before the cache's, `_lock` after all others.
"""

import io
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from cordwood.archive.cache.held_pieces import HeldPiece, read_held
from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.fetching.fetch_threads import FetchThreads
from cordwood.archive.fetching.partial_file import NEAR_BYTES, PartialFile, RangedObject, SeenBlocks
from cordwood.archive.fetching.read_streams import ReadStreams, ahead_of
from cordwood.quantities import MIB
from cordwood.storage.files import Buffer, File, FileSystem

__all__ = ["AHEAD_BYTES", "RangedFile", "RangedObject"]

_TRIES: Final = 3
# More than the threads fetch at once, so that none of them has to wait while the reader waits for
# the first piece. With the pieces that the reader is about to leave, it fits into the memory.
AHEAD_BYTES: Final = 48 * MIB
_SEGMENTS_AHEAD: Final = 8  # of small segments, each of which costs requests of its own
_EXPECTED_MAX: Final = 16


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
        self._path = path
        self._fs = fs
        self._cache = cache
        self._threads = threads
        self._when_opened = when_opened
        self._following = following
        self._opening = threading.Lock()
        self._partial: PartialFile | None = None
        self._seen = SeenBlocks()
        self._ahead_max = min(AHEAD_BYTES, cache.bytes_max // 4)
        self._lock = threading.Lock()  # of the next two
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
        file, pieces = self._brought(position, wanted, into_file=False)
        if not pieces:
            return file.read_at(position, wanted)
        data = bytearray(wanted)
        return bytes(data[: read_held(file, pieces, position, memoryview(data))])

    def read_into(self, position: int, buffer: memoryview) -> int:
        wanted = min(len(buffer), self._source.size - position)
        if wanted <= 0:
            return 0
        file, pieces = self._brought(position, wanted, into_file=False)
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
        partial = self._partial
        if partial is not None:
            partial.close()

    # --- bringing what is read ---------------------------------------------------------------

    def holding(self, position: int, size: int) -> File:
        """A local file that has these bytes at this position, and maybe no others."""
        return self._brought(position, size, into_file=True)[0]

    def _brought(
        self, position: int, size: int, *, into_file: bool
    ) -> tuple[File, list[HeldPiece]]:
        """The local file, and the pieces in memory with those of these bytes that it has not.

        With `into_file` it has all of them.
        """
        self._cache.touch(self._path)  # refuses a forked child, where our locks may be taken
        partial, file = self._open()
        end = min(position + size, self._source.size)
        first, last = position // self._source.block_bytes, -(-end // self._source.block_bytes)
        with self._lock:
            run = self._streams.note(position, end)
            is_alone = self._streams.is_one
        may_hold = is_alone and not into_file
        self._fetch_ahead(partial, file, last, end, run, may_hold=may_hold)
        may_hold = may_hold and ahead_of(run, self._ahead_max) > 0
        while True:
            pieces = partial.bring(file, first, last, position, may_hold=may_hold)
            if not pieces or not into_file:
                break
            partial.write_held(file, pieces)
        partial.note_read(pieces, end)
        if is_alone:
            partial.leave_behind(end - run, end if end == self._source.size else position)
        return file, pieces

    def expect(self, position: int, end: int) -> None:
        """Who reads at `position` will go on to `end`: fetch that at once."""
        if end - position > NEAR_BYTES:
            with self._lock:
                self._expected.append((position, end))

    def _probable_end(self, position: int) -> int:
        with self._lock:
            expected = [end for at, end in self._expected if at == position]
        return max([position + NEAR_BYTES, *expected])

    def _fetch_ahead(
        self, partial: PartialFile, file: File, first: int, end: int, run: int, *, may_hold: bool
    ) -> None:
        """Queue what a reader wants next that read `run` bytes in order, up to `end`.

        `first` is the first block after those that it reads now.
        """
        ahead = ahead_of(run, self._ahead_max)
        left = ahead - partial.queue(file, first, end, ahead, may_hold=may_hold)
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
            its_partial, its_file = following._open()
            left -= its_partial.queue(its_file, 0, 0, left, may_hold=may_hold)
            here = following

    # --- the local file ----------------------------------------------------------------------

    def release(self) -> None:
        """The cache removes the parts that are here: see `Holder`."""
        partial, self._partial = self._partial, None
        if partial is not None:
            partial.end()

    def _open(self) -> tuple[PartialFile, File]:
        for _ in range(_TRIES):
            with self._opening:
                partial = self._partial
                if partial is None or partial.is_removed:
                    partial, file = self._begin()
                else:
                    held = partial.file
                    if held is None:
                        try:
                            held = self._fs.open_write(self._path)
                        except FileNotFoundError:
                            # Removed since we looked, or the cache's directory was emptied.
                            self._cache.forget(self._path)
                            self.release()
                            continue
                        if not partial.reopen(held):
                            continue
                    file = held
            self._when_opened()
            return partial, file
        raise OSError(f"{self._path} vanishes again and again; is the cache used twice?")

    def _begin(self) -> tuple[PartialFile, File]:
        """An empty file, in the place of one that the cache removed."""
        token = object()
        file = self._cache.admit(self._path, self, token)
        self._partial = partial = PartialFile(
            self._source,
            path=self._path,
            file=file,
            token=token,
            cache=self._cache,
            threads=self._threads,
            seen=self._seen,
            probable_end=self._probable_end,
        )
        return partial, file

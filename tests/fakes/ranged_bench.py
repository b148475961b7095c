"""Archived log files that are read by range, over a directory of objects and a cache."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.fetching.fetch_threads import FetchThreads
from cordwood.archive.fetching.ranged_file import RangedFile, RangedObject
from cordwood.archive.manifests.block_sums import SUM_SIZE, BlockSums
from cordwood.archive.objects.local_objects import LocalObjects
from cordwood.archive.objects.object_port import ObjectStore
from cordwood.quantities import GIB, KIB
from cordwood.storage.files import RealFileSystem
from fakes.failing_objects import FailingObjects

BLOCK = 64 * KIB


class RangedBench:
    """Files "0", "1", ... of random bytes, each followed by the next. `objects` can be replaced."""

    def __init__(
        self, directory: Path, sizes: list[int], *, cache_bytes: int = GIB, block: int = BLOCK
    ) -> None:
        self.fs = RealFileSystem()
        self.failing = FailingObjects(LocalObjects(self.fs, str(directory / "archive")))
        self.threads = FetchThreads()
        self.cache = SegmentCache(self.fs, str(directory / "cache"), bytes_max=cache_bytes)
        rng = random.Random(1)
        self.contents = [rng.randbytes(size) for size in sizes]
        self.opened = 0
        self._directory = directory
        self._block = block
        self._sums = [self._sums_of(content) for content in self.contents]
        for number, content in enumerate(self.contents):
            self.failing.inner.put(f"{number}", [content])
        self.use(self.failing)

    def use(self, objects: ObjectStore) -> None:
        """Read from this store, with new files."""
        self.files: list[RangedFile] = []
        for number, content in enumerate(self.contents):
            source = RangedObject(
                objects=objects,
                key=f"{number}",
                size=len(content),
                block_bytes=self._block,
                sums=partial(self._some_sums, number),
            )
            self.files.append(
                RangedFile(
                    source,
                    path=str(self._directory / "cache" / f"{number}.log"),
                    fs=self.fs,
                    cache=self.cache,
                    threads=self.threads,
                    when_opened=self._note_opened,
                    following=partial(self._file, number + 1),
                )
            )

    def _file(self, number: int) -> RangedFile | None:
        return self.files[number] if number < len(self.files) else None

    def _note_opened(self) -> None:
        self.opened += 1

    def _sums_of(self, content: bytes) -> bytes:
        sums = BlockSums(self._block)
        sums.update(content)
        return sums.finish()

    def _some_sums(self, number: int, first: int, end: int) -> bytes:
        return self._sums[number][first * SUM_SIZE : end * SUM_SIZE]

    def damage(self, number: int, content: bytes) -> None:
        """Another object in the place of file `number`."""
        self.failing.inner.put(f"{number}", [content])

    def heal(self) -> None:
        self.failing.heal()
        for number, content in enumerate(self.contents):
            self.failing.inner.put(f"{number}", [content])

    def close(self) -> None:
        self.threads.close(60)
        self.cache.close()

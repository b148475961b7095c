"""An object store that watches how many ranges are asked for at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from cordwood.archive.objects.object_port import ObjectInfo, ObjectStore
from cordwood.storage.files import Buffer

_TIMEOUT_S = 60.0


class WatchedObjects:
    """Passes calls on to another store. Counts ranges, and the bytes asked for."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.calls = 0
        self.bytes_asked = 0
        self.together_max = 0
        self._together = 0
        self._awaited = 0
        self._position_min = 0
        self._changed = threading.Condition()

    def await_together(self, count: int, *, position_min: int = 0) -> None:
        """Ranges from `position_min` on wait until `count` ranges are there, once."""
        self._awaited = count
        self._position_min = position_min

    def get_range(self, key: str, position: int, size: int, *, whole: int | None = None) -> bytes:
        with self._changed:
            self.calls += 1
            self.bytes_asked += size
            self._together += 1
            self.together_max = max(self.together_max, self._together)
            self._changed.notify_all()
            if position >= self._position_min and self._awaited:
                there = self._changed.wait_for(
                    lambda: self.together_max >= self._awaited, _TIMEOUT_S
                )
                assert there, f"{self.together_max} ranges together, not {self._awaited}"
        try:
            return self.inner.get_range(key, position, size, whole=whole)
        finally:
            with self._changed:
                self._together -= 1

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def checksum_part_bytes(self) -> int | None:
        return self.inner.checksum_part_bytes

    def checksum(self, key: str) -> str | None:
        return self.inner.checksum(key)

    def distrust_checksums(self) -> None:
        self.inner.distrust_checksums()

    def put(self, key: str, pieces: Iterable[Buffer]) -> None:
        self.inner.put(key, pieces)

    def read(self, key: str) -> Iterator[bytes]:
        return self.inner.read(key)

    def size(self, key: str) -> int:
        return self.inner.size(key)

    def listing(self, prefix: str) -> list[ObjectInfo]:
        return self.inner.listing(prefix)

    def names(self, prefix: str) -> list[str]:
        return self.inner.names(prefix)

    def delete(self, key: str) -> None:
        self.inner.delete(key)

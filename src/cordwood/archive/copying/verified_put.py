"""Putting an object and making sure that the store has what was put.

If the store keeps a checksum of each object, asking for it costs one request and no traffic. If it
keeps none, or one of another kind, the object is read back.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator

from cordwood.archive.objects.content_checksum import ContentChecksum
from cordwood.archive.objects.object_port import ObjectStore
from cordwood.errors import StorageError


class VerifiedPut:
    """Puts one object. `check_running` is called for each piece, and raises to stop."""

    def __init__(self, objects: ObjectStore, key: str, check_running: Callable[[], None]) -> None:
        self._objects = objects
        self._key = key
        self._check_running = check_running
        self._digest = hashlib.sha256()
        part_bytes = objects.checksum_part_bytes
        self._checksum = None if part_bytes is None else ContentChecksum(part_bytes)
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def run(self, pieces: Iterable[bytes]) -> None:
        """Raises `StorageError` if the object is not what was put."""
        self._objects.put(self._key, self._noted(pieces))
        if self._checksum is None:
            self._read_back()
            return
        stored = self._objects.checksum(self._key)
        if stored == self._checksum.value():
            return
        self._read_back()
        if stored is not None:
            self._objects.distrust_checksums()

    def _noted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._check_running()
            self._digest.update(piece)
            if self._checksum is not None:
                self._checksum.update(piece)
            self.size += len(piece)
            yield piece

    def _read_back(self) -> None:
        back, size = hashlib.sha256(), 0
        for piece in self._objects.read(self._key):
            self._check_running()
            back.update(piece)
            size += len(piece)
        if back.digest() != self._digest.digest() or size != self.size:
            raise StorageError(
                f"{self._objects.url}/{self._key} differs from what was put: {size} bytes were "
                f"read back, {self.size} bytes were put"
            )

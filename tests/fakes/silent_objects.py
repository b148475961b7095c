"""An object store that takes calls and does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from cordwood.archive.objects.object_store import ObjectInfo
from cordwood.storage.files import Buffer


class SilentObjects:
    """Every call waits until `give_up`, and then fails."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.called = threading.Event()
        self._is_over = threading.Event()

    def give_up(self) -> None:
        self._is_over.set()

    def _wait(self) -> OSError:
        self.called.set()
        assert self._is_over.wait(120), "nobody gave up"
        return OSError("no answer")

    def put(self, key: str, pieces: Iterable[Buffer]) -> None:
        raise self._wait()

    def read(self, key: str) -> Iterator[bytes]:
        raise self._wait()

    def get_range(self, key: str, position: int, size: int, *, whole: int | None = None) -> bytes:
        raise self._wait()

    @property
    def checksum_part_bytes(self) -> int | None:
        return None

    def checksum(self, key: str) -> str | None:
        raise self._wait()

    def distrust_checksums(self) -> None:
        """Nothing to do: there are none."""

    def size(self, key: str) -> int:
        raise self._wait()

    def listing(self, prefix: str) -> list[ObjectInfo]:
        raise self._wait()

    def names(self, prefix: str) -> list[str]:
        raise self._wait()

    def delete(self, key: str) -> None:
        raise self._wait()

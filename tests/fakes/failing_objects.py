"""An object store that fails, or dies, at the Nth call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cordwood.archive.objects.object_port import ConditionalObjects
from cordwood.archive.objects.object_store import ObjectInfo, ObjectStore
from cordwood.storage.files import Buffer


class ProcessKilled(BaseException):
    """Not an Exception: nothing may handle it, as nothing handles SIGKILL."""


class FailingObjects:
    """Passes calls on to another store, and counts them.

    `fail_at(n)` makes the nth call from now raise before it has any effect; with `late`, after
    it had all of it, as when the answer is lost. `after` fails every call from the nth on.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.calls = 0
        self.call_log: list[tuple[str, str]] = []
        self._fails_at: int | None = None
        self._is_late = False
        self._goes_on = False
        self._error: Callable[[], BaseException] = lambda: OSError("the network is down")

    def fail_at(
        self,
        number: int,
        *,
        late: bool = False,
        goes_on: bool = False,
        error: Callable[[], BaseException] | None = None,
    ) -> None:
        self._fails_at = self.calls + number
        self._is_late = late
        self._goes_on = goes_on
        if error is not None:
            self._error = error

    def heal(self) -> None:
        self._fails_at = None

    def _call(self, name: str, key: str) -> bool:
        """Count the call; True when it has to fail once it is done."""
        self.calls += 1
        self.call_log.append((name, key))
        at = self._fails_at
        is_due = at is not None and (self.calls == at or (self._goes_on and self.calls >= at))
        if is_due and not self._is_late:
            raise self._error()
        return is_due

    @property
    def url(self) -> str:
        return self.inner.url

    def put(self, key: str, pieces: Iterable[Buffer]) -> None:
        fails = self._call("put", key)
        self.inner.put(key, pieces)
        if fails:
            raise self._error()

    def read(self, key: str) -> Iterator[bytes]:
        fails = self._call("read", key)
        yield from self.inner.read(key)
        if fails:
            raise self._error()

    def get_range(self, key: str, position: int, size: int, *, whole: int | None = None) -> bytes:
        fails = self._call("get_range", key)
        found = self.inner.get_range(key, position, size, whole=whole)
        if fails:
            raise self._error()
        return found

    @property
    def checksum_part_bytes(self) -> int | None:
        return self.inner.checksum_part_bytes

    def checksum(self, key: str) -> str | None:
        self._call("checksum", key)
        return self.inner.checksum(key)

    def distrust_checksums(self) -> None:
        self.inner.distrust_checksums()

    def why_unconditional(self) -> str | None:
        return None

    def get_tagged(self, key: str, *, limit: int) -> tuple[bytes, str]:
        self._call("get_tagged", key)
        assert isinstance(self.inner, ConditionalObjects)
        return self.inner.get_tagged(key, limit=limit)

    def put_if(self, key: str, data: bytes, *, replaces: str | None) -> str:
        fails = self._call("put_if", key)
        assert isinstance(self.inner, ConditionalObjects)
        tag = self.inner.put_if(key, data, replaces=replaces)
        if fails:
            raise self._error()
        return tag

    def size(self, key: str) -> int:
        self._call("size", key)
        return self.inner.size(key)

    def listing(self, prefix: str) -> list[ObjectInfo]:
        self._call("listing", prefix)
        return self.inner.listing(prefix)

    def names(self, prefix: str) -> list[str]:
        self._call("names", prefix)
        return self.inner.names(prefix)

    def delete(self, key: str) -> None:
        fails = self._call("delete", key)
        self.inner.delete(key)
        if fails:
            raise self._error()

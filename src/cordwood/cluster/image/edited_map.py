"""A mapping under change: it copies the original before the first change."""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class EditedMap(Generic[K, V]):
    """One mapping of an image while records are applied. Belongs to one `ImageBuilder`.

    The original is never changed, because readers have it. `changed` are the keys that were set
    or removed.
    """

    __slots__ = ("_current", "_is_copy", "_original", "changed")

    def __init__(self, original: Mapping[K, V]) -> None:
        self._original = original
        self._current: Mapping[K, V] = original
        self._is_copy = False
        self.changed: set[K] = set()

    def get(self, key: K) -> V | None:
        return self._current.get(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self._current)

    def items(self) -> list[tuple[K, V]]:
        """A list, so that the map may be changed meanwhile."""
        return list(self._current.items())

    def put(self, key: K, value: V) -> None:
        self._copy()[key] = value
        self.changed.add(key)

    def remove(self, key: K) -> V | None:
        """Remove `key`, if there; its value."""
        if key not in self._current:
            return None
        self.changed.add(key)
        return self._copy().pop(key)

    def finish(self) -> Mapping[K, V]:
        """The mapping as it is now. Later changes make another copy."""
        self._original = self._current
        self._is_copy = False
        self.changed = set()
        return self._current

    def _copy(self) -> dict[K, V]:
        if not self._is_copy:
            self._current = dict(self._original)
            self._is_copy = True
        assert isinstance(self._current, dict)
        return self._current

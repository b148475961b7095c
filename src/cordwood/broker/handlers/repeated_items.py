"""What a request names twice, where once is all it may."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def split_repeated(
    items: Iterable[Item], key: Callable[[Item], Key]
) -> tuple[list[Item], list[Key]]:
    """The items whose key no other item has, and the keys that several have; both in order."""
    listed = list(items)
    counts = Counter(map(key, listed))
    return (
        [item for item in listed if counts[key(item)] == 1],
        [found for found, count in counts.items() if count > 1],
    )

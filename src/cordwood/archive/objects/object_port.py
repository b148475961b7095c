"""The port to object storage: the few operations that every object store has.

Each store promises this, and the archive relies on nothing else:

    put        the object exists whole or not at all, and replaces an object of the same key.
               Durable on return. After an error the old or the new object may exist, or (not for
               directories) a part of the new one
    delete     the object is gone; deleting a missing object is not an error
    listing    contains every object that was put before the call

A store in which brokers of a cluster archive also promises `ConditionalObjects`.

Keys are relative to the URL, with parts separated by "/". Errors are `OSError`; a missing key is
`FileNotFoundError`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, runtime_checkable

from cordwood.errors import LimitExceededError, TruncatedInputError
from cordwood.quantities import MIB
from cordwood.storage.files import Buffer, FileSystem, write_all
from cordwood.value_class import dataclass

PIECE_BYTES: Final = 4 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object in a listing. `modified_ms` is the time of the store's clock, not ours."""

    key: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """See the head of this module. Any thread may call it."""

    @property
    def url(self) -> str:
        """The URL without credentials, for messages."""
        ...

    def put(self, key: str, pieces: Iterable[Buffer]) -> None:
        """Store an object. Takes the pieces one at a time."""
        ...

    def read(self, key: str) -> Iterator[bytes]:
        """The object's bytes in pieces of at most `PIECE_BYTES`."""
        ...

    def get_range(self, key: str, position: int, size: int, *, whole: int | None = None) -> bytes:
        """`size` bytes from `position` on; fewer only at the end of the object.

        `whole` is the size that the object must have: see `check_whole`. For objects that are
        never replaced: a store may remember what it found when it was first asked for the key.
        """
        ...

    @property
    def checksum_part_bytes(self) -> int | None:
        """The parts of which the store makes a checksum (`ContentChecksum`); None: it has none."""
        ...

    def checksum(self, key: str) -> str | None:
        """What the store computed from the object's bytes when it took them; None if unknown.

        If it equals the `ContentChecksum` of what was put, the object is what was put. If it
        differs, it may be a checksum of another kind: that proves nothing.
        """
        ...

    def distrust_checksums(self) -> None:
        """A sound object has another checksum than expected: use none from now on."""
        ...

    def size(self, key: str) -> int: ...

    def listing(self, prefix: str) -> list[ObjectInfo]:
        """Every object below `prefix`, whole parts of a key, in order of keys."""
        ...

    def names(self, prefix: str) -> list[str]:
        """The next part of every key below `prefix`, in order, without repeats; "" is the top."""
        ...

    def delete(self, key: str) -> None: ...


@runtime_checkable
class ConditionalObjects(Protocol):
    """A store in which a small object is replaced only if nobody else has replaced it.

    A tag stands for the content of an object. Of several who replace the same content at the same
    time, one succeeds. After any other error than `FileExistsError`, nobody knows whether the
    object was replaced.
    """

    def why_unconditional(self) -> str | None:
        """Why this store cannot do it, and what would help; None if it can."""
        ...

    def get_tagged(self, key: str, *, limit: int) -> tuple[bytes, str]:
        """The bytes of a small object, and its tag. `LimitExceededError` beyond `limit`."""
        ...

    def put_if(self, key: str, data: bytes, *, replaces: str | None) -> str:
        """Store an object instead of the one with the tag `replaces`; None: instead of none.

        Returns its tag. Raises `FileExistsError` if there is another object.
        """
        ...


def get(store: ObjectStore, key: str, *, limit: int) -> bytes:
    """The bytes of a small object. Raises `LimitExceededError` if it has more than `limit`."""
    pieces: list[bytes] = []
    size = 0
    for piece in store.read(key):
        size += len(piece)
        if size > limit:
            raise LimitExceededError(f"object {key}", size=size, limit=limit)
        pieces.append(piece)
    return b"".join(pieces)


def read_part(
    store: ObjectStore, key: str, position: int, size: int, *, whole: int
) -> Iterator[bytes]:
    """`size` bytes of an object from `position` on, in pieces. For `whole` see `check_whole`."""
    end = position + size
    for start in range(position, end, PIECE_BYTES):
        yield store.get_range(key, start, min(PIECE_BYTES, end - start), whole=whole)


def check_whole(key: str, *, size: int, whole: int | None) -> None:
    """Raise `TruncatedInputError` or `LimitExceededError` if an object has another size."""
    if whole is not None and size < whole:
        raise TruncatedInputError(f"object {key}", needed=whole, got=size)
    if whole is not None and size > whole:
        raise LimitExceededError(f"object {key}", size=size, limit=whole)


def copy_into(
    fs: FileSystem,
    path: str,
    pieces: Iterable[bytes],
    *,
    size: int,
    note: Callable[[bytes], None],
    sync: bool = False,
) -> None:
    """Write an object to a new file of exactly `size` bytes; call `note` with each piece.

    Raises `TruncatedInputError` or `LimitExceededError` if the object has another size.
    """
    file = fs.create(path, exclusive=False)
    try:
        position = 0
        for piece in pieces:
            if position + len(piece) > size:
                raise LimitExceededError(
                    f"object for {path}", size=position + len(piece), limit=size
                )
            note(piece)
            write_all(file, position, piece)
            position += len(piece)
        if position < size:
            raise TruncatedInputError(f"object for {path}", needed=size, got=position)
        if sync:
            file.sync()
    finally:
        file.close()


def checked_key(key: str) -> str:
    assert not any(part in {"", ".", ".."} for part in key.split("/")), key
    return key

"""Where archived files live: a few operations that every object store has, chosen by URL.

    file:///srv/archive         a directory of this machine, or one that is mounted
    s3://bucket/prefix          S3 and what speaks its protocol, through pyarrow
    gs://  abfs://  hdfs://     whatever else pyarrow knows, untested

What is promised, and all that the rest relies on:

    put        the object is there whole, or not at all, under its key; an existing one of that
               key is replaced. Durable on return. After an error there may be either one, or
               (object stores only) a piece of the new one
    delete     afterwards it is gone; one that is not there is no error
    listing    every object put before the call is in it

Keys are relative to the URL, parted by "/". Errors are `OSError`; `FileNotFoundError` for a key
that is not there.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from cordwood.errors import ConfigError, LimitExceededError, TruncatedInputError
from cordwood.quantities import MIB
from cordwood.storage.files import (
    TEMPORARY_SUFFIX,
    Buffer,
    FileSystem,
    make_durable_directory,
    write_all,
)

if TYPE_CHECKING:
    import pyarrow.fs as pafs

PIECE_BYTES: Final = 4 * MIB
_LOCAL_SCHEME: Final = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object, as a listing shows it. `modified_ms` is the store's clock, not ours."""

    key: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """See the head of this module. Any thread may call it."""

    @property
    def url(self) -> str:
        """Where this is, without credentials: for messages."""
        ...

    def put(self, key: str, pieces: Iterable[Buffer]) -> None:
        """Store an object. The pieces are taken one at a time."""
        ...

    def read(self, key: str) -> Iterator[bytes]:
        """The object's bytes in pieces of at most `PIECE_BYTES`."""
        ...

    def get_range(self, key: str, position: int, size: int) -> bytes:
        """`size` bytes from `position`; fewer only at the end of the object."""
        ...

    def size(self, key: str) -> int: ...

    def listing(self, prefix: str) -> list[ObjectInfo]:
        """Every object whose key starts with `prefix`, a key's leading parts, in order."""
        ...

    def names(self, prefix: str) -> list[str]:
        """The next part of every key below `prefix`, in order, each once; "" is the top."""
        ...

    def delete(self, key: str) -> None: ...


def get(store: ObjectStore, key: str, *, limit: int) -> bytes:
    """A small object; `LimitExceededError` before more than `limit` bytes are held."""
    pieces: list[bytes] = []
    size = 0
    for piece in store.read(key):
        size += len(piece)
        if size > limit:
            raise LimitExceededError(f"object {key}", size=size, limit=limit)
        pieces.append(piece)
    return b"".join(pieces)


def shown_url(url: str) -> str:
    """The URL without user, password and the values of its query: fit for messages and files."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    path = parts.path.rstrip("/") or "/"
    return urlunsplit((parts.scheme, host, path, "", ""))


def check_url(url: str) -> None:
    """Raise `ConfigError` for a URL that no archive can have."""
    parts = urlsplit(url)
    if not parts.scheme or ("://" not in url and parts.scheme != _LOCAL_SCHEME):
        raise ConfigError(
            "archive.url", url, "must be a URL, such as file:///dir or s3://bucket/dir"
        )
    if parts.scheme == _LOCAL_SCHEME:
        if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
            raise ConfigError("archive.url", url, "must name an absolute path, as file:///dir does")
    elif not parts.netloc:
        raise ConfigError(
            "archive.url", shown_url(url), f"must name a bucket: {parts.scheme}://b/p"
        )


def open_object_store(url: str, fs: FileSystem) -> ObjectStore:
    """The store a URL names. Nothing is asked of it yet, so an unreachable one is no error.

    Options of S3 go in the URL's query as pyarrow defines them (``region``, ``scheme``,
    ``endpoint_override``), or in AWS's environment variables, where credentials belong.
    """
    check_url(url)
    parts = urlsplit(url)
    if parts.scheme == _LOCAL_SCHEME:
        return LocalObjects(fs, unquote(parts.path).rstrip("/") or "/")
    return ArrowObjects(url)


class LocalObjects:
    """Objects as files of a directory, put by writing beside, syncing and renaming."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs = fs
        self._root = root

    @property
    def url(self) -> str:
        return f"file://{self._root}"

    def put(self, key: str, pieces: Iterable[Buffer]) -> None:
        path = self._path(key)
        directory = os.path.dirname(path)
        if not self._fs.exists(directory):
            make_durable_directory(self._fs, directory)
        temporary = path + TEMPORARY_SUFFIX
        try:
            file = self._fs.create(temporary, exclusive=False)
            try:
                position = 0
                for piece in pieces:
                    write_all(file, position, piece)
                    position += len(piece)
                file.sync()
            finally:
                file.close()
            self._fs.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                self._fs.remove(temporary)
            raise
        self._fs.sync_directory(directory)

    def read(self, key: str) -> Iterator[bytes]:
        file = self._fs.open_read(self._path(key))
        try:
            position = 0
            while piece := file.read_at(position, PIECE_BYTES):
                position += len(piece)
                yield piece
        finally:
            file.close()

    def get_range(self, key: str, position: int, size: int) -> bytes:
        file = self._fs.open_read(self._path(key))
        try:
            return file.read_at(position, size)
        finally:
            file.close()

    def size(self, key: str) -> int:
        return self._fs.size(self._path(key))

    def listing(self, prefix: str) -> list[ObjectInfo]:
        found: list[ObjectInfo] = []
        top = prefix.rstrip("/")
        self._walk(self._path(top), top, found)
        found.sort(key=lambda info: info.key)
        return found

    def _walk(self, path: str, key: str, found: list[ObjectInfo]) -> None:
        try:
            entries = self._fs.list(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            below = f"{key}/{entry.name}" if key else entry.name
            inner = os.path.join(path, entry.name)
            if entry.is_directory:
                self._walk(inner, below, found)
                continue
            with suppress(FileNotFoundError):  # deleted since it was listed
                modified_ms = self._fs.modified_ms(inner)
                found.append(ObjectInfo(key=below, size=entry.size, modified_ms=modified_ms))

    def names(self, prefix: str) -> list[str]:
        try:
            return [entry.name for entry in self._fs.list(self._path(prefix))]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            self._fs.remove(path)
        except FileNotFoundError:
            return
        self._fs.sync_directory(os.path.dirname(path))

    def _path(self, key: str) -> str:
        return os.path.join(self._root, _checked(key)) if key else self._root


class ArrowObjects:
    """Objects in whatever pyarrow has a file system for. Connects when first used."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._shown = shown_url(url)
        self._connected: tuple[pafs.FileSystem, str] | None = None

    @property
    def url(self) -> str:
        return self._shown

    def _connect(self) -> "tuple[pafs.FileSystem, str]":
        if self._connected is None:
            import pyarrow as pa
            import pyarrow.fs as arrow_fs

            try:
                try:
                    fs, root = arrow_fs.FileSystem.from_uri(_with_single_puts(self._url))
                except pa.ArrowInvalid:  # an older pyarrow, which does not know the option
                    fs, root = arrow_fs.FileSystem.from_uri(self._url)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise ConfigError("archive.url", self._shown, str(error)) from error
            self._connected = (fs, root.rstrip("/"))
        return self._connected

    @contextmanager
    def _at(self, key: str, action: str) -> "Iterator[tuple[pafs.FileSystem, str]]":
        try:
            fs, root = self._connect()
            yield fs, f"{root}/{_checked(key)}" if key else root
        except OSError as error:
            error.add_note(f"while {action} {self._shown}/{key}")
            raise

    def put(self, key: str, pieces: Iterable[Buffer]) -> None:
        with self._at(key, "putting") as (fs, path):
            # Left by an error, the stream makes an object of what it got: nobody refers to it.
            stream = fs.open_output_stream(path)
            for piece in pieces:
                stream.write(piece)
            stream.close()

    def read(self, key: str) -> Iterator[bytes]:
        with self._at(key, "reading") as (fs, path):
            file: Any = fs.open_input_file(path)
            with file:
                while piece := file.read(PIECE_BYTES):
                    yield piece

    def get_range(self, key: str, position: int, size: int) -> bytes:
        with self._at(key, "reading") as (fs, path):
            file: Any = fs.open_input_file(path)
            with file:
                length = int(file.size())
                if position >= length:
                    return b""
                data: bytes = file.read_at(min(size, length - position), position)
                return data

    def size(self, key: str) -> int:
        from pyarrow.fs import FileType

        with self._at(key, "measuring") as (fs, path):
            info: Any = fs.get_file_info([path])[0]
            if info.type != FileType.File:
                raise FileNotFoundError(f"there is no {self._shown}/{key}")
            return int(info.size)

    def listing(self, prefix: str) -> list[ObjectInfo]:
        from pyarrow.fs import FileSelector, FileType

        with self._at(prefix.rstrip("/"), "listing") as (fs, path):
            _, root = self._connect()
            selector = FileSelector(path, allow_not_found=True, recursive=True)
            infos: list[Any] = list(fs.get_file_info(selector))
        found = [
            ObjectInfo(
                key=str(info.path)[len(root) + 1 :],
                size=int(info.size),
                modified_ms=int((info.mtime_ns or 0) // 1_000_000),
            )
            for info in infos
            if info.type == FileType.File
        ]
        found.sort(key=lambda info: info.key)
        return found

    def names(self, prefix: str) -> list[str]:
        from pyarrow.fs import FileSelector

        with self._at(prefix, "listing") as (fs, path):
            selector = FileSelector(path, allow_not_found=True, recursive=False)
            infos: list[Any] = list(fs.get_file_info(selector))
        return sorted(str(info.base_name) for info in infos)

    def delete(self, key: str) -> None:
        with suppress(FileNotFoundError), self._at(key, "deleting") as (fs, path):
            fs.delete_file(path)


def copy_into(
    fs: FileSystem,
    path: str,
    pieces: Iterable[bytes],
    *,
    size: int,
    note: Callable[[bytes], None],
    sync: bool = False,
) -> None:
    """Write an object to a new file of exactly `size` bytes, showing each piece to `note`.

    Raises `TruncatedInputError` or `LimitExceededError` when the size is another.
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


def _with_single_puts(url: str) -> str:
    """Have S3 take a small object in one request, where it would be three."""
    parts = urlsplit(url)
    if parts.scheme != "s3" or "allow_delayed_open" in parts.query:
        return url
    query = "&".join(filter(None, [parts.query, "allow_delayed_open=true"]))
    return urlunsplit(parts._replace(query=query))


def _checked(key: str) -> str:
    assert not any(part in {"", ".", ".."} for part in key.split("/")), key
    return key

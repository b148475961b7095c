"""Object stores, chosen by URL: the few operations that every one of them has.

    file:///srv/archive         a local or mounted directory
    s3://bucket/prefix          S3 and compatible stores, through pyarrow
    gs://  abfs://  hdfs://     other file systems of pyarrow, untested

Each store promises this, and the archive relies on nothing else:

    put        the object exists whole or not at all, and replaces an object of the same key.
               Durable on return. After an error the old or the new object may exist, or (not for
               directories) a part of the new one
    delete     the object is gone; deleting a missing object is not an error
    listing    contains every object that was put before the call

Keys are relative to the URL, with parts separated by "/". Errors are `OSError`; a missing key is
`FileNotFoundError`. A call to S3 that gets no answer ends after about half a minute, and calls
after it fail at once until one of them was answered.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
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
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    import pyarrow.fs as pafs

PIECE_BYTES: Final = 4 * MIB
_LOCAL_SCHEME: Final = "file"
_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 10.0  # without any byte from the server
_ATTEMPTS: Final = 2
_SLOW_S: Final = 4.0  # a call that fails after so long got no answer, rather than a bad one
_PAUSE_S: Final = 10.0  # before a store that does not answer is asked again


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

    def get_range(self, key: str, position: int, size: int) -> bytes:
        """`size` bytes from `position` on; fewer only at the end of the object."""
        ...

    def size(self, key: str) -> int: ...

    def listing(self, prefix: str) -> list[ObjectInfo]:
        """Every object below `prefix`, whole parts of a key, in order of keys."""
        ...

    def names(self, prefix: str) -> list[str]:
        """The next part of every key below `prefix`, in order, without repeats; "" is the top."""
        ...

    def delete(self, key: str) -> None: ...


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


def shown_url(url: str) -> str:
    """The URL without user, password and query, for messages and files."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    path = parts.path.rstrip("/") or "/"
    return urlunsplit((parts.scheme, host, path, "", ""))


def check_url(url: str, *, key: str = "archive.url") -> None:
    """Raise `ConfigError` if no archive can have this URL."""
    parts = urlsplit(url)
    if not parts.scheme or ("://" not in url and parts.scheme != _LOCAL_SCHEME):
        raise ConfigError(key, url, "must be a URL, such as file:///dir or s3://bucket/dir")
    if parts.scheme == _LOCAL_SCHEME:
        if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
            raise ConfigError(key, url, "must name an absolute path, as file:///dir does")
    elif not parts.netloc:
        raise ConfigError(key, shown_url(url), f"must name a bucket: {parts.scheme}://b/p")


def endpoint(url: str) -> str:
    """Where the requests for a URL go: the same text for the same server and options."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, "", parts.query, ""))


def open_object_store(url: str, fs: FileSystem) -> ObjectStore:
    """The object store of a URL. Does not connect yet, so an unreachable store is not an error.

    Options of S3 belong in the URL's query as pyarrow defines them (``region``, ``scheme``,
    ``endpoint_override``), or in AWS's environment variables, and credentials only there.
    """
    check_url(url)
    parts = urlsplit(url)
    if parts.scheme == _LOCAL_SCHEME:
        return LocalObjects(fs, unquote(parts.path).rstrip("/") or "/")
    return ArrowObjects(url)


class LocalObjects:
    """Objects as files in a directory. Writes a temporary file, syncs it and renames it."""

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


class _Silence:
    """Keeps calls away from a store that does not answer. Any thread may use it.

    After a call that failed slowly, one call after each pause tries again; all others fail at
    once. So a silent store costs its callers the time of one call, not one call each.
    """

    def __init__(self, shown_url: str) -> None:
        self._shown = shown_url
        self._lock = threading.Lock()
        self._next_try_s: float | None = None  # None: it answers
        self._is_trying = False

    @contextmanager
    def observe(self) -> Iterator[None]:
        began_s = time.monotonic()
        is_trial = self._begin(began_s)
        try:
            yield
        except FileNotFoundError:
            self._answered()
            raise
        except OSError:
            if is_trial or time.monotonic() - began_s >= _SLOW_S:
                with self._lock:
                    self._next_try_s = time.monotonic() + _PAUSE_S
            raise
        else:
            self._answered()
        finally:
            if is_trial:
                self._is_trying = False

    def _begin(self, now_s: float) -> bool:
        with self._lock:
            if self._next_try_s is None:
                return False
            if self._is_trying or now_s < self._next_try_s:
                raise TimeoutError(f"{self._shown} does not answer; it will be tried again soon")
            self._is_trying = True
            return True

    def _answered(self) -> None:
        with self._lock:
            self._next_try_s = None


class ArrowObjects:
    """Objects in any file system of pyarrow. Connects when first used."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._shown = shown_url(url)
        self._silence = _Silence(self._shown)
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
                except pa.ArrowInvalid:  # an older pyarrow without this option
                    fs, root = arrow_fs.FileSystem.from_uri(self._url)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise ConfigError("archive.url", self._shown, str(error)) from error
            self._connected = (_with_time_limits(fs), root.rstrip("/"))
        return self._connected

    @contextmanager
    def _at(self, key: str, action: str) -> "Iterator[tuple[pafs.FileSystem, str]]":
        try:
            with self._silence.observe():
                fs, root = self._connect()
                yield fs, f"{root}/{_checked(key)}" if key else root
        except OSError as error:
            error.add_note(f"while {action} {self._shown}/{key}")
            raise

    def put(self, key: str, pieces: Iterable[Buffer]) -> None:
        with self._at(key, "putting") as (fs, path):
            # After an error the stream still makes an object of its part: no manifest names it.
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
                raise FileNotFoundError(f"{self._shown}/{key} does not exist")
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


def _with_single_puts(url: str) -> str:
    """Make S3 take a small object in one request instead of three."""
    parts = urlsplit(url)
    if parts.scheme != "s3" or "allow_delayed_open" in parts.query:
        return url
    query = "&".join(filter(None, [parts.query, "allow_delayed_open=true"]))
    return urlunsplit(parts._replace(query=query))


def _with_time_limits(fs: "pafs.FileSystem") -> "pafs.FileSystem":
    """The same file system; S3 with limits on waiting. Without them a call can take minutes."""
    import pyarrow.fs as arrow_fs

    s3 = getattr(arrow_fs, "S3FileSystem", None)  # not in every build
    if s3 is None or not isinstance(fs, s3):
        return fs
    _, (options,) = fs.__reduce__()  # the limits cannot be part of a URL
    retries = arrow_fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)
    limits = {"connect_timeout": _CONNECT_S, "request_timeout": _ANSWER_S}
    limited: pafs.FileSystem = s3(**{**options, **limits, "retry_strategy": retries})
    return limited


def _checked(key: str) -> str:
    assert not any(part in {"", ".", ".."} for part in key.split("/")), key
    return key

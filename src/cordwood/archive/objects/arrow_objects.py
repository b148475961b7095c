"""Objects in S3 and other file systems of pyarrow.

A call to S3 that gets no answer ends after about half a minute, and calls after it fail at once
until one of them was answered.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from cordwood.archive.objects.object_port import PIECE_BYTES, ObjectInfo, check_whole, checked_key
from cordwood.archive.objects.object_urls import shown_url
from cordwood.archive.objects.s3_conditions import S3Conditions, why_no_conditions
from cordwood.errors import ConfigError
from cordwood.quantities import MIB
from cordwood.storage.files import Buffer

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 10.0  # without any byte from the server
_ATTEMPTS: Final = 2
_SLOW_S: Final = 4.0  # a call that fails after so long got no answer, rather than a bad one
_PAUSE_S: Final = 10.0  # before a store that does not answer is asked again
# The size of the parts in which pyarrow uploads. A smaller object is uploaded whole.
_PART_BYTES: Final = 10 * MIB
_OPEN_OBJECTS_MAX: Final = 64  # each costs a few hundred bytes, and saves a request


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
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, Any] = OrderedDict()
        self._has_checksums = urlsplit(url).scheme == "s3"
        self._conditions: S3Conditions | None = None

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
                yield fs, f"{root}/{checked_key(key)}" if key else root
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

    def get_range(self, key: str, position: int, size: int, *, whole: int | None = None) -> bytes:
        began_s = time.monotonic()
        with self._lock:
            file = self._opened.get(key)
        if file is not None:
            try:
                return self._range(file, key, position, size, whole)
            except OSError:
                # Asked again from the start: a deleted object shall be a `FileNotFoundError`.
                self._forget(key)
                if time.monotonic() - began_s >= _SLOW_S:
                    raise
        with self._at(key, "reading") as (fs, path):
            file = fs.open_input_file(path)
        with self._lock:
            self._opened[key] = file
            while len(self._opened) > _OPEN_OBJECTS_MAX:
                self._opened.popitem(last=False)
        return self._range(file, key, position, size, whole)

    def _range(self, file: Any, key: str, position: int, size: int, whole: int | None) -> bytes:
        length = int(file.size())
        check_whole(key, size=length, whole=whole)
        wanted = min(size, length - position)
        if wanted <= 0:
            return b""
        with self._at(key, "reading"):
            data: bytes = file.read_at(wanted, position)
            return data

    def _forget(self, key: str) -> None:
        with self._lock:
            self._opened.pop(key, None)

    @property
    def checksum_part_bytes(self) -> int | None:
        return _PART_BYTES if self._has_checksums else None

    def checksum(self, key: str) -> str | None:
        if not self._has_checksums:
            return None
        with self._at(key, "asking for the checksum of") as (fs, path):
            opened: Any = fs.open_input_file(path)
            with opened:
                found: dict[str, bytes] = opened.metadata() or {}
        tag = found.get("ETag", b"").decode("ascii", "replace").strip('"')
        return tag or None

    def distrust_checksums(self) -> None:
        self._has_checksums = False

    # --- conditional puts ----------------------------------------------------------------------

    def why_unconditional(self) -> str | None:
        return why_no_conditions(self._url)

    def get_tagged(self, key: str, *, limit: int) -> tuple[bytes, str]:
        with self._silence.observe():
            return self._s3().get_tagged(checked_key(key), limit=limit)

    def put_if(self, key: str, data: bytes, *, replaces: str | None) -> str:
        try:
            with self._silence.observe():
                return self._s3().put_if(checked_key(key), data, replaces=replaces)
        except OSError as error:
            error.add_note(f"while replacing {self._shown}/{key}")
            raise

    def _s3(self) -> S3Conditions:
        with self._lock:
            if self._conditions is None:
                self._conditions = S3Conditions(self._url)
            return self._conditions

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
        self._forget(key)
        with suppress(FileNotFoundError), self._at(key, "deleting") as (fs, path):
            fs.delete_file(path)


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

"""The files of the topic catalog: one line for each request that changes topics.

Every data directory holds two copies, `cordwood-topics` and `cordwood-topics.copy`, in the form
of `format/small_files/checked_lines.py`: the catalog at some time, and the changes since. A change
is durable once its line is synced in the first file of every directory. The second files get the
line at the same time and are synced with the next checkpoint.

The newest sound copy counts. Indexes and checkpoints can be derived from other files; the catalog
cannot, and a topic that fell back to the default retention would lose data. So if no copy can be
read, the store refuses to open.
"""

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, Protocol

from cordwood.errors import FormatError, StorageError
from cordwood.format.small_files.checked_lines import (
    CheckedLine,
    decode_lines,
    encode_head,
    encode_line,
    padded,
)
from cordwood.log.topics.topic_catalog import (
    Catalog,
    CatalogChange,
    TopicEntry,
    parse_change,
    parse_state,
    render_change,
    render_state,
)
from cordwood.quantities import KIB, MIB
from cordwood.storage.disk.disk_errors import FAILING_DISK_ERRNOS, FULL_DISK_ERRNOS
from cordwood.storage.files import FileSystem, read_whole, replace_file, sync_file, write_all
from cordwood.value_class import replace

logger = logging.getLogger(__name__)

CATALOG_FILE: Final = "cordwood-topics"
_COPY_FILE: Final = "cordwood-topics.copy"
_CATALOG_BYTES_MAX: Final = 256 * MIB
_CHANGES_BYTES_MIN: Final = 64 * KIB  # a file is not written again for fewer changes than that


class _ReadCatalog(NamedTuple):
    """The content of one file. `end` is where its next line goes; None: write the file again."""

    catalog: Catalog
    end: int | None


def render_catalog(catalog: Catalog) -> bytes:
    """A whole file without changes."""
    line = encode_line(CheckedLine(catalog.generation, render_state(catalog)))
    return padded(encode_head(CATALOG_FILE) + line, position=0)


def parse_catalog(content: bytes) -> Catalog:
    """Raises `FormatError` for a damaged file. A torn last line does not count."""
    return _parse(content).catalog


def _parse(content: bytes) -> _ReadCatalog:
    found = decode_lines(CATALOG_FILE, content)
    first, *changes = found.lines
    catalog = parse_state(first.generation, first.body)
    for line in changes:
        catalog = catalog.after(parse_change(line.body))
    return _ReadCatalog(catalog, None if found.is_torn else found.end)


def _paths(directories: Sequence[str], name: str) -> list[str]:
    return [os.path.join(directory, name) for directory in directories]


def write_catalog(fs: FileSystem, directories: Sequence[str], catalog: Catalog) -> int:
    """Write all copies again; return their size without blanks.

    Durable on return, in every directory whose disk works, at least in one. A crash in between
    leaves the old or the new.
    """
    content = render_catalog(catalog)
    failures = _Failures(directories)
    for directory in directories:
        with failures.tolerated():
            for path in _paths([directory], CATALOG_FILE) + _paths([directory], _COPY_FILE):
                try:
                    replace_file(fs, path, content)
                except OSError as error:
                    if error.errno not in FULL_DISK_ERRNOS:
                        raise
                    _overwrite(fs, path, content, error)
    return len(content.rstrip(b" "))


class _Failures:
    """Failing disks: a change needs only one that works."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._left = len(directories)
        self.are_any = False

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Let one directory fail unless it is the last one."""
        try:
            yield
        except OSError as error:
            self._left -= 1
            self.are_any = True
            if error.errno not in FAILING_DISK_ERRNOS or not self._left:
                raise


def _overwrite(fs: FileSystem, path: str, content: bytes, full: OSError) -> None:
    """Write into the blocks that the file already has: a full disk must allow deleting a topic.

    This is not atomic, but the other copy is not touched until this one is durable.
    """
    try:
        file = fs.open_write(path)
    except FileNotFoundError:
        raise full from None
    try:
        if file.size() < len(content):
            raise full
        write_all(file, 0, content)
        file.truncate_to(len(content))
        file.sync()
    finally:
        file.close()


def read_catalog(fs: FileSystem, directories: Sequence[str]) -> Catalog | None:
    """The newest sound copy; None when there is no catalog at all.

    Raises `StorageError` when there are copies and none can be read.
    """
    return CatalogReader(fs, directories).read()


class CatalogReader:
    """Reads the catalog repeatedly. Content that did not change is not parsed again."""

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        self._fs = fs
        self._paths = [
            path
            for directory in directories
            for path in _paths([directory], CATALOG_FILE) + _paths([directory], _COPY_FILE)
        ]
        self._parsed: dict[bytes, _ReadCatalog] = {}

    def read(self) -> Catalog | None:
        """See `read_catalog`."""
        found = self.read_with_end()
        return None if found is None else found.catalog

    def read_with_end(self) -> _ReadCatalog | None:
        """The newest catalog; with an end only if all copies are there and equal."""
        sound: dict[bytes, _ReadCatalog] = {}
        faults: list[str] = []
        count = 0
        for path in self._paths:
            try:
                content = read_whole(self._fs, path, limit=_CATALOG_BYTES_MAX)
                if content not in sound:
                    sound[content] = self._parsed.get(content) or _parse(content)
                count += 1
            except FileNotFoundError:
                continue
            except FormatError as error:
                faults.append(f"{path}: {error}")
        self._parsed = sound
        if sound:
            newest = max(sound.values(), key=lambda read: read.catalog.generation)
            is_whole = len(sound) == 1 and count == len(self._paths)
            return newest if is_whole else newest._replace(end=None)
        if faults:
            raise StorageError(
                "no copy of the topic catalog can be read. Opening without it could delete data "
                "under the wrong retention. Restore one of these files from a backup, or open "
                f"with read_only=True to save the records ({'; '.join(faults)})"
            )
        return None


class KeptCatalog(Protocol):
    """The catalog of a store that is open for writing. Any thread may use it.

    `is_new`: the store has just been made. It takes no other lock.
    """

    @property
    def is_new(self) -> bool: ...
    @property
    def catalog(self) -> Catalog: ...
    @property
    def topics(self) -> Mapping[str, TopicEntry]: ...

    def apply(self, change: CatalogChange) -> None:
        """Make a change. Durable on return; if it fails, nothing has changed."""
        ...

    def begin(self, entry: TopicEntry, number: int) -> None:
        """A partition is about to acknowledge its first records. Durable on return."""
        ...

    def sync_copies(self) -> None:
        """Make all copies durable."""
        ...


class CatalogKeeper:
    """The catalog of a store that is open for writing: the same in memory and on disk.

    Any thread may use it. It takes no other lock, so it may be called with any lock held.
    """

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        """Reads the newest sound copy; `is_new` if there is none.

        What was read is durable on return: the last owner may have ended before its sync did.
        """
        self._fs = fs
        self._directories = directories
        self._lock = threading.Lock()
        found = CatalogReader(fs, directories).read_with_end()
        self.is_new = found is None
        self._catalog = Catalog(generation=0) if found is None else found.catalog
        # Where the next line goes; None: the files must be written again before anything else.
        self._end = None if found is None else found.end
        self._changes_end = 0  # beyond it, the files are written again
        self._are_copies_unsynced = False
        if self._end is not None:
            self._changes_end = self._end + _CHANGES_BYTES_MIN
        if found is not None:
            self._settle()

    def _settle(self) -> None:
        """Make the files durable as they are, or all of them again if they differ."""
        if self._end is None:
            try:
                return self._write_anew(self._catalog)
            except OSError as error:
                if error.errno not in FULL_DISK_ERRNOS:
                    raise
        failures = _Failures(self._directories)
        for directory in self._directories:
            with failures.tolerated():
                for path in _paths([directory], CATALOG_FILE) + _paths([directory], _COPY_FILE):
                    with suppress(FileNotFoundError):
                        sync_file(self._fs, path)

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    @property
    def topics(self) -> Mapping[str, TopicEntry]:
        return self._catalog.topics

    def apply(self, change: CatalogChange) -> None:
        """Make a change. Durable on return; if it fails, nothing has changed."""
        with self._lock:
            new = self._catalog.after(change)
            line = encode_line(CheckedLine(new.generation, render_change(change)))
            try:
                if self._end is None or self._end + len(line) > self._changes_end:
                    self._write_anew(new)
                else:
                    self._append(line, new)
            except OSError:
                self._undo(new.generation + 1)
                raise
            self._catalog = new

    def begin(self, entry: TopicEntry, number: int) -> None:
        """A partition is about to acknowledge its first records. Durable on return."""
        known = self._catalog.topics.get(entry.name)
        if known is None or known.topic_id != entry.topic_id or known.has_begun(number):
            return
        self.apply(CatalogChange(begin={entry.name: (number,)}))

    def sync_copies(self) -> None:
        """Make the second files durable too."""
        with self._lock:
            if self._end is None:
                self._write_anew(self._catalog)
            elif self._are_copies_unsynced:
                for path in _paths(self._directories, _COPY_FILE):
                    sync_file(self._fs, path)
                self._are_copies_unsynced = False

    def _write_anew(self, catalog: Catalog) -> None:
        self._end = None
        end = write_catalog(self._fs, self._directories, catalog)
        self._end = end
        self._changes_end = end + max(end, _CHANGES_BYTES_MIN)
        self._are_copies_unsynced = False

    def _append(self, line: bytes, new: Catalog) -> None:
        assert self._end is not None
        position, self._end = self._end, None
        failures = _Failures(self._directories)
        try:
            for directory in self._directories:
                with failures.tolerated():
                    for path in _paths([directory], CATALOG_FILE):
                        self._write_line(path, position, line, sync=True)
                    for path in _paths([directory], _COPY_FILE):
                        self._write_line(path, position, line, sync=False)
        except OSError as error:
            if error.errno not in FULL_DISK_ERRNOS:
                raise
            self._write_anew(new)  # it is shorter, and may fit into the blocks of the files
            return
        self._end = None if failures.are_any else position + len(line)
        self._are_copies_unsynced = True

    def _write_line(self, path: str, position: int, line: bytes, *, sync: bool) -> None:
        file = self._fs.open_write(path)
        try:
            has_room = position + len(line) <= file.size()
            write_all(file, position, line if has_room else padded(line, position=position))
            if sync:
                file.sync()
        finally:
            file.close()

    def _undo(self, generation: int) -> None:
        """After a failed change: some of the files may have it, and must not."""
        self._catalog = replace(self._catalog, generation=generation)
        try:
            self._write_anew(self._catalog)
        except OSError as error:
            logger.error("a failed change of the topic catalog could not be undone: %s", error)

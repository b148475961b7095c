"""The runs of a Parquet table: directories of files with the state of the table at that moment.

    run=00000000000000000001/   part-….parquet, _cordwood.json
    run=00000000000000000002/   …, or day=2026-01-31/part-….parquet if it is divided by time

A run changes only as a whole: another directory is exchanged for it. A reader that lists a
directory sees the files from before or those from after. Rows never move to another directory,
because a reader lists one directory after the other. The replaced directory stays for a while
(`replaced_runs`), for a reader that has opened it and not listed it yet.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cordwood.errors import TableChangedError
from cordwood.quantities import MIB
from cordwood.spark.tables.replaced_runs import ReplacedRuns
from cordwood.storage.disk.directory_exchange import exchange
from cordwood.storage.files import RealFileSystem, read_whole
from cordwood.value_class import dataclass

STATE: Final = "_cordwood.json"
_RUN: Final = re.compile(r"run=([0-9]{20})")
_STATE_BYTES_MAX: Final = 64 * MIB
_ATTEMPTS: Final = 100  # each fails only if a commit or a merge came in between


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """A file of a run. `path` is in the table; `folder` is that of its partition, or empty."""

    path: str
    folder: str
    size: int

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContent:
    """A run at one moment: state and files belong together."""

    number: int
    state: str
    files: tuple[RunFile, ...]


class ParquetRuns:
    """The runs in the directory of a table. Reading needs no lock. For one thread."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._fs = RealFileSystem()
        self.replaced = ReplacedRuns(table)

    def path(self, run: int) -> str:
        return os.path.join(self._table, f"run={run:020d}")

    def numbers(self) -> list[int]:
        """The numbers of all runs, in order."""
        try:
            names = [entry.name for entry in self._fs.list(self._table)]
        except FileNotFoundError:
            return []
        return sorted(int(found[1]) for name in names if (found := _RUN.fullmatch(name)))

    def state(self, run: int) -> str:
        path = os.path.join(self.path(run), STATE)
        return read_whole(self._fs, path, limit=_STATE_BYTES_MAX).decode()

    def content(self, run: int) -> RunContent:
        """The run at one moment. Raises `FileNotFoundError` if there is none."""
        path = self.path(run)
        for _ in range(_ATTEMPTS):
            with _held(path) as identity:
                try:
                    state = self.state(run)
                    files = tuple(self._files(path))
                except FileNotFoundError:
                    if not os.path.exists(path):
                        raise
                    continue
                if _identity(path) == identity:
                    return RunContent(number=run, state=state, files=files)
        raise TableChangedError(self._table, f"run {run} changes all the time")

    def _files(self, path: str) -> Iterator[RunFile]:
        for home, folders, names in os.walk(path, onerror=_raise):
            folders.sort()
            for name in sorted(names):
                if name.endswith(".parquet"):
                    file = os.path.join(home, name)
                    folder = os.path.relpath(home, path) if home != path else ""
                    yield RunFile(path=file, folder=folder, size=os.stat(file).st_size)

    def has_rows_of(self, content: RunContent) -> bool:
        """Whether a run has the rows that were read: each commit changes the state."""
        try:
            return self.state(content.number) == content.state
        except FileNotFoundError:
            return False

    def link(self, files: tuple[RunFile, ...], into: str) -> bool:
        """Link files of a run into a staged one. False, with nothing linked, if that fails."""
        linked: list[str] = []
        try:
            for file in files:
                home = os.path.join(into, file.folder)
                os.makedirs(home, exist_ok=True)
                self._fs.link(file.path, os.path.join(home, file.name))
                linked.append(os.path.join(home, file.name))
        except OSError:
            for path in linked:
                os.remove(path)
            return False
        return True

    def sync(self, directory: str) -> None:
        """Make all names in a directory and its folders durable."""
        for home, _, _ in os.walk(directory):
            self._fs.sync_directory(home)

    def exchange(self, staged: str, run: int) -> bool:
        """Put a staged directory, which is durable, in the place of a run; False: impossible.

        The directory that was there is kept for present readers.
        """
        if not exchange(staged, self.path(run)):
            return False
        self._fs.sync_directory(self._table)
        self._fs.sync_directory(os.path.dirname(staged))
        self.replaced.keep(staged, run)
        return True


@contextmanager
def _held(path: str) -> Iterator[tuple[int, int]]:
    """The identity of a directory. Held open, so that no new directory gets the same."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        yield found.st_dev, found.st_ino
    finally:
        os.close(descriptor)


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _raise(error: OSError) -> None:
    raise error

"""A table of plain Parquet files, which any tool can read by its directory.

    orders/
        run=00000000000000000001/   part-….parquet, _cordwood.json
        run=00000000000000000002/   …
        _staging/<run id>/          files of a run in progress; tools skip it
        current -> run=…            only if each run replaces the one before

A commit renames one directory that contains files and offsets. That is atomic, and of two
concurrent commits one fails. The number of a removed run is free again, so a commit also checks,
under a lock on the directory, that the run it builds on is still the last one. It needs a file
system that renames directories atomically: a local one, NFS, and the like. Object stores do not;
use Delta or Iceberg tables there.

If runs replace each other, a new run shares unchanged files with the one before, which stays for
its present readers; earlier runs are removed.
"""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from cordwood.errors import ConfigError, TableChangedError
from cordwood.quantities import MIB
from cordwood.spark.jobs.tables.lake_table import TableState, WrittenFile
from cordwood.storage.file_copy import link_or_copy
from cordwood.storage.files import RealFileSystem, read_whole, replace_file

if TYPE_CHECKING:
    import pyarrow as pa

_RUN: Final = re.compile(r"run=([0-9]{20})")
_STATE: Final = "_cordwood.json"
_STAGING: Final = "_staging"
_CURRENT: Final = "current"
_STATE_BYTES_MAX: Final = 64 * MIB
_VERSIONS_KEPT: Final = 2


class ParquetTable:
    """A `LakeTable` in plain Parquet. With `replaces` each run is the whole table."""

    def __init__(self, path: str, *, replaces: bool) -> None:
        self.path = _local(path)
        self._replaces = replaces
        self._fs = RealFileSystem()
        self._loaded = 0
        self._text: str | None = None  # the state of the loaded run, as it was stored

    @property
    def name(self) -> str:
        return self.path

    def load(self) -> TableState | None:
        runs = self._runs()
        self._loaded = runs[-1] if runs else 0
        self._text = self._stored(self._loaded) if runs else None
        return None if self._text is None else TableState.parse(self._text)

    def _stored(self, run: int) -> str:
        path = os.path.join(self._run_path(run), _STATE)
        return read_whole(self._fs, path, limit=_STATE_BYTES_MAX).decode()

    def _check_loaded(self) -> None:
        """Raise `TableChangedError` unless the loaded run is still the last one.

        Runs are removed when others replace them, so the next number may be free again.
        """
        last = max(self._runs(), default=0)
        if last != self._loaded or (last and self._stored(last) != self._text):
            raise TableChangedError(self.path, "another run committed first")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Within, no other process commits or removes runs. For one thread."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(OSError):  # some network file systems lock no directory
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def staging(self, run_id: str) -> str:
        return os.path.join(self.path, _STAGING, run_id, "files")

    def files(self) -> list[str]:
        runs = [run for run in self._runs() if run <= self._loaded]
        return [path for run in (runs[-1:] if self._replaces else runs) for path in self._data(run)]

    def _data(self, run: int) -> list[str]:
        directory = self._run_path(run)
        names = sorted(entry.name for entry in self._fs.list(directory))
        return [os.path.join(directory, name) for name in names if name.endswith(".parquet")]

    def commit(
        self,
        state: TableState,
        schema: "pa.Schema",
        *,
        run_id: str,
        added: Sequence[WrittenFile],
        removed: Sequence[str] = (),
    ) -> None:
        assert self._replaces or not removed, "rows of an append-only table cannot be removed"
        made = os.path.join(self.path, _STAGING, run_id, "commit")
        os.makedirs(made)
        self._check_loaded()
        # Only files that the results name: a repeated task has left others.
        for file in added:
            os.rename(file.path, os.path.join(made, file.name))
        gone = set(removed)
        for path in self.files() if self._replaces else ():
            if path not in gone:
                link_or_copy(self._fs, path, os.path.join(made, os.path.basename(path)))
        replace_file(self._fs, os.path.join(made, _STATE), state.render().encode())
        self._fs.sync_directory(made)
        target = self._run_path(self._loaded + 1)
        with self._alone():
            self._check_loaded()
            try:
                os.rename(made, target)
            except OSError as error:
                if os.path.exists(target):
                    raise TableChangedError(self.path, "another run committed first") from error
                raise
        self._fs.sync_directory(self.path)
        self._loaded += 1
        self._text = state.render()
        self.discard(run_id)
        self.settle()

    def settle(self) -> None:
        """Point `current` to the last run, and remove runs that are no longer needed."""
        if self._replaces and self._loaded:
            with self._alone():
                if self._runs()[-1] == self._loaded:  # else a later run does it
                    self._point_at(self._loaded)
                    self._remove_old()

    def discard(self, run_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(os.path.join(self.path, _STAGING, run_id))

    def _point_at(self, run: int) -> None:
        """Point `current` to a run, atomically."""
        name = os.path.basename(self._run_path(run))
        current = os.path.join(self.path, _CURRENT)
        if os.path.islink(current) and os.readlink(current) == name:
            return
        os.makedirs(os.path.join(self.path, _STAGING), exist_ok=True)
        temporary = os.path.join(self.path, _STAGING, f"current-{run}")
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        os.symlink(name, temporary)
        os.replace(temporary, current)

    def _remove_old(self) -> None:
        for run in self._runs()[:-_VERSIONS_KEPT]:
            shutil.rmtree(self._run_path(run), ignore_errors=True)

    def _run_path(self, run: int) -> str:
        return os.path.join(self.path, f"run={run:020d}")

    def _runs(self) -> list[int]:
        """The numbers of all runs, in order."""
        try:
            names = [entry.name for entry in self._fs.list(self.path)]
        except FileNotFoundError:
            return []
        return sorted(int(found[1]) for name in names if (found := _RUN.fullmatch(name)))


def _local(path: str) -> str:
    parts = urlsplit(path)
    if parts.scheme not in {"", "file"}:
        raise ConfigError(
            "table",
            path,
            "a Parquet table needs a file system that renames directories atomically; "
            "in object storage use delta or iceberg",
        )
    return os.path.abspath(unquote(parts.path) if parts.scheme else path)

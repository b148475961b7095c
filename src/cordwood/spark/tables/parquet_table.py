"""A table of plain Parquet files, which any tool can read by its directory.

    orders/
        run=00000000000000000001/   part-….parquet, _cordwood.json
        run=00000000000000000002/   …, or day=2026-01-31/part-….parquet if it is divided by time
        _staging/<run id>/          files of a run in progress; tools skip it
        current -> run=…            only if each run replaces the one before

A commit renames one directory that contains files and offsets. That is atomic, and of two
concurrent commits one fails. The number of a removed run is free again, so a commit also checks,
under a lock on the directory, that the run it builds on is still the last one. It needs a file
system that renames directories atomically: a local one, NFS, and the like. Object stores do not;
use Delta or Iceberg tables there.

While the last run is small, a commit stages its files again, as links, beside the new ones, and
exchanges the two directories in one step. The names of the files stay. Upkeep exchanges a run for
one with fewer files in the same way, so small files do not remain in separate directories, where
nothing could merge them at once for all readers (`parquet_runs`). If a file system cannot exchange
directories, each commit is a run of its own, and nothing is merged. Replaced directories stay for
a while, beside the table, for readers that are listing them (`replaced_runs`).

If runs replace each other, a new run shares unchanged files with the one before, which stays for
its present readers; earlier runs are removed.
"""

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from cordwood.errors import ConfigError, TableChangedError
from cordwood.quantities import MIB
from cordwood.spark.tables.lake_table import PARTITION_BY, TableState, UpkeepPolicy, WrittenFile
from cordwood.spark.tables.parquet_runs import STATE, ParquetRuns, RunContent
from cordwood.storage.disk.directory_exchange import exchange
from cordwood.storage.files import RealFileSystem, replace_file
from cordwood.storage.replacement.file_copy import link_or_copy

if TYPE_CHECKING:
    import pyarrow as pa

RUN_FILES_MAX: Final = 128  # a commit links so many files again
RUN_BYTES_MAX: Final = 256 * MIB
_STAGING: Final = "_staging"
_CURRENT: Final = "current"
_VERSIONS_KEPT: Final = 2


class ParquetTable:
    """A `LakeTable` in plain Parquet. With `replaces` each run is the whole table."""

    def __init__(self, path: str, *, replaces: bool) -> None:
        self.path = _local(path)
        self._replaces = replaces
        self._fs = RealFileSystem()
        self._runs = ParquetRuns(self.path)
        self._last: RunContent | None = None  # the last run at the time of the load

    @property
    def name(self) -> str:
        return self.path

    @property
    def _loaded(self) -> int:
        return 0 if self._last is None else self._last.number

    def load(self) -> TableState | None:
        runs = self._runs.numbers()
        self._last = self._runs.content(runs[-1]) if runs else None
        return None if self._last is None else TableState.parse(self._last.state)

    def _check_loaded(self) -> None:
        """Raise `TableChangedError` unless the loaded run is still the last one.

        Runs are removed when others replace them, so the next number may be free again.
        """
        last = max(self._runs.numbers(), default=0)
        is_same = last == self._loaded
        if not is_same or (self._last is not None and not self._runs.has_rows_of(self._last)):
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
        if self._last is None:
            return []
        earlier = [run for run in self._runs.numbers() if run < self._loaded]
        contents = [] if self._replaces else [self._runs.content(run) for run in earlier]
        return [file.path for content in (*contents, self._last) for file in content.files]

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
        by = state.settings.get(PARTITION_BY)
        for file in added:
            home = made if file.partition is None else os.path.join(made, f"{by}={file.partition}")
            os.makedirs(home, exist_ok=True)
            os.rename(file.path, os.path.join(home, file.name))
        gone = set(removed)
        for path in self.files() if self._replaces else ():
            if path not in gone:
                link_or_copy(self._fs, path, os.path.join(made, os.path.basename(path)))
        replace_file(self._fs, os.path.join(made, STATE), state.render().encode())
        with self._alone():
            self._check_loaded()
            run = self._loaded
            if not self._join(made, len(added)):
                run += 1
                self._append(made, run)
            self._last = self._runs.content(run)
        self.discard(run_id)
        self._runs.replaced.remove_old()
        self.settle()

    def _join(self, made: str, added: int) -> bool:
        """Put a staged run, with the files of the last one, in its place, if that one is small.

        False, with nothing changed, if it is not, or if the file system cannot do that.
        """
        last = self._last
        if (
            last is None
            or self._replaces
            or len(last.files) + added > RUN_FILES_MAX
            or sum(file.size for file in last.files) >= RUN_BYTES_MAX
        ):
            return False
        held = self._runs.content(last.number).files  # upkeep may have merged some
        if not self._runs.link(held, made):
            return False
        self._runs.sync(made)
        if self._runs.exchange(made, last.number):
            return True
        for file in held:
            os.remove(os.path.join(made, file.folder, file.name))
        return False

    def _append(self, made: str, run: int) -> None:
        """Make a staged run the next one."""
        self._runs.sync(made)
        target = self._runs.path(run)
        try:
            os.rename(made, target)
        except OSError as error:
            if os.path.exists(target):
                raise TableChangedError(self.path, "another run committed first") from error
            raise
        self._fs.sync_directory(self.path)

    def settle(self) -> None:
        """Point `current` to the last run, and remove runs that are no longer needed."""
        if self._replaces and self._loaded:
            with self._alone():
                if self._runs.numbers()[-1] == self._loaded:  # else a later run does it
                    self._point_at(self._loaded)
                    self._remove_old()

    def discard(self, run_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(os.path.join(self.path, _STAGING, run_id))

    def keep_up(self, policy: UpkeepPolicy) -> dict[str, int]:
        """Merge the small files of each run, and remove what killed runs have staged."""
        merged = 0
        if not self._replaces:
            for run in self._runs.numbers():
                merged += self._merge(run, policy)
        self._runs.replaced.remove_old()
        removed = self._remove_leftovers(policy)
        self.load()
        return {"merged_files": merged, "removed_files": removed}

    def _merge(self, run: int, policy: UpkeepPolicy) -> int:
        """Exchange a run for one with fewer files; return how many were merged.

        A reader that listed the files before and opens one afterwards does not find it, and fails:
        a name that can be opened is also listed, so old and new names cannot both be there.
        """
        from cordwood.spark.tables.file_merging import merge_group, merged_schema
        from cordwood.spark.tables.table_upkeep import plan_merges

        content = self._runs.content(run)
        sized = [(file.path, file.size, file.folder) for file in content.files]
        groups = plan_merges(sized, policy)
        if not groups:
            return 0
        run_id = f"upkeep-{uuid.uuid4().hex}"
        made = os.path.join(self.path, _STAGING, run_id, "commit")
        os.makedirs(made)
        try:
            if not self._can_exchange(run_id):
                return 0
            for group in groups:
                merge_group(group, merged_schema([group]), os.path.join(made, group.partition))
            gone = {path for group in groups for path in group.paths}
            kept = tuple(file for file in content.files if file.path not in gone)
            replace_file(self._fs, os.path.join(made, STATE), content.state.encode())
            with self._alone():
                is_done = (
                    self._runs.has_rows_of(content)  # else a commit came in between: next time
                    and self._runs.link(kept, made)
                    and self._is_synced(made)
                    and self._runs.exchange(made, run)
                )
        finally:
            self.discard(run_id)
        return len(gone) if is_done else 0

    def _can_exchange(self, run_id: str) -> bool:
        """Whether the file system exchanges directories: tried with two empty ones."""
        home = os.path.join(self.path, _STAGING, run_id)
        names = [os.path.join(home, name) for name in ("commit", "probe")]
        os.makedirs(names[1])
        return exchange(*names)

    def _is_synced(self, directory: str) -> bool:
        self._runs.sync(directory)
        return True

    def _remove_leftovers(self, policy: UpkeepPolicy) -> int:
        removed = 0
        staging = os.path.join(self.path, _STAGING)
        oldest_s = time.time() - policy.leftover_ms / 1000
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(staging):
                path = os.path.join(staging, name)
                if os.path.isdir(path) and _newest_s(path) < oldest_s:
                    shutil.rmtree(path, ignore_errors=True)
                    removed += 1
        return removed

    def _point_at(self, run: int) -> None:
        """Point `current` to a run, atomically."""
        name = os.path.basename(self._runs.path(run))
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
        for run in self._runs.numbers()[:-_VERSIONS_KEPT]:
            shutil.rmtree(self._runs.path(run), ignore_errors=True)


def _newest_s(directory: str) -> float:
    """When something in a directory was changed last."""
    times = [os.stat(directory).st_mtime]
    for home, folders, names in os.walk(directory):
        for name in (*folders, *names):
            with contextlib.suppress(FileNotFoundError):
                times.append(os.stat(os.path.join(home, name)).st_mtime)
    return max(times)


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

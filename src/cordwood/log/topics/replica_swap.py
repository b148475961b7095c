"""A replica that is made again beside the old one, and then takes its place.

    orders-0                    the replica
    orders-0.<unique>-future    the new one while it is filled; it has the file `cordwood-rebuild`
    orders-0.<unique>-stray     the old one, once the new one is complete

The new one may be in another data directory of the broker: then the replica moves there. The
-stray stays where the old one was, and everything else is the same.

The swap, and what a start finds and does if power fails after a step:

    1  both logs are closed, the new one synced           orders-0, -future: remove -future
    2  the checkpoints forget the partition               the same; the old log is read whole
       (of both directories, if there are two)
    3  orders-0 becomes -stray, durably                   -stray, -future: step 4
    4  -future becomes orders-0, durably                  orders-0 (new), -stray: remove -stray
    5  the new log is opened, and -stray is removed       orders-0 (new)

Invariant: a -stray that is as unique as a -future exists only if that -future is complete. So there
is a whole replica at every moment: the old one, or the new one. A -future without its -stray is
removed only if every data directory can be read: the -stray may be in the one that cannot. Kafka's
own -future and -stray directories are left alone: they have no `cordwood-rebuild`.
"""

import logging
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Final

from cordwood.errors import FormatError, StorageError
from cordwood.format.file_names import (
    PARTITION_METADATA,
    DirectoryState,
    deleted_directory_name,
    partition_directory_name,
)
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.topics.catalog_files import KeptCatalog
from cordwood.log.topics.data_directories import DataDirectories
from cordwood.log.topics.log_directory import LogDirectory
from cordwood.log.topics.partition_opener import PartitionOpener
from cordwood.log.topics.topic_registry import TopicRegistry
from cordwood.storage.files import FileSystem, read_whole, sync_file, write_file
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

REBUILD_MARK: Final = "cordwood-rebuild"
_MARK_BYTES_MAX: Final = 64
_NAME_CHARS_MAX: Final = 255
_MARKED: Final = re.compile(r"(.+-\d+)\.([0-9a-f]{16})-(future|stray)")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReplica:
    """A replica that is being filled. `log` is open, and in no topic yet.

    home        the data directory that has the old replica
    directory   the one that the new replica is in
    """

    topic_id: uuid.UUID
    home: LogDirectory
    directory: LogDirectory
    unique: str
    log: PartitionLog

    @property
    def name(self) -> tuple[str, int]:
        return self.log.topic, self.log.partition


def _marked(name: tuple[str, int], unique: str, state: DirectoryState) -> str:
    return f"{partition_directory_name(*name)}.{unique}-{state}"


class ReplicaSwap:
    """Makes new replicas and swaps them in. Any thread that may wait for the disk may use it."""

    def __init__(
        self,
        registry: TopicRegistry,
        *,
        directories: DataDirectories,
        catalog: KeptCatalog,
        opener: PartitionOpener,
    ) -> None:
        self._registry = registry
        self._directories = directories
        self._catalog = catalog
        self._opener = opener
        self._fs: FileSystem = opener.fs

    def begin(
        self, topic: str, topic_id: uuid.UUID, number: int, *, into: str | None = None
    ) -> NewReplica:
        """Make an empty replica beside the one that is there, or in the data directory `into`.

        Raises `StorageError` and `OSError`.
        """
        name = (topic, number)
        with self._registry.changing:
            entry = self._catalog.topics.get(topic)
            home = self._home_of(name)
            if entry is None or entry.topic_id != topic_id or home is None:
                raise StorageError(f"{topic}-{number} has no replica here")
            if any(name in each.futures for each in self._directories):
                raise StorageError(f"{topic}-{number} is being replaced or moved already")
            directory = home if into is None else self._directory_at(into)
            unique = uuid.uuid4().hex[:16]
            path = os.path.join(directory.path, _marked(name, unique, DirectoryState.FUTURE))
            if len(os.path.basename(path)) > _NAME_CHARS_MAX:
                raise StorageError(
                    f"the name {topic!r} is too long for a second directory; remove the files of "
                    "this replica while the broker is stopped, and it is filled again"
                )
            self._make(name, directory.path, path, unique)
            log = self._opener.open_beside(directory, entry, number, path)
            directory.futures[name] = log
        return NewReplica(topic_id=topic_id, home=home, directory=directory, unique=unique, log=log)

    def _make(self, name: tuple[str, int], directory: str, path: str, unique: str) -> None:
        """A directory with our mark. It has its name only once the mark is on the disk.

        Before that it is one that the next start removes.
        """
        staging = os.path.join(directory, deleted_directory_name(*name, uuid.uuid4().hex))
        self._fs.make_directory(staging)
        mark = os.path.join(staging, REBUILD_MARK)
        write_file(self._fs, mark, unique.encode())
        sync_file(self._fs, mark)
        self._fs.sync_directory(staging)
        self._fs.rename(staging, path)

    def give_up(self, new: NewReplica) -> None:
        """Remove a replica that is not needed any more. Safe to repeat."""
        new.directory.futures.pop(new.name, None)
        new.log.close(is_orderly=False)
        path = new.log.directory
        try:
            if self._fs.exists(path):
                self._fs.remove_tree(path)
        except OSError as error:
            logger.warning("%s is removed at the next start: %s", path, error)

    def swap(self, new: NewReplica) -> PartitionLog:
        """Put the new replica in the place of the old one; return its log, opened there.

        The old log must have no role any more. Raises `StorageError` or `OSError`; then the next
        start finishes what was begun, and the partition may be offline until then.
        """
        name, directory = new.name, new.directory
        with self._registry.changing:
            topic = self._registry.find(name[0])
            if topic is None or topic.topic_id != new.topic_id or not topic.is_here(name[1]):
                self.give_up(new)  # nobody else does: the old log is closed by now
                raise StorageError(f"{name[0]}-{name[1]} is not here any more")
            start, end = new.log.start_offset, new.log.end_offset
            cleaned = new.log.state.cleaned_up_to
            self._complete(new)
            old = new.home.logs.pop(name, None)
            if old is not None:
                old.close(is_orderly=False)
            try:
                self._rename(new)
                directory.checkpoints.recovery_points[name] = end
                directory.checkpoints.log_starts[name] = start
                if cleaned is not None:  # offsets may be missing, and that is no damage
                    directory.checkpoints.cleaned[name] = cleaned
                self._catalog.begin(self._catalog.topics[name[0]], name[1])
                log = self._opener.open(directory, self._catalog.topics[name[0]], name[1])
            except Exception as error:
                directory.offline[name] = error
                raise
            finally:
                directory.futures.pop(name, None)
            for each in (new.home, directory):
                each.offline.pop(name, None)
                each.unopened.discard(name)
            if cleaned is not None:
                directory.save_cleaned()
            topic.replace_log(name[1], log)
            self._remove_old(new)
        return log

    def _directory_at(self, path: str) -> LogDirectory:
        found = next((each for each in self._directories if each.path == path), None)
        if found is None:
            raise StorageError(f"{path} is not a data directory that can be used")
        return found

    def _home_of(self, name: tuple[str, int]) -> LogDirectory | None:
        return next(
            (d for d in self._directories if name in {*d.logs, *d.unopened, *d.offline}), None
        )

    def _complete(self, new: NewReplica) -> None:
        """Everything of the new replica is on the disk, its names too."""
        path = new.log.directory
        new.log.syncing.sync_marks()
        if not new.log.close():
            raise StorageError(f"{path} could not be synced")
        sync_file(self._fs, os.path.join(path, PARTITION_METADATA))
        self._fs.sync_directory(path)

    def _rename(self, new: NewReplica) -> None:
        name, home, directory = new.name, new.home, new.directory
        for each in (home,) if home is directory else (home, directory):
            checkpoints = each.checkpoints
            for known in (checkpoints.recovery_points, checkpoints.log_starts, checkpoints.cleaned):
                known.pop(name, None)
            each.offline.pop(name, None)  # its offsets would stay in the checkpoints
            each.save_checkpoints()
        old = os.path.join(home.path, partition_directory_name(*name))
        aside = os.path.join(home.path, _marked(name, new.unique, DirectoryState.STRAY))
        if directory is not home:  # its name must last before the old one has another
            self._fs.sync_directory(directory.path)
        if self._fs.exists(old):
            self._fs.rename(old, aside)
        else:  # the old one is gone: there must be something to tell a complete new one by
            self._fs.make_directory(aside)
        self._fs.sync_directory(home.path)
        live = os.path.join(directory.path, partition_directory_name(*name))
        self._fs.rename(new.log.directory, live)
        self._fs.sync_directory(directory.path)

    def _remove_old(self, new: NewReplica) -> None:
        """What cannot be removed now, the next start removes."""
        name, home = new.name, new.home
        aside = os.path.join(home.path, _marked(name, new.unique, DirectoryState.STRAY))
        gone = os.path.join(home.path, deleted_directory_name(*name, uuid.uuid4().hex))
        mark = os.path.join(new.directory.path, partition_directory_name(*name), REBUILD_MARK)
        try:
            self._fs.rename(aside, gone)
            self._fs.sync_directory(home.path)  # the mark tells that it is ours: it goes last
            self._fs.remove(mark)
        except OSError as error:
            logger.warning("%s is removed at the next start: %s", aside, error)
            return
        config = self._opener.config_of(self._catalog.topics[name[0]])
        home.delete_later([gone], config.file_delete_delay_ms)


def finish_swaps(fs: FileSystem, directories: Iterable[str], *, are_all_usable: bool) -> None:
    """Finish or undo what an earlier process began. Before the partitions are looked for.

    `directories` are those that can be used; `are_all_usable`: there are no others. What the disk
    does not let us do is left for the next start.
    """
    names = {
        path: {entry.name for entry in fs.list(path) if entry.is_directory} for path in directories
    }
    marked = [
        (path, found)
        for path, here in names.items()
        for name in sorted(here)
        if (found := _MARKED.fullmatch(name)) is not None
    ]
    swaps = _UnfinishedSwaps(fs, names, may_remove=are_all_usable)
    for state, finish in (
        (DirectoryState.FUTURE, swaps.finish),
        (DirectoryState.STRAY, swaps.tidy),
    ):
        for path, found in marked:
            if found[3] == state:
                try:
                    finish(path, found)
                except (OSError, FormatError) as error:
                    where = os.path.join(path, found[0])
                    logger.warning("%s is looked at again at the next start: %s", where, error)


class _UnfinishedSwaps:
    """What an earlier process began. `names` are the directories in each data directory."""

    def __init__(self, fs: FileSystem, names: Mapping[str, set[str]], *, may_remove: bool) -> None:
        self._fs = fs
        self._names = names
        self._may_remove = may_remove

    def finish(self, directory: str, future: re.Match[str]) -> None:
        """Swap a complete new replica in; remove one that is not complete."""
        path = os.path.join(directory, future[0])
        if _unique_of(self._fs, path) != future[2]:
            return  # it is Kafka's
        aside = f"{future[1]}.{future[2]}-{DirectoryState.STRAY}"
        if self._has(aside) and not self._has(future[1]):
            logger.warning("%s takes its place now: the new replica is complete", path)
            self._fs.rename(path, os.path.join(directory, future[1]))
            self._names[directory].add(future[1])
        elif self._may_remove or self._has(future[1]):
            logger.info("%s is removed: the new replica was not complete", path)
            self._fs.remove_tree(path)
        else:
            logger.warning(
                "%s is kept: only a data directory that is offline can tell whether it is complete",
                path,
            )
            return
        self._fs.sync_directory(directory)

    def _has(self, name: str) -> bool:
        return any(name in here for here in self._names.values())

    def tidy(self, directory: str, stray: re.Match[str]) -> None:
        """Remove the old replica after the new one took its place."""
        for other, here in self._names.items():
            live = os.path.join(other, stray[1])
            if stray[1] in here and _unique_of(self._fs, live) == stray[2]:
                self._fs.remove_tree(os.path.join(directory, stray[0]))
                self._fs.sync_directory(directory)
                self._fs.remove(os.path.join(live, REBUILD_MARK))


def _unique_of(fs: FileSystem, path: str) -> str | None:
    mark = os.path.join(path, REBUILD_MARK)
    if not fs.exists(mark):
        return None
    content: bytes = read_whole(fs, mark, limit=_MARK_BYTES_MAX)
    return content.decode(errors="replace")

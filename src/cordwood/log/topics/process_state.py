"""The state of a data directory that several processes of one node share.

Each process owns some of the partitions, and keeps what belongs to them in a folder of its own:

    remote-log-index-cache/cordwood-processes/<process>/   *-checkpoint, .kafka_cleanshutdown

Everything else stays where it is, so readers and a later single process find one store. What power
may interrupt:

    split   write cordwood-processes.new, rename it, remove the files of the directory. Until the
            rename, the directory has its own files; after it, the folder counts
    merge   write the files of the directory, rename the folder to cordwood-processes.merged,
            remove that. Until the rename, merging again gives the same

The caller of both holds the lock of the whole directory. A merge needs some room. Until there is
some, the folder counts, and the directory writes no such files of its own: see `LogDirectory`.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from cordwood.errors import FormatError
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START,
    PROCESSES_FOLDER,
    RECOVERY_POINT,
)
from cordwood.format.small_files.meta_properties import render_clean_shutdown
from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem, make_durable_directory, replace_file
from cordwood.storage.small_files.checkpoint_file import (
    read_offset_checkpoint,
    write_offset_checkpoint,
)

logger = logging.getLogger(__name__)

PartitionName = tuple[str, int]

_NEW: Final = f"{PROCESSES_FOLDER}.new"
_MERGED: Final = f"{PROCESSES_FOLDER}.merged"
_CHECKPOINTS: Final = (RECOVERY_POINT, LOG_START, CLEANER, HIGH_WATERMARK_CHECKPOINT)
_NO_BROKER_EPOCH: Final = -1


def state_path(directory: str, process: str) -> str:
    """Where one process keeps the state of its partitions."""
    return os.path.join(directory, PROCESSES_FOLDER, process)


def read_offsets(fs: FileSystem, directory: str, name: str) -> dict[PartitionName, Offset]:
    """A checkpoint of a directory, from all its processes. One that cannot be read is left out."""
    offsets: dict[PartitionName, Offset] = {}
    for path in [directory, *_process_paths(fs, directory)]:
        try:
            offsets |= read_offset_checkpoint(fs, path, name)
        except FormatError as error:
            logger.warning("ignoring %s in %s, which cannot be read: %s", name, path, error)
    return offsets


def split_state(
    fs: FileSystem,
    directory: str,
    processes: Sequence[str],
    owner_of: Callable[[PartitionName], str | None],
) -> None:
    """Give each process the state of its partitions. Durable on return.

    Partitions without an owner are forgotten: their topics do not exist.
    """
    marker = os.path.join(directory, CLEAN_SHUTDOWN)
    is_clean = fs.exists(marker)
    known = {name: read_offset_checkpoint(fs, directory, name) for name in _CHECKPOINTS}
    new = os.path.join(directory, _NEW)
    make_durable_directory(fs, os.path.dirname(new))
    fs.make_directory(new)
    for process in processes:
        path = os.path.join(new, process)
        fs.make_directory(path)
        for name, offsets in known.items():
            own = {place: at for place, at in offsets.items() if owner_of(place) == process}
            write_offset_checkpoint(fs, path, name, own)
        if is_clean:
            _mark_clean(fs, path)
    fs.sync_directory(new)
    fs.rename(new, os.path.join(directory, PROCESSES_FOLDER))
    fs.sync_directory(os.path.dirname(new))
    for name in (*_CHECKPOINTS, CLEAN_SHUTDOWN):
        with suppress(FileNotFoundError):
            fs.remove(os.path.join(directory, name))
    fs.sync_directory(directory)


def merge_state(fs: FileSystem, directory: str) -> None:
    """Take the state back from the processes of the last owner, if it had several.

    The directory is clean if all of them ended in order. Durable on return.
    """
    for leftover in (_NEW, _MERGED):
        if fs.exists(os.path.join(directory, leftover)):
            fs.remove_tree(os.path.join(directory, leftover))
    folder = os.path.join(directory, PROCESSES_FOLDER)
    if not fs.exists(folder):
        return
    merged: Mapping[str, dict[PartitionName, Offset]] = {
        name: read_offsets(fs, directory, name) for name in _CHECKPOINTS
    }
    paths = _process_paths(fs, directory)
    is_clean = all(fs.exists(os.path.join(path, CLEAN_SHUTDOWN)) for path in paths)
    for name, offsets in merged.items():
        write_offset_checkpoint(fs, directory, name, offsets)
    if is_clean:
        _mark_clean(fs, directory)
    else:
        with suppress(FileNotFoundError):
            fs.remove(os.path.join(directory, CLEAN_SHUTDOWN))
    done = os.path.join(directory, _MERGED)
    fs.rename(folder, done)
    fs.sync_directory(os.path.dirname(done))
    fs.remove_tree(done)


def unmark_processes(fs: FileSystem, directory: str) -> bool:
    """Begin to use a directory whose state cannot be merged yet. Needs no room; durable on return.

    Returns whether it was clean. From here on it is not, whoever merges it.
    """
    paths = _process_paths(fs, directory)
    markers = [os.path.join(path, CLEAN_SHUTDOWN) for path in paths]
    is_clean = all(map(fs.exists, markers))
    for path in (*paths, directory):
        with suppress(FileNotFoundError):
            fs.remove(os.path.join(path, CLEAN_SHUTDOWN))
        fs.sync_directory(path)
    return is_clean


def is_split_among(fs: FileSystem, directory: str, processes: Sequence[str]) -> bool:
    """Whether just these processes have the state, because nobody could merge it."""
    try:
        return sorted(fs.names(os.path.join(directory, PROCESSES_FOLDER))) == sorted(processes)
    except FileNotFoundError:
        return False


def _process_paths(fs: FileSystem, directory: str) -> list[str]:
    folder = os.path.join(directory, PROCESSES_FOLDER)
    try:
        return [os.path.join(folder, name) for name in sorted(fs.names(folder))]
    except FileNotFoundError:
        return []


def _mark_clean(fs: FileSystem, path: str) -> None:
    marker = os.path.join(path, CLEAN_SHUTDOWN)
    replace_file(fs, marker, render_clean_shutdown(_NO_BROKER_EPOCH).encode())

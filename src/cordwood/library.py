"""`cordwood.open`: the front door of the library."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, overload

from cordwood.archive.archives_on_demand import ArchivesOnDemand
from cordwood.clock import SystemClock
from cordwood.errors import ConfigError, StorageError
from cordwood.log.compaction.cleaner import CleanerConfig
from cordwood.log.inbox.change_inbox import new_request_id
from cordwood.log.inbox.change_request import CHANGE_TIMEOUT_S, ChangeRequester
from cordwood.log.inbox.store_change import ChangeAnswer, StoreChange
from cordwood.log.partition.state.replica_role import SOLE_REPLICA, ReplicaRole
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.rules.work_progress import WorkDone
from cordwood.log.store.archive_port import CACHE_BYTES
from cordwood.log.store.cluster_mark import mark_cluster_directories, refuse_cluster_directories
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import OPENING_THREADS, Store, StoreSetup
from cordwood.log.store.upkeep_tasks import FREE_BYTES_MIN
from cordwood.quantities import parse_size
from cordwood.storage.disk.file_access import FileAccess
from cordwood.storage.files import RealFileSystem

# Kafka ignores a directory of the first name, and so do we.
_CACHE_DIRECTORY = os.path.join("remote-log-index-cache", "cordwood")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://")

PathLike = str | os.PathLike[str]


@overload
def open_store(
    path: PathLike,
    *,
    read_only: Literal[False] = False,
    data_dirs: Sequence[PathLike] = (),
    config: Mapping[str, object] | None = None,
    archive_cache_bytes: int | str = CACHE_BYTES,
    free_bytes_min: int | str = FREE_BYTES_MIN,
    access: str = FileAccess.OWNER,
) -> Store: ...
@overload
def open_store(
    path: PathLike,
    *,
    read_only: Literal[True],
    data_dirs: Sequence[PathLike] = (),
    config: Mapping[str, object] | None = None,
    archive_cache_bytes: int | str = CACHE_BYTES,
    free_bytes_min: int | str = FREE_BYTES_MIN,
    access: str = FileAccess.OWNER,
) -> ReadOnlyStore: ...
def open_store(
    path: PathLike,
    *,
    read_only: bool = False,
    data_dirs: Sequence[PathLike] = (),
    config: Mapping[str, object] | None = None,
    archive_cache_bytes: int | str = CACHE_BYTES,
    free_bytes_min: int | str = FREE_BYTES_MIN,
    access: str = FileAccess.OWNER,
) -> Store | ReadOnlyStore:
    """Open the store in `path`, creating the directory, and take its writer lock.

    `data_dirs` names further directories for partitions. `config` holds the defaults of topics,
    under Kafka's names. With `read_only` nothing is locked or written: use it beside a live
    writer, or for a data directory that Kafka wrote.

    Archived segments are cached when they are read, at most `archive_cache_bytes` of them: in
    the first data directory, or in a temporary directory for a read-only store. To open an
    archive without a store, use `cordwood.open_archive`.

    Appends are refused while fewer than `free_bytes_min` bytes (`log.dir.free.bytes.min`) are
    free on the disk, so that deletion and recovery have room; 0: never.

    Files and directories are created for their `owner` alone; with `access` "group" or "all", for
    the others whom the umask of the process allows.
    """
    directories = [os.fspath(path), *(os.fspath(extra) for extra in data_dirs)]
    defaults = TopicConfig.parse(config or {})
    if _URL.match(directories[0]):
        raise ConfigError("path", path, "is a URL; use cordwood.open_archive to read an archive")
    cache_bytes = _size("archive_cache_bytes", archive_cache_bytes)
    if read_only:
        fs, clock = RealFileSystem(), SystemClock()
        readable = ArchivesOnDemand(fs, clock, cache_bytes=cache_bytes)
        return ReadOnlyStore(directories, fs=fs, clock=clock, defaults=defaults, archives=readable)
    return open_writer(
        directories,
        defaults=defaults,
        archive_cache_bytes=cache_bytes,
        free_bytes_min=_size("log.dir.free.bytes.min", free_bytes_min),
        access=_access(access),
    )


def open_writer(
    directories: Sequence[str],
    *,
    defaults: TopicConfig,
    archive_cache_bytes: int = CACHE_BYTES,
    free_bytes_min: int = FREE_BYTES_MIN,
    cleaner: CleanerConfig | None = None,
    opening_threads: int = OPENING_THREADS,
    access: FileAccess = FileAccess.OWNER,
    has_housekeeping: bool = True,
    role: ReplicaRole = SOLE_REPLICA,
) -> Store:
    """Open a store for writing, with all options.

    With the role `AMONG_OTHERS` a broker of a cluster runs it. From then on nobody else may: what
    others append to one replica, the other replicas do not get.
    """
    fs, clock = RealFileSystem(access), SystemClock()
    if role.is_sole:
        refuse_cluster_directories(fs, directories)
    else:
        mark_cluster_directories(fs, directories)
    cache_directory = os.path.join(os.path.abspath(directories[0]), _CACHE_DIRECTORY)
    archives = ArchivesOnDemand(
        fs, clock, cache_directory=cache_directory, cache_bytes=archive_cache_bytes
    )
    return Store(
        directories,
        StoreSetup(
            fs=fs,
            clock=clock,
            defaults=defaults,
            archives=archives,
            free_bytes_min=free_bytes_min,
            cleaner=cleaner or CleanerConfig(),
            opening_threads=opening_threads,
            has_housekeeping=has_housekeeping,
            role=role,
        ),
    )


def request_change(
    path: PathLike,
    change: StoreChange,
    *,
    request_id: str | None = None,
    timeout_s: float = CHANGE_TIMEOUT_S,
    data_dirs: Sequence[PathLike] = (),
    defaults: TopicConfig | None = None,
    on_progress: Callable[[WorkDone], None] | None = None,
) -> ChangeAnswer:
    """Change the store in `path`, whether or not a process has it open.

    If no process has it open, it is opened here for the change. Otherwise its owner, in this
    process or another, makes the change, and we wait for the answer. Files of the change are in
    `staging_directory(path, request_id)` and are removed on return. `defaults` are those of
    topics if we open the store; `on_progress` gets the progress of a long change.

    Raises `ChangeRefusedError` if the change cannot be made, and `ChangeTimeoutError` if the
    owner does not answer within `timeout_s`.
    """
    directories = [os.fspath(path), *(os.fspath(extra) for extra in data_dirs)]
    if not os.path.isdir(directories[0]):
        raise StorageError(f"there is no data directory {directories[0]}")

    access = FileAccess.of_store(directories[0])

    def open_briefly() -> Store:
        return open_writer(
            directories, defaults=defaults or TopicConfig(), access=access, has_housekeeping=False
        )

    requester = ChangeRequester(
        RealFileSystem(access), directories[0], open_briefly, SystemClock(), on_progress=on_progress
    )
    return requester.ask(change, request_id or new_request_id(), timeout_s=timeout_s)


def _size(key: str, value: int | str) -> int:
    try:
        return parse_size(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ConfigError(key, value, str(error)) from error


def _access(value: str) -> FileAccess:
    try:
        return FileAccess(value)
    except ValueError as error:
        allowed = ", ".join(FileAccess)
        raise ConfigError("access", value, f"must be one of {allowed}") from error

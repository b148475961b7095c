"""`varve.open`: the front door of the library."""

import os
from collections.abc import Mapping, Sequence
from typing import Literal, overload

from varve.clock import SystemClock
from varve.log.read_only_store import ReadOnlyStore
from varve.log.store import Store, StoreSetup
from varve.log.topic_config import TopicConfig
from varve.storage.files import RealFileSystem

PathLike = str | os.PathLike[str]


@overload
def open_store(
    path: PathLike,
    *,
    read_only: Literal[False] = False,
    data_dirs: Sequence[PathLike] = (),
    config: Mapping[str, object] | None = None,
) -> Store: ...
@overload
def open_store(
    path: PathLike,
    *,
    read_only: Literal[True],
    data_dirs: Sequence[PathLike] = (),
    config: Mapping[str, object] | None = None,
) -> ReadOnlyStore: ...
def open_store(
    path: PathLike,
    *,
    read_only: bool = False,
    data_dirs: Sequence[PathLike] = (),
    config: Mapping[str, object] | None = None,
) -> Store | ReadOnlyStore:
    """Open the store in `path`, creating the directory, and take its writer lock.

    `data_dirs` names further directories over which partitions are spread. `config` holds
    defaults for topics, under Kafka's names. With `read_only` nothing is locked or written:
    for reading beside a live writer, and for a data directory that Kafka wrote.
    """
    directories = [os.fspath(path), *(os.fspath(extra) for extra in data_dirs)]
    defaults = TopicConfig.parse(config or {})
    if read_only:
        return ReadOnlyStore(
            directories, fs=RealFileSystem(), clock=SystemClock(), defaults=defaults
        )
    return Store(directories, StoreSetup(defaults=defaults))

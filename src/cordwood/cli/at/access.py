"""How a target is opened: as a backend, or by its files.

A broker reports where its data directories are. If they are on this machine, which their cluster
id shows, commands can read them as if they were given by hand. Changes still go through the
broker that owns them.
"""

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from cordwood.cli.at.store_directories import check_is_store
from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, Target, parse_target
from cordwood.errors import BrokerRefusedError, FormatError, LogError
from cordwood.format.file_names import META_PROPERTIES

if TYPE_CHECKING:
    from cordwood.cli.at.backend import Backend
    from cordwood.log.store.read_only_store import ReadOnlyStore

_META_BYTES_MAX: Final = 64 * 1024


def open_backend(target: Target) -> "Backend":
    """Open the target. Nothing is locked or created until a change needs it."""
    match target:
        case DirectoryTarget():
            from cordwood.cli.at.directory_backend import DirectoryBackend

            return DirectoryBackend(target)
        case BrokerTarget():
            from cordwood.cli.at.broker_backend import BrokerBackend

            return BrokerBackend(target)


def open_files(at: str | None, topics: Collection[str] = ()) -> "ReadOnlyStore":
    """Open the store of ``--at`` by its files, read-only and next to any writer.

    With `topics`, only those are opened. Topics have the defaults that ``cordwood serve`` would
    give them. `LogError` if the files of a broker are on another machine.
    """
    from cordwood.archive.archives_on_demand import ArchivesOnDemand
    from cordwood.clock import SystemClock
    from cordwood.log.store.read_only_store import ReadOnlyStore
    from cordwood.settings import load_settings
    from cordwood.storage.files import RealFileSystem

    wanted = frozenset(topics)
    fs, clock = RealFileSystem(), SystemClock()
    paths = files_of(parse_target(at)).paths
    check_is_store(paths)
    return ReadOnlyStore(
        paths,
        fs=fs,
        clock=clock,
        defaults=load_settings().topic_defaults,
        archives=ArchivesOnDemand(fs, clock),
        wants=None if not wanted else lambda topic, number: topic in wanted,
    )


def files_of(target: Target) -> DirectoryTarget:
    """The data directories of the target; `LogError` if they are on another machine."""
    if isinstance(target, DirectoryTarget):
        return target
    found = local_files_of(target)
    if found is None:
        raise LogError(
            f"this command needs the files of {target}, which are not on this machine; "
            "run it on the broker's machine with --at DIR"
        )
    return found


def local_files_of(target: BrokerTarget) -> DirectoryTarget | None:
    """The data directories of a broker; None if they cannot be read on this machine."""
    from cordwood.remote.refusals import is_forbidden
    from cordwood.remote.remote_cluster import RemoteCluster
    from cordwood.remote.remote_topics import RemoteTopics

    with RemoteCluster(target.addresses, security=target.security) as cluster:
        try:
            paths = [directory.path for directory in RemoteTopics(cluster).log_dirs()]
        except BrokerRefusedError as error:
            if is_forbidden(error):
                return None  # a user who may not see them reads through the broker
            raise
        cluster_id = cluster.cluster_id
    if paths and all(_cluster_of(path) == cluster_id for path in paths):
        return DirectoryTarget(paths=tuple(paths))
    return None


def _cluster_of(path: str) -> str | None:
    """The cluster id in a data directory of this machine; None if it has none."""
    from cordwood.format.small_files.meta_properties import parse_meta_properties

    try:
        with open(os.path.join(path, META_PROPERTIES), "rb") as file:
            text = file.read(_META_BYTES_MAX).decode("latin-1")
        return parse_meta_properties(text).cluster_id
    except (OSError, FormatError):
        return None

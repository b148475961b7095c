"""The files behind a target, for commands that look into them.

A broker says where its data directories are. When they are on this machine, which their cluster
id shows, they are as good as given by hand; changes still go through the broker that owns them.
"""

import os
from typing import Final

from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, Target
from cordwood.errors import FormatError, LogError, UnsupportedFormatError
from cordwood.format.file_names import META_PROPERTIES

_META_BYTES_MAX: Final = 64 * 1024


def files_of(target: Target) -> DirectoryTarget:
    """The directories of the target; `LogError` where they are on another machine."""
    if isinstance(target, DirectoryTarget):
        return target
    found = local_files_of(target)
    if found is None:
        raise LogError(
            f"this needs the files of {target}, which are not on this machine: "
            "run it there with --at DIR"
        )
    return found


def local_files_of(target: BrokerTarget) -> DirectoryTarget | None:
    """The directories of a broker, where they can be read here; else None."""
    from cordwood.remote.remote_cluster import RemoteCluster
    from cordwood.remote.remote_topics import RemoteTopics

    with RemoteCluster(target.addresses) as cluster:
        paths = [directory.path for directory in RemoteTopics(cluster).log_dirs()]
        cluster_id = cluster.cluster_id
    if paths and all(_cluster_of(path) == cluster_id for path in paths):
        return DirectoryTarget(paths=tuple(paths))
    return None


def _cluster_of(path: str) -> str | None:
    """The cluster that a directory of this machine says it belongs to."""
    from cordwood.format.meta_properties import parse_meta_properties

    try:
        with open(os.path.join(path, META_PROPERTIES), "rb") as file:
            text = file.read(_META_BYTES_MAX).decode("latin-1")
        return parse_meta_properties(text).cluster_id
    except (OSError, FormatError, UnsupportedFormatError):
        return None

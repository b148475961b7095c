"""Whether the files of a broker are on this machine, and can be read here."""

import os
from typing import Final

from cordwood.errors import BrokerRefusedError, FormatError
from cordwood.format.file_names import META_PROPERTIES
from cordwood.format.small_files.meta_properties import parse_meta_properties
from cordwood.remote.refusals import is_forbidden
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.remote_topics import RemoteTopics

_META_BYTES_MAX: Final = 64 * 1024


def local_directories(cluster: RemoteCluster) -> tuple[str, ...]:
    """The data directories of the cluster's only broker, if they are here; else nothing."""
    try:
        paths = [directory.path for directory in RemoteTopics(cluster).log_dirs()]
    except BrokerRefusedError as error:
        if is_forbidden(error):
            return ()
        raise
    cluster.describe([])
    if not paths or len(cluster.everyone()) != 1:
        return ()
    return tuple(paths) if all(_cluster_of(p) == cluster.cluster_id for p in paths) else ()


def _cluster_of(path: str) -> str | None:
    try:
        with open(os.path.join(path, META_PROPERTIES), "rb") as file:
            return parse_meta_properties(file.read(_META_BYTES_MAX).decode("latin-1")).cluster_id
    except (OSError, FormatError):
        return None

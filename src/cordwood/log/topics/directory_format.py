"""Data directories of a broker that is to join a cluster: their identity, before its first start.

A directory gets `meta.properties` with the id of the cluster, the id of the node and an id of its
own. A directory that has data of another cluster or node, or of a store that is in none, is refused
and stays as it is.
"""

import os
from collections.abc import Sequence
from uuid import UUID

from cordwood.clock import Clock
from cordwood.errors import ConfigError, FormatError
from cordwood.format.file_names import META_PROPERTIES, parse_directory_name
from cordwood.format.small_files.meta_properties import MetaProperties, render_meta_properties
from cordwood.format.small_files.partition_metadata import new_topic_id
from cordwood.log.topics.log_directory import read_meta_properties
from cordwood.storage.files import FileSystem, make_durable_directory, replace_file
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedDirectory:
    """`is_new`: it was formatted now. If not, it already belonged to this node and cluster."""

    path: str
    directory_id: UUID
    is_new: bool


def format_directories(
    fs: FileSystem, paths: Sequence[str], *, node_id: int, cluster_id: str, clock: Clock
) -> list[FormattedDirectory]:
    """Format all of them, or none. Safe to repeat. Raises `ConfigError`."""
    found = [(path, _checked(fs, path, node_id, cluster_id)) for path in paths]
    formatted: list[FormattedDirectory] = []
    for path, known in found:
        if known is not None:
            formatted.append(FormattedDirectory(path=path, directory_id=known, is_new=False))
            continue
        make_durable_directory(fs, path)
        directory_id = new_topic_id()
        meta = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)
        text = render_meta_properties(meta, written_ms=clock.now_ms())
        replace_file(fs, os.path.join(path, META_PROPERTIES), text.encode())
        formatted.append(FormattedDirectory(path=path, directory_id=directory_id, is_new=True))
    return formatted


def check_directories(
    fs: FileSystem, paths: Sequence[str], *, node_id: int, cluster_id: str
) -> bool:
    """Whether all of them belong to this node already. Raises `ConfigError` if one cannot."""
    known = [_checked(fs, path, node_id, cluster_id) for path in paths]
    return None not in known


def _checked(fs: FileSystem, path: str, node_id: int, cluster_id: str) -> UUID | None:
    """The id of a directory that is formatted already; None if it can be formatted."""
    try:
        meta = read_meta_properties(fs, path)
    except FileNotFoundError:
        _check_without_data(fs, path)
        return None
    except NotADirectoryError:
        raise ConfigError(
            "directory", path, "is not a directory, or lies in a file; choose another path"
        ) from None
    except FormatError as error:
        raise ConfigError(
            "directory", path, f"has a {META_PROPERTIES} that cannot be read: {error}"
        ) from error
    if meta.cluster_id != cluster_id or meta.node_id != node_id or meta.directory_id is None:
        raise ConfigError(
            "directory",
            path,
            f"belongs to node {meta.node_id} of cluster {meta.cluster_id}; choose a new directory",
        )
    return meta.directory_id


def _check_without_data(fs: FileSystem, path: str) -> None:
    try:
        names = fs.names(path)
    except FileNotFoundError:
        return
    for name in names:
        try:
            parse_directory_name(name)
        except FormatError:
            continue
        raise ConfigError(
            "directory", path, f"has partitions ({name}) but no {META_PROPERTIES}; choose another"
        )

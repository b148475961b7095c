"""The mark of data directories that belong to a broker of a cluster.

A file ``cluster-member`` in each of them, written when they are formatted. While it is there, only
such a broker opens them for writing. To take a directory out of a cluster for good, remove it.

A member removes topics that its cluster does not have: they were deleted while it was away. So a
directory without the mark must have no topics when a member opens it. They would be those of a
broker that was alone.
"""

import logging
import os
from collections.abc import Iterable
from typing import Final

from cordwood.errors import FormatError, StorageError
from cordwood.format.file_names import DirectoryState, parse_directory_name
from cordwood.storage.files import FileSystem, replace_file

logger = logging.getLogger(__name__)

CLUSTER_MARK: Final = "cluster-member"
_TEXT: Final = b"A broker of a cluster writes this directory. Open it read-only.\n"


def mark_cluster_directories(fs: FileSystem, directories: Iterable[str]) -> None:
    """Mark directories before a broker of a cluster opens them. Durable on return.

    One whose disk is broken is left out, if there are others: it stays offline. Raises
    `StorageError` if one that is not marked yet has topics.
    """
    failures: list[OSError] = []
    count = 0
    for directory in directories:
        count += 1
        path = os.path.join(directory, CLUSTER_MARK)
        try:
            fs.make_directory(directory)
            if not fs.exists(path):
                _refuse_topics(fs, directory)
                replace_file(fs, path, _TEXT)
        except OSError as error:
            logger.error("%s cannot be marked: %s", directory, error)
            failures.append(error)
    if failures and len(failures) == count:
        raise failures[0]


def _refuse_topics(fs: FileSystem, directory: str) -> None:
    for name in fs.names(directory):
        try:
            found = parse_directory_name(name)
        except FormatError:
            continue
        if found.state is DirectoryState.DELETE:
            continue
        raise StorageError(
            f"{directory} has records of a broker that was alone ({name}, of topic "
            f"{found.topic}): a member of a cluster would delete topics that the cluster does not "
            "have. Give the broker a new directory, and keep this one to serve it alone. If they "
            f"are replicas of this cluster, create an empty file {CLUSTER_MARK} there"
        )


def refuse_cluster_directories(fs: FileSystem, directories: Iterable[str]) -> None:
    """Raise `StorageError` for a directory that is marked."""
    for directory in directories:
        if fs.exists(os.path.join(directory, CLUSTER_MARK)):
            raise StorageError(
                f"{directory} belongs to a broker of a cluster: records that are written past it "
                "would be on this replica alone. Open it with read_only=True, or write through "
                f"the cluster. To take the directory out of the cluster, remove its file "
                f"{CLUSTER_MARK}"
            )

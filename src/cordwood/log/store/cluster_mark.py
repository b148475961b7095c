"""The mark of data directories that belong to a broker of a cluster.

A file ``cluster-member`` in each of them. While it is there, only such a broker opens them for
writing. To take a directory out of a cluster for good, remove the file.
"""

import os
from collections.abc import Iterable
from typing import Final

from cordwood.errors import StorageError
from cordwood.storage.files import FileSystem, replace_file

CLUSTER_MARK: Final = "cluster-member"
_TEXT: Final = b"A broker of a cluster writes this directory. Open it read-only.\n"


def mark_cluster_directories(fs: FileSystem, directories: Iterable[str]) -> None:
    """Mark directories before a broker of a cluster opens them. Durable on return."""
    for directory in directories:
        fs.make_directory(directory)
        path = os.path.join(directory, CLUSTER_MARK)
        if not fs.exists(path):
            replace_file(fs, path, _TEXT)


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

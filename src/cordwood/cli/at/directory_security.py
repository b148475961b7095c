"""Users, access rules and quotas of a data directory that no broker serves.

A running broker keeps them in memory and would not notice a change of its files. So they are
changed through the broker while it runs, and in the directory while it does not: also before its
first start.
"""

import contextlib
import os
from collections.abc import Iterator

from cordwood.cli.at.store_directories import check_is_store
from cordwood.cli.at.target import DirectoryTarget
from cordwood.errors import DirectoryLockedError, LogError
from cordwood.log.store.cluster_mark import CLUSTER_MARK
from cordwood.security.security_file import SecurityFile
from cordwood.storage.disk.directory_lock import lock_directory
from cordwood.storage.files import RealFileSystem


@contextlib.contextmanager
def open_security(target: DirectoryTarget) -> Iterator[SecurityFile]:
    """The security file of the directories, which are created if missing and locked meanwhile."""
    with contextlib.ExitStack() as locks:
        for path in target.paths:
            os.makedirs(path, mode=0o700, exist_ok=True)
        check_is_store(target.paths)
        for path in target.paths:
            if os.path.exists(os.path.join(path, CLUSTER_MARK)):
                raise LogError(
                    f"{path} belongs to a broker of a cluster, whose users, access rules and "
                    "quotas are kept by the controllers; change them through a broker of the "
                    "cluster (--at host:port)"
                )
            try:
                locks.callback(lock_directory(path).release)
            except DirectoryLockedError as error:
                raise LogError(
                    f"{path} is in use by {error.owner}; change users, access rules and quotas "
                    "through the broker (--at host:port), or stop it first"
                ) from error
        yield SecurityFile(RealFileSystem(), target.paths)

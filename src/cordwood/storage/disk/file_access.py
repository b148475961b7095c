"""Who may use the files of a store, besides its owner.

    access   files    directories
    owner    0600     0700
    group    0660     0770           the group may read, and request changes
    all      0666     0777

The umask of the process applies as well: with 022, the group and others may only read.
"""

import os
import stat
from enum import StrEnum
from typing import Final

from cordwood.format.file_names import META_PROPERTIES, PARTITION_METADATA

_BITS: Final = {"owner": 0o700, "group": 0o770, "all": 0o777}


class FileAccess(StrEnum):
    """The values of `log.dir.access`."""

    OWNER = "owner"
    GROUP = "group"
    ALL = "all"

    @property
    def file_mode(self) -> int:
        return _BITS[self] & 0o666

    @property
    def directory_mode(self) -> int:
        return _BITS[self]

    @classmethod
    def of_store(cls, path: str) -> "FileAccess":
        """What the owner of the store whose first data directory is `path` has chosen.

        A process that asks the owner for a change lets it read the files of its request.
        """
        return cls._like(os.path.join(path, META_PROPERTIES))

    @classmethod
    def of_partition(cls, directory: str) -> "FileAccess":
        """As `of_store`, for one who knows only the directory of a partition."""
        return cls._like(os.path.join(directory, PARTITION_METADATA))

    @classmethod
    def _like(cls, path: str) -> "FileAccess":
        try:
            mode = os.stat(path).st_mode
        except OSError:
            return cls.OWNER
        if mode & stat.S_IROTH:
            return cls.ALL
        return cls.GROUP if mode & stat.S_IRGRP else cls.OWNER

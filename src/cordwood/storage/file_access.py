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
    def like(cls, path: str) -> "FileAccess":
        """The access that the directory at `path` has; OWNER if there is none.

        A process that asks the owner of a store for a change lets the owner read its files.
        """
        try:
            mode = os.stat(path).st_mode
        except OSError:
            return cls.OWNER
        if mode & stat.S_IROTH:
            return cls.ALL
        return cls.GROUP if mode & stat.S_IRGRP else cls.OWNER

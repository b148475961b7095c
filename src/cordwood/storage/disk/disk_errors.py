"""What an error of the operating system says about the disk.

full      no space, no quota: the change is refused, and later ones may succeed
failing   the device, its file system or its connection is broken: Cordwood stops writing to it
other     too few descriptors or too little memory, for example: the change is tried again
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cordwood.errors import DiskFullError

FULL_DISK_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

FAILING_DISK_ERRNOS: Final = frozenset(
    number
    for number in (
        errno.EIO,
        errno.EROFS,  # the kernel remounts a broken file system read-only
        errno.ENXIO,
        errno.ENODEV,
        errno.ESTALE,  # of network file systems, as the two below
        errno.ETIMEDOUT,
        errno.ENOTCONN,  # also if the process behind a FUSE mount has died
        getattr(errno, "EREMOTEIO", None),
        getattr(errno, "ENOMEDIUM", None),
        getattr(errno, "EUCLEAN", None),  # "structure needs cleaning"
    )
    if number is not None
)


@contextmanager
def refused_when_full(name: str, action: str) -> Iterator[None]:
    """Raise `DiskFullError` in place of an `OSError` that says that the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL_DISK_ERRNOS:
            raise DiskFullError(name, action=action) from error
        raise

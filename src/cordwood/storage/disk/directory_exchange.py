"""Exchanges two directories in one step: whoever looks up a name finds the one or the other.

Linux and macOS can do that on their local file systems; network file systems usually cannot.
"""

import errno
import os
import sys
from functools import cache
from typing import Any, Final

_HERE: Final = -100  # AT_FDCWD: paths are relative to the current directory
_EXCHANGE: Final = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_NOT_POSSIBLE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


def exchange(first: str, second: str) -> bool:
    """Exchange two names of one file system. False, without a change, if that is not possible.

    Durable once the directories of both are synced. Raises `OSError` for any other failure.
    """
    call = _system_call()
    if call is None:
        return False
    import ctypes

    ctypes.set_errno(0)
    if call(os.fsencode(first), os.fsencode(second)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_POSSIBLE:
        return False
    raise OSError(number, os.strerror(number), first, None, second)


@cache
def _system_call() -> Any:
    """The function of the C library for two paths; None if it has none."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        swap = getattr(library, "renamex_np", None)
        return None if swap is None else lambda first, second: swap(first, second, _EXCHANGE)
    rename = getattr(library, "renameat2", None)
    if rename is None:
        return None
    return lambda first, second: rename(_HERE, first, _HERE, second, _EXCHANGE)

"""Copies of whole files: as hard links if the file system supports them, else byte by byte."""

import errno
from typing import Final

from cordwood.quantities import MIB
from cordwood.storage.files import TEMPORARY_SUFFIX, FileSystem, write_all

_PIECE_BYTES: Final = 1 * MIB

# Another file system, no support for links, too many links, or links not permitted.
_NO_LINK_ERRNOS: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}
)


def copy_file(fs: FileSystem, source: str, target: str, *, size: int | None = None) -> int:
    """Copy `source`, or its first `size` bytes, to a new file; return the bytes copied.

    The content is durable on return; the name once its directory is synced.
    """
    reading = fs.open_read(source)
    writing = fs.create(target)
    try:
        position = 0
        end = reading.size() if size is None else size
        while position < end:
            piece = reading.read_at(position, min(_PIECE_BYTES, end - position))
            if not piece:
                break
            write_all(writing, position, piece)
            position += len(piece)
        writing.sync()
        return position
    finally:
        writing.close()
        reading.close()


def link_or_copy(fs: FileSystem, source: str, target: str) -> bool:
    """Link a file that is never changed, or copy it; True if it was linked."""
    try:
        fs.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINK_ERRNOS:
            raise
        copy_file(fs, source, target)
        return False
    return True


def unshare(fs: FileSystem, path: str) -> None:
    """Call before changing a file in place: its other hard links keep the present content."""
    if not fs.is_shared(path):
        return
    temporary = path + TEMPORARY_SUFFIX
    if fs.exists(temporary):
        fs.remove(temporary)
    copy_file(fs, path, temporary)
    fs.rename(temporary, path)

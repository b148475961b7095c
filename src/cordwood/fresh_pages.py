"""Memory that costs nothing until it is written.

A `bytearray` of a megabyte is filled with zeros when it is made, so that all of its pages are in
use from then on. Pages of the kernel are zeros already, and each is in use from its first byte on.
So a buffer may be as large as it will ever have to be, although few of its owners fill it.
"""

import contextlib
import mmap


def fresh_pages(size: int) -> mmap.mmap:
    """A buffer of `size` zeros, of this process alone. It is freed with the last view of it."""
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # The first byte would cost 2 MiB otherwise. Kernels without huge pages refuse.
        with contextlib.suppress(OSError):
            buffer.madvise(mmap.MADV_NOHUGEPAGE)
    return buffer

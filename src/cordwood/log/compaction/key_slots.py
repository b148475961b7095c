"""The slots of the key map, as its kernels share them.

Two forms with the same bodies, as `primitives` has: the compiler inlines `key_slots.pxd`, and this
module serves kernels that are not compiled. A test compares them.

The map is open-addressed with linear probing. A slot is three words of 64 bits:

    word  holds
    0     low half of the key's hash
    1     high half
    2     offset + 1 of the newest record with that key; 0: the slot is free
"""

from __future__ import annotations

from collections.abc import Sequence

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

ROWS_AHEAD = 16  # rows between the one that is worked on and the one whose slot is prefetched


def find_slot(words: Sequence[int], slots: int, low: int, high: int) -> int:
    """Where the key's slot begins in `words`, or the free slot where it belongs.

    Always finds one, because the map is never full.
    """
    slot: cython.ulonglong = ((low >> 32) * slots) >> 32
    at: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, slot * 3)
    end: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, slots * 3)
    while words[at + 2] != 0 and not (words[at] == low and words[at + 1] == high):
        at += 3
        if at == end:
            at = 0
    return at


def look_ahead(
    words: Sequence[int], slots: int, hashes: Sequence[int], row: int, end_row: int
) -> None:
    """Prefetch the slot of a later row: the map is larger than the processor's caches."""
    if cython.compiled:
        row += ROWS_AHEAD
        if row < end_row:
            __builtin_prefetch(  # noqa: F821
                cython.address(
                    words[
                        cython.cast(
                            cython.Py_ssize_t, (((hashes[row * 2] >> 32) * slots) >> 32) * 3
                        )
                    ]
                )
            )

"""Spaces and characters in the bytes of JSON, as its kernels share them.

Two forms with the same bodies, as `primitives` has: the compiler inlines `json_bytes.pxd`, and this
module serves kernels that are not compiled. A test compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import cython
else:  # this form is never compiled, and Cython's own module takes long to import
    from cordwood import plain_cython as cython


def skip_space(data: Sequence[int], at: int, end: int) -> int:
    """The position of the next byte that is no space; `end` if there is none."""
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


def after_wide(data: Sequence[int], at: int, end: int) -> int:
    """The position after a character of several bytes of UTF-8; -1 if it is none, or half a one."""
    byte: cython.uint = data[at]
    size: cython.Py_ssize_t
    low: cython.uint = 0x80
    high: cython.uint = 0xBF
    if 0xC2 <= byte <= 0xDF:
        size = 2
    elif 0xE0 <= byte <= 0xEF:
        size = 3
        if byte == 0xE0:
            low = 0xA0
        elif byte == 0xED:
            high = 0x9F
    elif 0xF0 <= byte <= 0xF4:
        size = 4
        if byte == 0xF0:
            low = 0x90
        elif byte == 0xF4:
            high = 0x8F
    else:
        return -1
    if at + size > end or not low <= data[at + 1] <= high:
        return -1
    if size > 2 and not 0x80 <= data[at + 2] <= 0xBF:
        return -1
    if size > 3 and not 0x80 <= data[at + 3] <= 0xBF:
        return -1
    return at + size

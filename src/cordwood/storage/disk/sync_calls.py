"""Linux asynchronous I/O, as far as syncs need it, for kernels that run as plain Python.

`sync_calls.pxd` has the same functions for the compiler. They return the negative code of an
error; -ENOSYS is also that of a machine for which they were not written.
"""

import errno
import os
import struct
import sys
from array import array
from functools import cache
from typing import Any, Final

# System calls by machine: io_setup, io_destroy, io_getevents, io_submit.
_CALLS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
# data, key, rw_flags, opcode, priority, fd, buffer, size, offset, reserved, flags, eventfd
_REQUEST: Final = struct.Struct("<QIIHhIQQqQII")
_FDSYNC: Final = 3
_TELL_EVENTFD: Final = 1
_TIMEOUT: Final = struct.Struct("<qq")  # seconds, nanoseconds
_SECOND_NS: Final = 1_000_000_000
_EVENT_SIZE: Final = 32


def set_up(slots: int) -> int:
    """A context for so many syncs at once; its number is positive."""
    import ctypes

    context = ctypes.c_ulong(0)
    return _call(0, slots, ctypes.byref(context)) or context.value


def destroy(context: int) -> int:
    """Release the context after its syncs have ended."""
    return _call(1, _number(context))


def submit(context: int, fd: int, number: int, eventfd: int) -> int:
    """Begin an fdatasync of `fd`; 1 if it was taken. Its end adds to `eventfd`. Never waits."""
    import ctypes

    request = ctypes.create_string_buffer(
        _REQUEST.pack(number, 0, 0, _FDSYNC, 0, fd, 0, 0, 0, 0, _TELL_EVENTFD, eventfd),
        _REQUEST.size,
    )
    pointer = ctypes.c_void_p(ctypes.addressof(request))
    return _call(3, _number(context), _number(1), ctypes.byref(pointer))


def collect(context: int, at_least: int, wait_ns: int, events: "array[int]") -> int:
    """Fill `events` with syncs that ended; return how many.

    Each takes four words: its number, one that means nothing here, its result, a second result.
    Waits for `at_least` of them, and no longer than `wait_ns` unless that is negative. A signal
    ends the wait, with -EINTR.
    """
    import ctypes

    table = (ctypes.c_char * (len(events) * events.itemsize)).from_buffer(events)
    timeout = None
    if wait_ns >= 0:
        timeout = ctypes.create_string_buffer(
            _TIMEOUT.pack(*divmod(wait_ns, _SECOND_NS)), _TIMEOUT.size
        )
    room = len(table) // _EVENT_SIZE
    return _call(2, _number(context), _number(at_least), _number(room), table, timeout)


def check_signals() -> None:
    """Let the handlers of signals run: the interpreter does that by itself."""


def _call(index: int, *arguments: object) -> int:
    import ctypes

    calls = _CALLS.get(os.uname().machine) if sys.platform == "linux" else None
    if calls is None or sys.byteorder != "little":
        return -errno.ENOSYS
    found: int = _syscall()(calls[index], *arguments)
    return found if found >= 0 else -ctypes.get_errno()


@cache
def _syscall() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True).syscall


def _number(value: int) -> object:
    """As a whole word: `syscall` takes any arguments, and ctypes passes an int as half a word."""
    import ctypes

    return ctypes.c_long(value)

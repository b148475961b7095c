"""Syncs in the background by the kernel: Linux asynchronous I/O, only for fdatasync.

One call starts a sync, and a descriptor that an event loop can watch signals its end. No thread
has to wait, so none contends for the GIL, which under load costs more than the sync itself. If
the kernel lacks it or does not permit it, `KernelSyncs.open` returns None, and threads wait
instead.

The kernel's threads do the work, on the core that asked for it: they write the pages, wake when
the disk has them, and commit the journal. Linux (from 6.6 on) lets a thread that is busy finish
its time slice of some milliseconds before it lets one run that has woken. So the sync began when
the loop had nothing left to do, and the loop then waited for it. From 6.12 on a thread that wakes
need not wait if its slice is shorter. So the thread of a loop asks for a longer one than others
(`yield_to_short_slices`).
"""

import errno
import os
import struct
import sys
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from ctypes import Array, c_char

# System calls by machine: io_setup, io_destroy, io_getevents, io_submit.
_CALLS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
# data, key, rw_flags, opcode, priority, fd, buffer, size, offset, reserved, flags, eventfd
_REQUEST: Final = struct.Struct("<QIIHhIQQqQII")
_EVENT: Final = struct.Struct("<QQqq")  # data, address of the request, result, second result
# sched_setattr and sched_getattr by machine.
_SCHEDULING_CALLS: Final = {"x86_64": (314, 315), "aarch64": (274, 275)}
# size, policy, flags, nice, priority, slice ("runtime") in ns, deadline, period
_SCHEDULING: Final = struct.Struct("<IIQiIQQQ")
_ORDINARY_POLICY: Final = 0
_SLICE_MS_MAX: Final = 100  # what Linux accepts
_FDSYNC: Final = 3
_TELL_EVENTFD: Final = 1
_SLOTS: Final = 64  # syncs running at once
_TIMEOUT: Final = struct.Struct("<qq")  # seconds, nanoseconds


class KernelSyncs:
    """Runs syncs. For one thread, that of the event loop which watches `fd`."""

    def __init__(self, fd: int, context: int, calls: tuple[int, int, int, int]) -> None:
        import ctypes

        self.fd = fd
        self._destroy, self._get_events, self._submit = calls[1:]
        self._context = ctypes.c_ulong(context)
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._get_errno = ctypes.get_errno
        self._request = ctypes.create_string_buffer(_REQUEST.size)
        self._pointer = ctypes.c_void_p(ctypes.addressof(self._request))
        self._pointers = ctypes.byref(self._pointer)
        self._events = ctypes.create_string_buffer(_EVENT.size * _SLOTS)
        self._timeout = ctypes.create_string_buffer(_TIMEOUT.size)
        self._count = 0

    @classmethod
    def open(cls) -> Self | None:
        """None if the kernel does not offer it, or has no descriptor left for it."""
        calls = _CALLS.get(os.uname().machine) if sys.platform == "linux" else None
        if calls is None or not hasattr(os, "eventfd") or sys.byteorder != "little":
            return None
        import ctypes

        try:
            fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:
            return None
        context = ctypes.c_ulong(0)
        if ctypes.CDLL(None, use_errno=True).syscall(calls[0], _SLOTS, ctypes.byref(context)):
            os.close(fd)
            return None
        return cls(fd, context.value, calls)

    def submit(self, fd: int, number: int) -> bool:
        """Start a sync of `fd`; `finished` reports it by `number`. False: sync in another way."""
        if self._count == _SLOTS:
            return False
        _REQUEST.pack_into(
            self._request, 0, number, 0, 0, _FDSYNC, 0, fd, 0, 0, 0, 0, _TELL_EVENTFD, self.fd
        )
        if self._syscall(self._submit, self._context, 1, self._pointers) != 1:
            return False
        self._count += 1
        return True

    def finished(self) -> list[tuple[int, OSError | None]]:
        """The numbers of the syncs that ended since the last call, each with its error or None.

        `fd` stays readable: its watcher asks to be told of each end anew, edge by edge.
        """
        return self._collect(at_least=0)

    def finished_within(self, wait_s: float) -> list[tuple[int, OSError | None]]:
        """Like `finished`; if none has ended, wait for the first, for less than a second."""
        _TIMEOUT.pack_into(self._timeout, 0, 0, int(wait_s * 1e9))
        return self._collect(at_least=1, timeout=self._timeout)

    def wait_for_all(self) -> list[tuple[int, OSError | None]]:
        """Like `finished`, after waiting for all running syncs."""
        found: list[tuple[int, OSError | None]] = []
        while self._count:
            found.extend(self._collect(at_least=self._count))
        return found

    def _collect(
        self, *, at_least: int, timeout: "Array[c_char] | None" = None
    ) -> list[tuple[int, OSError | None]]:
        while True:
            count = self._syscall(
                self._get_events, self._context, at_least, _SLOTS, self._events, timeout
            )
            if count >= 0:
                break
            code = self._get_errno()
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code))
        self._count -= count
        found: list[tuple[int, OSError | None]] = []
        for index in range(count):
            number, _, result, _ = _EVENT.unpack_from(self._events, index * _EVENT.size)
            failed = OSError(-result, os.strerror(-result)) if result < 0 else None
            found.append((number, failed))
        return found

    def close(self) -> None:
        """Release the kernel's resources after all syncs have ended."""
        self._syscall(self._destroy, self._context)
        os.close(self.fd)


def yield_to_short_slices() -> bool:
    """Let threads with ordinary time slices interrupt this thread when they wake. Call it once.

    It gets as much time as before, in slices of twice the length. False: nothing was changed,
    because the kernel has no such slices, or somebody chose another policy for the thread.
    """
    calls = _SCHEDULING_CALLS.get(os.uname().machine) if sys.platform == "linux" else None
    if calls is None or sys.byteorder != "little":
        return False
    import ctypes

    set_attributes, get_attributes = calls
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    found = ctypes.create_string_buffer(_SCHEDULING.size)
    if syscall(get_attributes, 0, found, _SCHEDULING.size, 0):
        return False
    _, policy, flags, nice, priority, slice_ns, deadline, period = _SCHEDULING.unpack(found.raw)
    if policy != _ORDINARY_POLICY or not 0 < 2 * slice_ns <= _SLICE_MS_MAX * 1_000_000:
        return False
    wanted = _SCHEDULING.pack(
        _SCHEDULING.size, policy, flags, nice, priority, 2 * slice_ns, deadline, period
    )
    return not syscall(set_attributes, 0, ctypes.create_string_buffer(wanted, len(wanted)), 0)

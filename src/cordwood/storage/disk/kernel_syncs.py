# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Syncs in the background by the kernel: Linux asynchronous I/O, only for fdatasync.

One call starts a sync, and a descriptor that an event loop can watch signals its end. No thread
has to wait, so none contends for the GIL, which under load costs more than the sync itself. If
the kernel lacks it or does not permit it, `KernelSyncs.open` returns None, and threads wait
instead.

A kernel of ours, too: see `format/batch_scan.py` for the rules of kernels. It makes two system
calls for every sync, and little else. It keeps the GIL for those that never wait.
"""

from __future__ import annotations

import errno
import os
from array import array

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.storage.disk.sync_calls import (  # type: ignore
        check_signals,
        collect,
        destroy,
        set_up,
        submit,
    )
else:
    from cordwood.storage.disk.sync_calls import check_signals, collect, destroy, set_up, submit

COMPILED = cython.compiled

_SLOTS = cython.declare(cython.longlong, 64)  # syncs running at once
_EVENT_WORDS = cython.declare(cython.Py_ssize_t, 4)  # number, address, result, second result
_INTERRUPTED = cython.declare(cython.longlong, -errno.EINTR)


class KernelSyncs:
    """Runs syncs. For one thread, that of the event loop which watches `fd`."""

    def __init__(self, fd: cython.longlong, context: cython.longlong) -> None:
        self.fd = fd
        self._context = context
        self._events = array("q", bytes(8 * _EVENT_WORDS * _SLOTS))
        self._count = 0

    @classmethod
    def open(cls) -> KernelSyncs | None:
        """None if the kernel does not offer it, or has no descriptor left for it."""
        if not hasattr(os, "eventfd"):
            return None
        try:
            fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:
            return None
        context: cython.longlong = set_up(_SLOTS)
        if context < 0:
            os.close(fd)
            return None
        return cls(fd, context)

    def submit(self, fd: cython.longlong, number: cython.longlong) -> bool:
        """Start a sync of `fd`; `finished` reports it by `number`. False: sync in another way."""
        if self._count == _SLOTS or submit(self._context, fd, number, self.fd) != 1:
            return False
        self._count += 1
        return True

    def finished(self) -> list:
        """The numbers of the syncs that ended since the last call, each with its error or None.

        `fd` stays readable: its watcher asks to be told of each end anew, edge by edge.
        """
        ended: list = _collected(self._context, 0, 0, self._events)
        self._count -= len(ended)
        return ended

    def finished_within(self, wait_s: float) -> list:
        """Like `finished`; if none has ended, wait for the first, for at most so long."""
        ended: list = _collected(self._context, 1, int(wait_s * 1e9), self._events)
        self._count -= len(ended)
        return ended

    def wait_for_all(self) -> list:
        """Like `finished`, after waiting for all running syncs."""
        found: list = []
        while self._count:
            ended: list = _collected(self._context, self._count, -1, self._events)
            self._count -= len(ended)
            found += ended
        return found

    def close(self) -> None:
        """Release the kernel's resources after all syncs have ended."""
        destroy(self._context)
        os.close(self.fd)


@cython.cfunc
def _collected(
    context: cython.longlong,
    at_least: cython.longlong,
    wait_ns: cython.longlong,
    table: object,
) -> list:
    """See `sync_calls.collect`. A signal does not end it, unless its handler raises."""
    events: cython.longlong[::1] = table  # type: ignore[assignment]
    found: list = []
    count: cython.longlong
    result: cython.longlong
    index: cython.Py_ssize_t
    while True:
        if at_least == 0:
            count = collect(context, at_least, wait_ns, events)
        else:
            with cython.nogil:
                count = collect(context, at_least, wait_ns, events)
        if count != _INTERRUPTED:
            break
        check_signals()
    if count < 0:
        raise OSError(-count, os.strerror(-count))
    for index in range(count):
        result = events[index * _EVENT_WORDS + 2]
        error = OSError(-result, os.strerror(-result)) if result < 0 else None
        found.append((events[index * _EVENT_WORDS], error))
    return found

"""The time slices of a thread that begins syncs, so that those who carry them out get their turn.

The kernel's threads do the work of a sync (`kernel_syncs`) on the core that asked for it: they
write the pages, wake when the disk has them, and commit the journal. Linux (from 6.6 on) lets a
thread that is busy finish its time slice of some milliseconds before it lets one run that has
woken. So the sync began when the loop had nothing left to do, and the loop then waited for it. From
6.12 on a thread that wakes need not wait if its slice is shorter. So the thread of a loop asks for
a longer one than others.
"""

import os
import struct
import sys
from typing import Final

# sched_setattr and sched_getattr by machine.
_CALLS: Final = {"x86_64": (314, 315), "aarch64": (274, 275)}
# size, policy, flags, nice, priority, slice ("runtime") in ns, deadline, period
_SCHEDULING: Final = struct.Struct("<IIQiIQQQ")
_ORDINARY_POLICY: Final = 0
_SLICE_MS_MAX: Final = 100  # what Linux accepts


def yield_to_short_slices() -> bool:
    """Let threads with ordinary time slices interrupt this thread when they wake. Call it once.

    It gets as much time as before, in slices of twice the length. False: nothing was changed,
    because the kernel has no such slices, or somebody chose another policy for the thread.
    """
    calls = _CALLS.get(os.uname().machine) if sys.platform == "linux" else None
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

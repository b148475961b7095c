"""Time slices: a thread that begins syncs lets those run that carry them out."""

import os
import struct
import threading

import pytest

from cordwood.storage.disk.time_slices import yield_to_short_slices

GET_ATTRIBUTES = {"x86_64": 315, "aarch64": 275}
ATTRIBUTES = struct.Struct("<IIQiIQQQ")


def own_slice_ns() -> int:
    """The time slice of this thread; 0 if the kernel does not tell."""
    call = GET_ATTRIBUTES.get(os.uname().machine)
    if call is None:
        return 0
    import ctypes

    found = ctypes.create_string_buffer(ATTRIBUTES.size)
    if ctypes.CDLL(None).syscall(call, 0, found, ATTRIBUTES.size, 0):
        return 0
    return int(ATTRIBUTES.unpack(found.raw)[5])


def test_the_thread_that_syncs_lets_the_kernels_threads_interrupt_it() -> None:
    if not own_slice_ns():
        pytest.skip("the kernel has no time slices that a thread may choose")
    seen: list[tuple[int, bool, int]] = []

    def yield_here() -> None:
        seen.append((own_slice_ns(), yield_to_short_slices(), own_slice_ns()))

    thread = threading.Thread(target=yield_here)
    thread.start()
    thread.join()

    ((before_ns, is_changed, after_ns),) = seen
    assert is_changed
    assert after_ns > before_ns
    assert own_slice_ns() == before_ns  # of this thread, which has asked for nothing

"""Syncs by the kernel: they end while the thread that began them is busy with other things."""

import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.storage.kernel_syncs import KernelSyncs, yield_to_short_slices

GET_ATTRIBUTES = {"x86_64": 315, "aarch64": 275}
ATTRIBUTES = struct.Struct("<IIQiIQQQ")


@pytest.fixture
def syncs() -> Iterator[KernelSyncs]:
    opened = KernelSyncs.open()
    if opened is None:
        pytest.skip("the kernel offers no such syncs")
    yield opened
    opened.close()


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


def test_each_sync_is_reported_once_by_its_number(syncs: KernelSyncs, tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb", buffering=0) as file:
        for number in (7, 8):
            file.write(b"x")
            assert syncs.submit(file.fileno(), number)

        ended = syncs.wait_for_all()

    assert sorted(ended) == [(7, None), (8, None)]
    assert syncs.wait_for_all() == []


def test_one_may_wait_for_the_first_that_ends_for_a_while(
    syncs: KernelSyncs, tmp_path: Path
) -> None:
    with open(tmp_path / "file", "wb", buffering=0) as file:
        without = syncs.finished_within(0.0001)
        file.write(b"x")
        assert syncs.submit(file.fileno(), 7)
        ended = syncs.finished_within(0.9) or syncs.wait_for_all()

    assert without == []
    assert ended == [(7, None)]


def test_a_sync_that_is_impossible_is_reported_or_refused(syncs: KernelSyncs) -> None:
    reader, writer = os.pipe()
    try:
        is_taken = syncs.submit(reader, 1)
        ended = syncs.wait_for_all()
    finally:
        os.close(reader)
        os.close(writer)

    assert not is_taken or isinstance(dict(ended)[1], OSError)


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

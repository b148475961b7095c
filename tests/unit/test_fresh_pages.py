"""Memory is in use from its first byte on, page by page."""

import mmap
import sys
from pathlib import Path

import pytest

from cordwood.fresh_pages import fresh_pages
from fakes.forking_program import run_forking
from fakes.resident_size import resident_bytes

MIB = 1024 * 1024
SIZE = 64 * MIB


def test_a_buffer_holds_zeros_and_what_is_written() -> None:
    buffer = fresh_pages(3 * mmap.PAGESIZE)

    buffer[5:8] = b"abc"

    assert len(buffer) == 3 * mmap.PAGESIZE
    assert buffer[:10] == b"\0\0\0\0\0abc\0\0"
    assert not any(memoryview(buffer)[mmap.PAGESIZE :])


@pytest.mark.skipif(sys.platform != "linux", reason="the resident size is in /proc")
def test_a_buffer_costs_nothing_until_it_is_written() -> None:
    before = resident_bytes()

    buffer = fresh_pages(SIZE)
    unwritten = resident_bytes() - before
    for at in range(0, 8 * MIB, mmap.PAGESIZE):
        buffer[at] = 1
    written = resident_bytes() - before

    # Other threads of this process allocate memory meanwhile.
    assert unwritten < SIZE // 4
    assert written < SIZE // 2


def test_a_child_process_does_not_write_into_its_parent_s_buffer(tmp_path: Path) -> None:
    body = """
        from cordwood.fresh_pages import fresh_pages

        buffer = fresh_pages(4096)
        in_child(lambda: buffer.write(b"abc"))
        assert not any(buffer[:]), buffer[:10]
    """

    run_forking(body, tmp_path)

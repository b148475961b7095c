"""Zeros at the end of a file are counted from its end, over pieces of any size."""

import pytest

from cordwood.storage.files import write_all
from cordwood.storage.log_file.zero_tail import is_zeros, zeros_at_end
from fakes.simulated_fs import SimulatedFileSystem


@pytest.mark.parametrize("data_size", [0, 1, 262_143, 262_144, 262_145, 600_000])
@pytest.mark.parametrize("zeros", [0, 1, 262_143, 262_144, 262_145, 600_000])
def test_the_zeros_at_the_end_are_counted(data_size: int, zeros: int) -> None:
    fs = SimulatedFileSystem()
    file = fs.create("/file")
    write_all(file, 0, b"x" * data_size + bytes(zeros))

    found = zeros_at_end(file, 0, data_size + zeros)

    assert found == zeros


def test_zeros_before_the_start_do_not_count() -> None:
    fs = SimulatedFileSystem()
    file = fs.create("/file")
    write_all(file, 0, b"x" + bytes(10))

    assert zeros_at_end(file, 4, 11) == 7
    assert is_zeros(file, 4, 11)
    assert not is_zeros(file, 0, 11)
    assert not is_zeros(file, 11, 11)

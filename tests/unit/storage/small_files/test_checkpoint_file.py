"""Checkpoints on disk: whole, durable, or refused with the file's name."""

import errno
import random

import pytest

from cordwood.errors import FormatError, LimitExceededError
from cordwood.format.file_names import RECOVERY_POINT
from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.storage.files import read_whole, replace_file
from cordwood.storage.small_files.checkpoint_file import (
    read_epoch_checkpoint,
    read_offset_checkpoint,
    write_epoch_checkpoint,
    write_offset_checkpoint,
)
from fakes.simulated_fs import SimulatedFileSystem

OFFSETS = {("orders", 0): Offset(42), ("orders", 1): Offset(0)}
EPOCHS = [
    EpochEntry(epoch=LeaderEpoch(0), start_offset=Offset(0)),
    EpochEntry(epoch=LeaderEpoch(3), start_offset=Offset(17)),
]


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def test_offsets_read_back_as_written_in_kafkas_text(fs: SimulatedFileSystem) -> None:
    write_offset_checkpoint(fs, "/", RECOVERY_POINT, OFFSETS)

    assert read_offset_checkpoint(fs, "/", RECOVERY_POINT) == OFFSETS
    text = read_whole(fs, f"/{RECOVERY_POINT}", limit=1000)
    assert text == b"0\n2\norders 0 42\norders 1 0\n"


def test_epochs_read_back_as_written_in_kafkas_text(fs: SimulatedFileSystem) -> None:
    write_epoch_checkpoint(fs, "/", EPOCHS)

    assert read_epoch_checkpoint(fs, "/") == EPOCHS
    assert read_whole(fs, "/leader-epoch-checkpoint", limit=1000) == b"0\n2\n0 0\n3 17\n"


def test_a_missing_or_empty_file_has_no_entries(fs: SimulatedFileSystem) -> None:
    missing = read_offset_checkpoint(fs, "/", RECOVERY_POINT), read_epoch_checkpoint(fs, "/")
    replace_file(fs, f"/{RECOVERY_POINT}", b"")

    assert missing == ({}, [])
    assert read_offset_checkpoint(fs, "/", RECOVERY_POINT) == {}


@pytest.mark.parametrize("content", [b"1\n0\n", b"0\n2\norders 0 42\n", b"0\n1\norders", b"\xff\n"])
def test_a_damaged_file_is_refused_by_name(fs: SimulatedFileSystem, content: bytes) -> None:
    replace_file(fs, f"/{RECOVERY_POINT}", content)

    with pytest.raises(FormatError) as refused:
        read_offset_checkpoint(fs, "/", RECOVERY_POINT)

    assert refused.value.__notes__ == [f"in /{RECOVERY_POINT}"]


def test_a_file_beyond_all_measure_is_not_read(
    fs: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.storage.small_files.checkpoint_file._CHECKPOINT_BYTES_MAX", 10)
    write_offset_checkpoint(fs, "/", RECOVERY_POINT, OFFSETS)

    with pytest.raises(LimitExceededError):
        read_offset_checkpoint(fs, "/", RECOVERY_POINT)


def test_a_written_checkpoint_survives_a_power_cut(fs: SimulatedFileSystem) -> None:
    write_offset_checkpoint(fs, "/", RECOVERY_POINT, OFFSETS)

    for seed in range(50):
        after = fs.crash(random.Random(seed))
        assert read_offset_checkpoint(after, "/", RECOVERY_POINT) == OFFSETS


@pytest.mark.parametrize("call", range(1, 6))
def test_a_power_cut_while_writing_leaves_the_old_checkpoint_or_the_new(
    fs: SimulatedFileSystem, call: int
) -> None:
    new = {("orders", 0): Offset(99)}
    write_offset_checkpoint(fs, "/", RECOVERY_POINT, OFFSETS)
    fs.fail_at(call, OSError(errno.EIO, "power goes here"))

    with pytest.raises(OSError, match="power goes here"):
        write_offset_checkpoint(fs, "/", RECOVERY_POINT, new)

    for seed in range(50):
        after = fs.crash(random.Random(seed))
        assert read_offset_checkpoint(after, "/", RECOVERY_POINT) in (OFFSETS, new)

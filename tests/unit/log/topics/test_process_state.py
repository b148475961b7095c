"""Splitting the state of a directory among processes, and merging it; power may fail anywhere."""

import errno
from random import Random

import pytest

from cordwood.format.file_names import CLEAN_SHUTDOWN, CLEANER, LOG_START, RECOVERY_POINT
from cordwood.log.topics.log_directory import read_checkpoints
from cordwood.log.topics.process_state import (
    PartitionName,
    merge_state,
    read_offsets,
    split_state,
    state_path,
)
from cordwood.quantities import Offset
from cordwood.storage.files import make_durable_directory, replace_file
from cordwood.storage.small_files.checkpoint_file import (
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from fakes.simulated_fs import SimulatedFileSystem

DATA = "/data"
PROCESSES = ["keeper", "worker-0", "worker-1"]
POINTS = {("a", number): Offset(10 * number) for number in range(4)}
STARTS = {("a", 2): Offset(7), ("a", 3): Offset(8)}
CALLS_MAX = 400


def owner(name: PartitionName) -> str | None:
    return None if name[0] == "gone" else f"worker-{name[1] % 2}"


def directory(*, is_clean: bool = True) -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    make_durable_directory(fs, DATA)
    write_offset_checkpoint(fs, DATA, RECOVERY_POINT, {**POINTS, ("gone", 0): Offset(1)})
    write_offset_checkpoint(fs, DATA, LOG_START, STARTS)
    write_offset_checkpoint(fs, DATA, CLEANER, {})
    if is_clean:
        replace_file(fs, f"{DATA}/{CLEAN_SHUTDOWN}", b"{}")
    return fs


def is_marked_clean(fs: SimulatedFileSystem, path: str = DATA) -> bool:
    return fs.exists(f"{path}/{CLEAN_SHUTDOWN}")


def test_each_process_gets_the_state_of_its_partitions() -> None:
    fs = directory()

    split_state(fs, DATA, PROCESSES, owner)

    own = read_offset_checkpoint(fs, state_path(DATA, "worker-1"), RECOVERY_POINT)
    assert own == {("a", 1): 10, ("a", 3): 30}
    assert all(is_marked_clean(fs, state_path(DATA, process)) for process in PROCESSES)
    assert not is_marked_clean(fs)
    assert read_checkpoints(fs, DATA).recovery_points == POINTS


def test_merging_takes_the_newest_state_back_and_leaves_no_trace() -> None:
    fs = directory()
    split_state(fs, DATA, PROCESSES, owner)
    mine = state_path(DATA, "worker-0")
    write_offset_checkpoint(fs, mine, RECOVERY_POINT, {("a", 0): Offset(99), ("b", 0): Offset(5)})

    merge_state(fs, DATA)

    merged = read_offsets(fs, DATA, RECOVERY_POINT)
    assert merged == {("a", 0): 99, ("a", 1): 10, ("a", 3): 30, ("b", 0): 5}
    assert read_offsets(fs, DATA, LOG_START) == STARTS
    assert is_marked_clean(fs)
    assert not fs.names(f"{DATA}/remote-log-index-cache")


def test_a_directory_is_clean_only_if_all_processes_ended_in_order() -> None:
    fs = directory()
    split_state(fs, DATA, PROCESSES, owner)
    fs.remove(f"{state_path(DATA, 'worker-1')}/{CLEAN_SHUTDOWN}")

    merge_state(fs, DATA)

    assert not is_marked_clean(fs)


@pytest.mark.parametrize("is_clean", [True, False])
def test_no_power_cut_during_a_split_or_a_merge_loses_state_or_invents_a_clean_end(
    is_clean: bool,
) -> None:
    for call in range(1, CALLS_MAX):
        fs = directory(is_clean=is_clean)
        last = fs.calls + call
        fs.fail_at(call, OSError(errno.EIO, "power"))
        try:
            split_state(fs, DATA, PROCESSES, owner)
            if is_clean and call % 2:  # a process did not end in order
                fs.remove(f"{state_path(DATA, 'worker-0')}/{CLEAN_SHUTDOWN}")
            merge_state(fs, DATA)
        except OSError:
            pass
        for seed in range(3):
            after = fs.crash(Random(seed))

            merge_state(after, DATA)

            known = read_offsets(after, DATA, RECOVERY_POINT)
            assert {name: at for name, at in known.items() if name[0] == "a"} == POINTS, call
            assert read_offsets(after, DATA, LOG_START) == STARTS, call
            assert is_clean or not is_marked_clean(after), call
        if fs.calls < last:
            assert call > 40, "it must have been cut at every call"
            return
    raise AssertionError("the split never ended")

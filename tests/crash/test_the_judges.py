"""The fault tests notice: each rule of the engine is broken in turn, and some run must say so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from cordwood.format.batch import BatchDecoder
from cordwood.log.partition import log_loader
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.quantities import FilePosition, Offset
from cordwood.storage.files import write_all
from cordwood.storage.recovery import (
    BatchVisitor,
    RecoveryPlan,
    Walk,
    plan_recovery,
    walk_segment,
)
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.segment_writer import SegmentWriter
from cordwood.value_class import replace
from crash.client import Client
from crash.io_faults import CallFault, all_faults, run_fault
from crash.power_cut import run_seed
from crash.rot import run_flip
from crash.scripts import SCRIPTS
from fakes.simulated_fs import SimulatedFileSystem

pytestmark = pytest.mark.faults


def finds_something(run: Callable[[int], None], tries: range) -> bool:
    for number in tries:
        try:
            run(number)
        except Exception:
            return True
    return False


def test_that_records_are_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Segment, "sync_log", lambda self: None)

    assert finds_something(lambda seed: run_seed("append", seed), range(40))


def test_that_names_are_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedFileSystem, "sync_directory", lambda self, path: None)

    assert finds_something(lambda seed: run_seed("roll", seed), range(40))


def test_that_checksums_are_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchDecoder, "sound_count", lambda self: self.count)

    assert finds_something(run_flip, range(40))


def test_that_a_failed_sync_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateHolder, "fail", lambda self, reason: None)
    monkeypatch.setattr(Segment, "sync_log", _sync_and_forget)
    failing = [fault for fault in _syncs_of("append") if fault.kind == "EIO"]

    assert finds_something(lambda number: run_fault(failing[number]), range(len(failing)))


def test_that_files_keep_the_zeros_that_were_written_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentWriter, "trim", _forget_zeros)

    assert finds_something(lambda seed: run_seed("roll-ahead", seed), range(40))


def test_that_recovery_leaves_the_zeros_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentWriter, "cut_tail", lambda self, position: None)

    assert finds_something(lambda seed: run_seed("roll-ahead", seed), range(40))


def test_that_recovery_trusts_the_size_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_loader, "walk_segment", _walk_to_the_end_of_the_file)

    assert finds_something(lambda seed: run_seed("checkpoint-ahead", seed), range(40))


def test_that_recovery_keeps_batches_behind_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    def believe(walks: Sequence[Walk], **known: Any) -> RecoveryPlan:
        return plan_recovery(walks, **{**known, "is_durable_exact": False})

    monkeypatch.setattr(log_loader, "plan_recovery", believe)

    assert finds_something(lambda seed: run_seed("group-commit-ahead", seed), range(30, 160))


def test_that_zeros_are_written_over_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentWriter, "write_ahead", _write_zeros_too_early)

    assert finds_something(lambda seed: run_seed("append-ahead", seed), range(40))


def _forget_zeros(writer: SegmentWriter) -> None:
    writer.zeros.end = 0


def _walk_to_the_end_of_the_file(
    segment: Segment, from_offset: Offset, visit: BatchVisitor
) -> Walk:
    walk = walk_segment(segment, from_offset, visit)
    if not walk.zero_bytes:
        return walk
    segment.writer.extent.size = walk.file_size
    return replace(walk, end=FilePosition(walk.file_size), bad=(), zero_bytes=0)


def _write_zeros_too_early(writer: SegmentWriter, end: int) -> None:
    writer.zeros.end = end
    position = max(writer.extent.size - 10, 0)
    write_all(writer.file, position, bytes(end - position))


def _sync_and_forget(segment: Segment) -> None:
    try:
        segment.file().sync()
    except OSError:
        return


def _syncs_of(script: str) -> list[CallFault]:
    fs = SimulatedFileSystem()
    SCRIPTS[script](Client(fs, Random(0)))
    calls = [
        number
        for number, (operation, path) in enumerate(fs.call_log, 1)
        if operation == "sync" and path.endswith(".log")
    ]
    return [fault for fault in all_faults(script, 0) if fault.call in calls]

"""The fault tests notice: each rule of the engine is broken in turn, and some run must say so."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from cordwood.format.batch import BatchDecoder
from cordwood.log.partition.state_holder import StateHolder
from cordwood.storage.segment import Segment
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

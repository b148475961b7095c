"""Disk work of replicas, in threads beside the data loop."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from cordwood.broker.cluster.replicas.replica_disk import ReplicaDisk
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.records.disk_syncs import DiskSyncs
from fakes.replication_bench import ReplicationBench

WAIT_S = 20.0


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    made = EventLoop("disk")
    made.start()
    yield made
    made.stop()


def test_who_waits_for_the_jobs_under_way_hears_when_they_are_done(loop: EventLoop) -> None:
    bench = ReplicationBench()
    disk = ReplicaDisk(loop, DiskSyncs(loop), after_job=lambda _log: None)
    may_end, later_may_end, is_over = threading.Event(), threading.Event(), threading.Event()
    seen: list[str] = []

    def over() -> None:
        seen.append("over")
        is_over.set()

    def begin() -> None:
        disk.run(bench.log, may_end.wait, lambda _result: seen.append("first"))
        disk.run(bench.log, may_end.wait, lambda _result: seen.append("first"))
        disk.after_jobs(over)
        disk.run(bench.log, later_may_end.wait, lambda _result: None)
        may_end.set()

    loop.call_soon(begin)

    assert is_over.wait(WAIT_S)  # a job that began later is not waited for
    assert seen == ["first", "first", "over"]
    assert disk.steps == 2
    later_may_end.set()
    is_over.clear()
    loop.call_soon(lambda: disk.after_jobs(is_over.set))
    assert is_over.wait(WAIT_S)
    disk.stop()
    bench.store.close()


class _File:
    """Something that is closed when nobody has it any more."""


def test_a_job_that_failed_keeps_no_file_open(loop: EventLoop) -> None:
    bench = ReplicationBench()
    disk = ReplicaDisk(loop, DiskSyncs(loop), after_job=lambda _log: None)
    opened: list[weakref.ref[_File]] = []
    told: list[str] = []
    is_over = threading.Event()

    def write() -> None:
        file = _File()
        opened.append(weakref.ref(file))
        raise OSError(28, "No space left on device")

    def begin() -> None:
        disk.run(bench.log, write, lambda result: told.append(str(result)))
        disk.after_jobs(is_over.set)

    gc.disable()  # a broker that is idle does not collect garbage for hours
    try:
        loop.call_soon(begin)
        assert is_over.wait(WAIT_S)
        disk.stop()
        assert told == ["[Errno 28] No space left on device"]
        assert opened[0]() is None
    finally:
        gc.enable()
        bench.store.close()

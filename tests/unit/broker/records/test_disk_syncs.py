"""Syncs of the data loop: whatever comes of a sync, groups that wait for its end continue."""

import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.broker.net.loop.event_loop import READABLE, EventLoop
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store, StoreSetup
from fakes.client_batches import client_batch
from fakes.scarcity import refuse_descriptors, refuse_threads

TURNS_MAX = 100


class Bench:
    """One log with a sync under way, and a loop turned by hand."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.loop = EventLoop("data")
        self.syncs = DiskSyncs(self.loop)
        self.watch = LogWatch(self.loop)
        self.appended: list[str] = []

    def append(self) -> None:
        self.log.batches.append_batch(client_batch(b"x"), wait=False)

    def hold(self, name: str) -> None:
        self.watch.await_sync(self.log, lambda: self.appended.append(name))

    def finish_sync(self) -> None:
        for _ in range(TURNS_MAX):
            if not self.syncs.is_under_way(self.log):
                break
            self.loop._turn()
        assert not self.syncs.is_under_way(self.log)
        self.loop.call_soon(lambda: None)
        self.loop._turn()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    setup = StoreSetup(
        defaults=TopicConfig(durability="disk"), has_housekeeping=False, free_bytes_min=0
    )
    store = Store([str(tmp_path)], setup)
    store.create_topic("t", partitions=1)
    made = Bench(store.topic("t").partition(0))
    made.append()
    made.log.sync()  # the first sync also creates directory entries
    yield made
    made.syncs.stop()
    made.loop._close()
    store.close()


def test_a_held_group_continues_when_the_sync_ends(bench: Bench) -> None:
    bench.append()
    bench.syncs.request(bench.log)

    bench.hold("group")
    bench.finish_sync()

    assert bench.appended == ["group"]


def test_a_held_group_continues_after_a_sync_that_found_everything_durable(bench: Bench) -> None:
    # The flusher's sync ended after the append and before this request.
    bench.syncs.request(bench.log)
    assert bench.syncs.is_under_way(bench.log)

    bench.hold("group")
    bench.finish_sync()

    assert bench.appended == ["group"]


def test_a_held_group_continues_if_the_log_failed_before_it_was_held(bench: Bench) -> None:
    bench.append()
    bench.syncs.request(bench.log)
    bench.log._holder.fail("another thread could not write")

    bench.hold("group")
    bench.finish_sync()

    assert bench.appended == ["group"]


def test_a_log_is_synced_if_the_system_has_no_descriptor_for_the_kernels_syncs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_descriptors(monkeypatch)
    bench.append()

    bench.syncs.request(bench.log)
    bench.finish_sync()

    assert bench.log.state.durable == bench.log.end_offset


def test_a_log_is_synced_if_the_system_has_no_thread_either(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_descriptors(monkeypatch)
    with monkeypatch.context() as scarce:
        refuse_threads(scarce)
        bench.append()
        bench.syncs.request(bench.log)
        bench.finish_sync()
    without = bench.log.state.durable
    bench.append()
    bench.syncs.request(bench.log)  # now it has one
    bench.finish_sync()

    assert without == 2
    assert bench.log.state.durable == bench.log.end_offset == 3


def test_who_waits_for_a_sync_under_way_goes_on_when_the_syncs_are_stopped(bench: Bench) -> None:
    """The loop has ended and notes the end of no sync."""
    bench.append()
    bench.syncs.request(bench.log)
    job = threading.Thread(target=bench.log.syncing.sync_pending, daemon=True)
    job.start()

    bench.syncs.stop()
    job.join(30)
    bench.syncs.stop()  # safe to repeat

    assert not job.is_alive()
    assert bench.log.state.durable == bench.log.end_offset


# --- waiting for the end ----------------------------------------------------------------------


class Waits:
    """Whether the loop waited for the end of a sync, and what it was told."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next sync is under way."""
        bench.append()
        bench.syncs.request(bench.log)
        kernel = bench.syncs._kernel
        if kernel is None:
            pytest.skip("the kernel offers no such syncs")
        self.asked_s: list[float] = []
        self.told: list[tuple[int, OSError | None]] | None = None  # None: the truth
        ask = kernel.finished_within

        def finished_within(wait_s: float) -> list[tuple[int, OSError | None]]:
            self.asked_s.append(wait_s)
            return ask(wait_s) if self.told is None else self.told

        monkeypatch.setattr(kernel, "finished_within", finished_within)
        bench.loop.ready_count = bench.loop.together_count = 50
        bench.syncs._usual_s = 0.0


@pytest.fixture
def waits(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Waits:
    return Waits(bench, monkeypatch)


def begin_turn(bench: Bench) -> None:
    before_waiting = bench.loop.before_waiting
    if before_waiting is not None:
        before_waiting()


def test_a_loop_with_nothing_else_to_do_waits_for_a_sync_that_is_about_to_end(
    bench: Bench, waits: Waits
) -> None:
    for _ in range(TURNS_MAX):
        begin_turn(bench)

    assert waits.asked_s
    assert not bench.syncs.is_under_way(bench.log)
    assert bench.log.state.durable == bench.log.end_offset
    assert bench.loop.before_waiting is None


def test_it_does_not_wait_if_other_sockets_were_ready(bench: Bench, waits: Waits) -> None:
    bench.loop.together_count = 48

    begin_turn(bench)

    assert not waits.asked_s


def test_it_does_not_wait_for_a_single_client(bench: Bench, waits: Waits) -> None:
    bench.loop.ready_count, bench.loop.together_count = 1, 0

    begin_turn(bench)

    assert not waits.asked_s


def test_it_does_not_wait_for_a_disk_that_usually_takes_long(bench: Bench, waits: Waits) -> None:
    bench.syncs._usual_s = 0.01

    begin_turn(bench)

    assert not waits.asked_s


def test_it_waits_for_less_than_a_millisecond_and_hears_of_the_end_later(
    bench: Bench, waits: Waits
) -> None:
    waits.told = []

    begin_turn(bench)
    is_under_way = bench.syncs.is_under_way(bench.log)
    bench.finish_sync()

    assert waits.asked_s[0] < 0.001
    assert is_under_way
    assert bench.log.state.durable == bench.log.end_offset


def await_end(bench: Bench) -> None:
    """Wait until the kernel tells of the end, as a poll of the loop would."""
    assert bench.syncs._kernel is not None
    select.select([bench.syncs._kernel.fd], [], [], 30)
    bench.syncs._on_kernel(READABLE)


def test_an_end_that_comes_with_small_produces_is_noted_before_the_loop_waits_again(
    bench: Bench, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the answers leave first, and the next requests of these clients join the next group."""
    told: list[bool] = []
    monkeypatch.setattr(
        bench.syncs, "_tell_early", lambda: told.append(bench.syncs.is_under_way(bench.log))
    )
    bench.syncs._usual_s = 1.0

    await_end(bench)
    is_under_way = bench.syncs.is_under_way(bench.log)
    begin_turn(bench)

    assert is_under_way
    assert told == [False]
    assert bench.log.state.durable == bench.log.end_offset


def test_an_end_that_comes_with_other_work_is_noted_at_once(bench: Bench, waits: Waits) -> None:
    bench.loop.together_count = 40

    await_end(bench)

    assert not bench.syncs.is_under_way(bench.log)
    assert not waits.asked_s


def test_syncs_that_take_longer_than_usual_are_soon_not_waited_for(
    bench: Bench, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.loop, "now_s", lambda: bench.syncs._began_s + 0.01)

    bench.finish_sync()

    assert bench.syncs._usual_s > 0.001


def test_a_failed_sync_that_was_waited_for_fails_the_log(bench: Bench, waits: Waits) -> None:
    (number,) = bench.syncs._in_kernel
    assert bench.syncs._kernel is not None
    bench.syncs._kernel.wait_for_all()
    waits.told = [(number, OSError(5, "Input/output error"))]

    begin_turn(bench)

    assert bench.log.state.failure is not None
    assert not bench.syncs.is_under_way(bench.log)

"""Who waits for a log is told of its end, whenever that comes."""

import threading
from pathlib import Path

import pytest

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.records.log_watch import LogWatch
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store, StoreSetup
from fakes.client_batches import client_batch

PATIENCE_S = 30


class Produce:
    """A produce that waits."""

    def __init__(self) -> None:
        self.told: list[bool] = []

    def promise_settled(self, log: PartitionLog) -> None:
        self.told.append(log.is_closed)


class Fetch:
    """A fetch that waits: what it does when it is told, it does in the middle of a look."""

    def __init__(self, closer: threading.Thread, is_closing: threading.Event) -> None:
        self._closer = closer
        self._is_closing = is_closing

    def log_moved(self, log: PartitionLog) -> None:
        if not self._is_closing.is_set():
            self._closer.start()
            assert self._is_closing.wait(PATIENCE_S)


def turn(loop: EventLoop) -> None:
    loop.call_soon(lambda: None)  # so that it does not wait
    loop._turn()


def test_a_produce_is_told_of_a_log_that_closes_while_the_loop_looks_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = StoreSetup(
        defaults=TopicConfig(durability="disk"), has_housekeeping=False, free_bytes_min=0
    )
    with Store([str(tmp_path)], setup) as store:
        store.create_topic("t")
        log = store.topic("t").partition(0)
        loop = EventLoop("data")
        loop._thread_id = threading.get_ident()
        watch = LogWatch(loop)
        log.batches.append_batch(client_batch(b"x"), wait=False)
        log.sync()
        log.batches.append_batch(client_batch(b"y"), wait=False)
        produce, holder = Produce(), log._holder
        watch.await_promise(log, log.end_offset, produce)
        is_closing, may_go_on = threading.Event(), threading.Event()
        wake = holder._wake

        def wake_late() -> None:
            if holder.state.is_closed:
                is_closing.set()
                assert may_go_on.wait(PATIENCE_S)
            wake()

        monkeypatch.setattr(holder, "_wake", wake_late)
        closer = threading.Thread(target=lambda: log.close(is_orderly=False), daemon=True)
        watch.await_progress(log, Fetch(closer, is_closing))
        watch._report(watch._watches[log])

        turn(loop)
        may_go_on.set()
        closer.join(PATIENCE_S)
        for _ in range(3):
            turn(loop)

        assert produce.told == [True]
        loop._close()

"""Group commit: one thread leads, and only what was really served counts as served."""

import threading
from threading import Event, Thread

import pytest

from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.appends.group_commit import CommitQueue, PendingAppend
from cordwood.quantities import Offset, TimestampMs
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import new_log

NOW = TimestampMs(1000)


def pending() -> PendingAppend:
    return PendingAppend(bytearray(b"x"), UnplacedBatch(1, 1, NOW), NOW, None)


def test_a_thread_alone_leads_its_own_group() -> None:
    led: list[list[PendingAppend]] = []

    def lead(items: list[PendingAppend]) -> None:
        led.append(items)
        items[0].is_served = True

    item = pending()
    CommitQueue(lead).commit(item)

    assert led == [[item]]


class Interrupted(BaseException):
    pass


def test_what_an_interrupted_leader_did_not_serve_is_led_by_the_next_thread() -> None:
    """The leader of a group of two is interrupted: the other must not take that for success."""
    first_leads, others_wait = Event(), Event()
    groups: list[int] = []

    def lead(items: list[PendingAppend]) -> None:
        groups.append(len(items))
        if len(groups) == 1:
            first_leads.set()
            others_wait.wait(60)
        if len(items) == 2:
            raise Interrupted
        for item in items:
            item.offset = Offset(7)
            item.is_served = True

    queue = CommitQueue(lead)
    first, others = pending(), [pending(), pending()]
    outcomes: list[str] = []

    def commit(item: PendingAppend) -> None:
        try:
            queue.commit(item)
            outcomes.append("served" if item.is_served and item.offset == 7 else "lost")
        except Interrupted:
            outcomes.append("interrupted")

    threads = [Thread(target=commit, args=(item,)) for item in (first, *others)]
    threads[0].start()
    assert first_leads.wait(60)
    for thread in threads[1:]:
        thread.start()
    while len(queue._gathering.items) < 2:
        threading.Event().wait(0.001)
    others_wait.set()
    for thread in threads:
        thread.join(60)

    assert sorted(outcomes) == ["interrupted", "served", "served"]
    assert groups == [1, 2, 1]


def test_a_log_is_usable_after_the_leader_of_an_append_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, log = new_log(SimulatedFileSystem())
    run = log.syncing.run
    calls: list[None] = []

    def interrupted_once() -> None:
        calls.append(None)
        if len(calls) == 1:
            raise KeyboardInterrupt
        run()

    monkeypatch.setattr(log.syncing, "run", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        log.append(b"a")
    assert log.high_watermark == 0, "nothing was synced, so nobody sees it"

    assert log.append(b"b").offset == 1
    assert [record.value for record in log.read()] == [b"a", b"b"]

"""The loop: sockets, timers, and calls from other threads."""

import logging
import socket
import threading
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from cordwood.broker.net.loop.event_loop import READABLE, WRITABLE, EventLoop, _AnyPoller

TIMEOUT_S = 30.0


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    """A loop that runs in its thread."""
    running = EventLoop("test")
    running.start()
    yield running
    running.stop()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def await_turn(loop: EventLoop) -> None:
    """Until the loop has done what it was asked to do so far."""
    done = threading.Event()
    loop.call_soon(done.set)
    assert done.wait(TIMEOUT_S)


def test_calls_are_made_in_the_loops_thread_in_the_order_they_were_asked_for(
    loop: EventLoop,
) -> None:
    seen: list[tuple[int, bool]] = []

    def see(number: int) -> None:
        seen.append((number, loop.is_current))

    for number in range(100):
        loop.call_soon(partial(see, number))
    await_turn(loop)

    assert seen == [(number, True) for number in range(100)]
    assert not loop.is_current


def test_no_call_is_lost_however_many_threads_ask(loop: EventLoop) -> None:
    counted: list[int] = []
    everything = threading.Event()

    def count(number: int) -> None:
        counted.append(number)
        if len(counted) == 8 * 500:
            everything.set()

    def ask() -> None:
        for number in range(500):
            loop.call_soon(partial(count, number))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert everything.wait(TIMEOUT_S)


def test_a_call_that_asks_for_another_leaves_sockets_their_turn(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    was_ready = threading.Event()
    count = 0

    def again() -> None:
        nonlocal count
        count += 1
        if not was_ready.is_set() and count < 1_000_000:
            loop.call_soon(again)

    loop.call_soon(lambda: loop.register(ours.fileno(), READABLE, lambda _: was_ready.set()))
    loop.call_soon(again)
    theirs.send(b"x")

    assert was_ready.wait(TIMEOUT_S)
    loop.call_soon(lambda: loop.unregister(ours.fileno()))
    await_turn(loop)


def test_what_is_left_for_the_end_of_a_turn_runs_in_it_behind_all_other_calls(
    loop: EventLoop,
) -> None:
    seen: list[tuple[str, int]] = []

    def see(what: str) -> None:
        seen.append((what, loop.turns))

    def first() -> None:
        loop.call_last(partial(see, "last"))
        loop.call_soon(partial(see, "later"))  # in the next turn, as it was asked for in this one

    def both() -> None:
        loop.call_soon(first)
        loop.call_soon(partial(see, "soon"))

    loop.call_soon(both)
    for _ in range(3):
        await_turn(loop)

    turn = seen[0][1]
    assert seen == [("soon", turn), ("last", turn), ("later", turn + 1)]


def test_what_the_end_of_a_turn_leaves_for_the_end_is_not_waited_with(loop: EventLoop) -> None:
    done = threading.Event()

    loop.call_soon(lambda: loop.call_last(lambda: loop.call_last(done.set)))

    assert done.wait(TIMEOUT_S)


def test_what_is_wanted_before_the_wait_is_called_in_each_turn(loop: EventLoop) -> None:
    seen: list[int] = []

    def before_waiting() -> None:
        seen.append(loop.turns)
        raise ValueError("a bug of ours")  # which ends no turn

    loop.call_soon(partial(setattr, loop, "before_waiting", before_waiting))
    for _ in range(3):
        await_turn(loop)
    loop.call_soon(partial(setattr, loop, "before_waiting", None))
    await_turn(loop)

    assert len(seen) >= 3
    assert len(set(seen)) == len(seen)


def test_timers_run_in_the_order_of_their_times_and_not_when_cancelled(loop: EventLoop) -> None:
    seen: list[str] = []
    last = threading.Event()

    def plan() -> None:
        loop.call_later(0.03, lambda: seen.append("late"))
        loop.call_later(0.04, last.set)
        loop.call_later(0.01, lambda: seen.append("early"))
        loop.call_later(0.02, lambda: seen.append("cancelled")).cancel()
        loop.call_later(-1.0, lambda: seen.append("overdue"))

    loop.call_soon(plan)
    assert last.wait(TIMEOUT_S)

    assert seen == ["overdue", "early", "late"]


def test_timers_that_were_cancelled_are_not_kept_until_their_time(loop: EventLoop) -> None:
    def plan() -> None:
        for _ in range(100_000):
            loop.call_later(3600.0, lambda: None).cancel()

    loop.call_soon(plan)
    await_turn(loop)

    assert len(loop._timers) < 10_000


def test_a_timer_that_was_cancelled_does_not_keep_what_it_would_have_called(
    loop: EventLoop,
) -> None:
    class Kept:
        def call(self) -> None: ...

    gone: list[weakref.ref[Kept]] = []

    def plan() -> None:
        kept = Kept()
        gone.append(weakref.ref(kept))
        loop.call_later(3600.0, kept.call).cancel()

    loop.call_soon(plan)
    await_turn(loop)

    assert gone[0]() is None


def test_a_socket_is_told_of_when_it_can_be_read_and_when_it_can_be_written(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    masks: list[int] = []
    arrived = threading.Event()

    def ready(mask: int) -> None:
        masks.append(mask)
        if mask & READABLE:
            ours.recv(10)
            loop.modify(ours.fileno(), 0)
            arrived.set()
        else:
            loop.modify(ours.fileno(), READABLE)

    loop.call_soon(lambda: loop.register(ours.fileno(), WRITABLE, ready))
    theirs.send(b"x")
    assert arrived.wait(TIMEOUT_S)
    loop.call_soon(lambda: loop.unregister(ours.fileno()))
    await_turn(loop)

    assert masks[0] & WRITABLE
    assert masks[-1] & READABLE


def test_a_connection_that_breaks_is_told_of_whatever_was_listened_for(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    broke = threading.Event()

    def ready(mask: int) -> None:
        if mask & READABLE:
            loop.unregister(ours.fileno())
            broke.set()

    loop.call_soon(lambda: loop.register(ours.fileno(), 0, ready))
    theirs.close()

    assert broke.wait(TIMEOUT_S)


def test_what_raises_is_logged_and_harms_nobody_else(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = pair
    was_ready = threading.Event()

    def fail(mask: int = 0) -> None:
        if mask:
            loop.unregister(ours.fileno())
            was_ready.set()
        raise RuntimeError("on purpose")

    def fail_later() -> None:
        loop.call_later(0.0, fail)

    loop.call_soon(fail)
    loop.call_soon(fail_later)
    loop.call_soon(lambda: loop.register(ours.fileno(), READABLE, fail))
    theirs.send(b"x")
    assert was_ready.wait(TIMEOUT_S)
    await_turn(loop)
    await_turn(loop)

    mine = EventLoop.__module__
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    said = [record.message for record in errors if record.name == mine]
    assert said == ["test: a callback failed"] * 3


def test_a_loop_that_never_ran_lets_go_of_its_sockets() -> None:
    loop = EventLoop("idle")

    loop.stop()

    assert loop._wake_reader.fileno() == -1


def test_a_loop_may_be_stopped_from_within() -> None:
    loop = EventLoop("test")
    loop.start()

    loop.call_soon(loop.stop)

    assert loop._thread is not None
    loop._thread.join(TIMEOUT_S)
    assert not loop._thread.is_alive()


def test_where_there_is_no_epoll_a_selector_does(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    poller = _AnyPoller()
    try:
        poller.register(ours.fileno(), WRITABLE)
        assert poller.wait(TIMEOUT_S) == [(ours.fileno(), WRITABLE)]
        poller.modify(ours.fileno(), 0)
        assert poller.wait(0.0) == []
        poller.modify(ours.fileno(), READABLE | WRITABLE)
        theirs.send(b"x")
        assert poller.wait(TIMEOUT_S) == [(ours.fileno(), READABLE | WRITABLE)]
        poller.unregister(ours.fileno())
        poller.unregister(ours.fileno())
        assert poller.wait(0.0) == []
    finally:
        poller.close()

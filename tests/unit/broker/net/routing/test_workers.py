"""The pool of workers: every task runs, however its size changes; it keeps no process alive."""

import subprocess
import sys
import threading
import weakref
from concurrent.futures import Future
from random import Random
from time import monotonic
from typing import Any

import pytest

from cordwood.broker.net.routing.workers import Workers
from fakes.thread_shortage import ThreadShortage

S = 30.0


def test_a_task_gives_its_result_or_its_error() -> None:
    workers = Workers(2)

    doubled, failed = workers.submit(lambda x: 2 * x, 3), workers.submit(lambda: 1 / 0)

    assert doubled.result(S) == 6
    assert isinstance(failed.exception(S), ZeroDivisionError)
    workers.shutdown()


def test_as_many_tasks_as_there_are_threads_run_at_once() -> None:
    workers = Workers(1)
    workers.resize(3)
    together = threading.Barrier(3)

    waits = [workers.submit(together.wait, S) for _ in range(3)]

    assert sorted(wait.result(S) for wait in waits) == [0, 1, 2]
    workers.shutdown()


@pytest.mark.parametrize("seed", range(5))
def test_every_task_runs_however_often_the_size_changes(seed: int) -> None:
    random, workers, tasks = Random(seed), Workers(4), list[Future[Any]]()
    for number in range(500):
        tasks.append(workers.submit(lambda x: x, number))
        if random.random() < 0.3:
            workers.resize(random.randint(1, 8))

    assert [task.result(S) for task in tasks] == list(range(500))
    workers.shutdown()
    assert not workers._threads


def test_a_thread_keeps_nothing_of_a_task_that_ran() -> None:
    class Request:
        def run(self) -> None: ...

    workers, requests = Workers(1), [Request(), Request()]
    kept = [weakref.ref(request) for request in requests]

    for _ in range(2):
        workers.submit(requests.pop().run).result(S)

    until_s = monotonic() + S
    while any(request() is not None for request in kept):
        assert monotonic() < until_s
    workers.shutdown()


def test_tasks_one_after_the_other_share_a_thread() -> None:
    """Each thread that has appended to a log keeps a buffer."""
    workers = Workers(8)

    for _ in range(20):
        workers.submit(threading.get_ident).result(S)
        while workers._unfinished:  # the thread is about to take the next task
            pass

    assert len(workers._threads) == 1
    workers.shutdown()


def test_threads_that_have_nothing_to_do_end_except_for_one() -> None:
    workers, together = Workers(3, idle_s=0.01), threading.Barrier(3)
    for wait in [workers.submit(together.wait, S) for _ in range(3)]:
        wait.result(S)

    end_s = monotonic() + S
    while len(workers._threads) > 1 and monotonic() < end_s:
        pass

    assert len(workers._threads) == 1
    assert sorted(w.result(S) for w in [workers.submit(together.wait, S) for _ in range(3)]) == [
        *range(3)
    ]
    workers.shutdown()
    assert not workers._threads


def test_every_task_runs_while_threads_come_and_go() -> None:
    workers, tasks = Workers(4, idle_s=0.0), list[Future[Any]]()
    for number in range(2000):
        tasks.append(workers.submit(lambda x: x, number))
        if number % 7 == 0:
            tasks[-1].result(S)

    assert [task.result(S) for task in tasks] == list(range(2000))
    workers.shutdown()
    assert not workers._threads


def test_more_threads_take_what_waits_already() -> None:
    workers, together = Workers(1), threading.Barrier(2)
    waits = [workers.submit(together.wait, S) for _ in range(2)]

    workers.resize(2)

    assert sorted(wait.result(S) for wait in waits) == [0, 1]
    workers.shutdown()


def test_after_the_end_nothing_is_taken_and_what_waited_is_cancelled() -> None:
    workers, go = Workers(1), threading.Event()
    running = workers.submit(go.wait, S)
    while not running.running():
        pass
    waiting = workers.submit(lambda: 1)

    workers.shutdown(wait=False, cancel_futures=True)
    go.set()

    assert waiting.cancelled()
    assert running.result(S)
    with pytest.raises(RuntimeError, match="shut down"):
        workers.submit(lambda: 1)


def test_a_task_that_cannot_have_a_thread_runs_in_one_that_there_is() -> None:
    workers, go = Workers(8, idle_s=0.0), threading.Event()
    running = workers.submit(go.wait, S)

    with ThreadShortage(workers):
        waiting = workers.submit(lambda: 1)
        go.set()

        assert running.result(S)
        assert waiting.result(S) == 1
    workers.shutdown()
    assert not workers._threads


def test_after_a_shortage_of_threads_as_many_run_as_before() -> None:
    workers, go, together = Workers(3, idle_s=0.0), threading.Event(), threading.Barrier(3)
    running = workers.submit(go.wait, S)
    with ThreadShortage(workers):
        waiting = [workers.submit(lambda: 1) for _ in range(5)]
        workers.resize(4)
        go.set()
        assert running.result(S)
        assert [task.result(S) for task in waiting] == [1] * 5

    waits = [workers.submit(together.wait, S) for _ in range(3)]

    assert sorted(wait.result(S) for wait in waits) == [0, 1, 2]
    workers.shutdown()
    assert not workers._threads


def test_a_thread_that_comes_after_a_shortage_takes_what_waits() -> None:
    workers, together = Workers(3), threading.Barrier(3)
    waits = [workers.submit(together.wait, S)]
    with ThreadShortage(workers):
        waits.append(workers.submit(together.wait, S))

    waits.append(workers.submit(together.wait, S))

    assert sorted(wait.result(S) for wait in waits) == [0, 1, 2]
    workers.shutdown()


def test_a_task_that_is_refused_for_want_of_any_thread_does_not_run() -> None:
    workers, ran = Workers(2), list[int]()

    with ThreadShortage(workers), pytest.raises(RuntimeError, match="can't start new thread"):
        workers.submit(ran.append, 1)

    workers.submit(ran.append, 2).result(S)
    workers.shutdown()
    assert ran == [2]
    assert not workers._unfinished


def test_who_learns_that_a_task_was_cancelled_may_use_the_workers() -> None:
    workers, go, refused = Workers(1), threading.Event(), list[RuntimeError]()
    running = workers.submit(go.wait, S)
    while not running.running():
        pass
    waiting = workers.submit(lambda: 1)

    def ask_again(_: Future[int]) -> None:
        try:
            workers.submit(lambda: 2)
        except RuntimeError as error:
            refused.append(error)

    waiting.add_done_callback(ask_again)
    ending = threading.Thread(
        target=workers.shutdown, kwargs={"wait": False, "cancel_futures": True}, daemon=True
    )
    ending.start()
    ending.join(S)

    assert not ending.is_alive()
    assert len(refused) == 1
    go.set()
    assert running.result(S)


def test_a_task_that_never_ends_does_not_keep_the_process_alive() -> None:
    script = (
        "import threading; from cordwood.broker.net.routing.workers import Workers; "
        "workers = Workers(1); workers.submit(threading.Event().wait); "
        "workers.shutdown(wait=False, cancel_futures=False)"
    )

    assert subprocess.run([sys.executable, "-c", script], timeout=S, check=False).returncode == 0

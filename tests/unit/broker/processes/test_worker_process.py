"""A worker as the supervisor sees it, whatever the worker does."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from typing import cast

import pytest

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.security_config import SecurityConfig
from cordwood.broker.config.store_config import StoreConfig
from cordwood.broker.observing.log_output import LogOutputConfig
from cordwood.broker.processes import worker_process
from cordwood.broker.processes.keeper import Keeper
from cordwood.broker.processes.process_task import NodeConfig, ProcessTask
from cordwood.broker.processes.worker_process import WorkerProcess
from cordwood.log.rules.topic_config import TopicConfig
from wire.waiting import await_true

WAIT_S = 30.0
# Says something that nobody understands, and lives on.
GARBLED = """
import socket, sys
news = socket.socket(fileno=int(sys.argv[1]))
news.sendall(bytes([0, 0, 0, 1, 255]))
while news.recv(4096):
    pass
"""


# Is ready, and answers two pings.
SILENT = """
import socket, sys
news = socket.socket(fileno=int(sys.argv[1]))
with news.makefile("rwb", buffering=0) as link:
    def frame():
        size = int.from_bytes(link.read(4))
        body = bytearray()
        while len(body) < size:
            body += link.read(size - len(body))
        return body
    assert frame()[0] == 1
    link.write(bytes([0, 0, 0, 1, 5]))
    for _ in range(2):
        assert frame() == bytes([11])
        link.write(bytes([0, 0, 0, 1, 12]))
    while link.read(4096):
        pass
"""


# Is never ready, and makes a step with each SIGUSR1.
STARTING = """
import signal, socket, sys
news = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGUSR1, lambda *_: news.sendall(bytes([0, 0, 0, 1, 13])))
news.sendall(bytes([0, 0, 0, 1, 13]))
while news.recv(4096):
    pass
"""


class Started:
    """A worker that runs a program of ours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
        broker = BrokerConfig()
        config = NodeConfig(
            broker=broker,
            security=SecurityConfig.assemble(broker, {}),
            store=StoreConfig(log_dirs=("data",)),
            topic_defaults=TopicConfig(),
            log_output=LogOutputConfig(),
        )
        task = ProcessTask(config=config, index=1, count=2, epoch=5, listening={})
        self.is_over, self.codes = threading.Event(), list[int]()

        def command(fds: Sequence[int]) -> list[str]:
            return [sys.executable, "-c", program, *map(str, fds)]

        def ended(_worker: WorkerProcess, code: int) -> None:
            self.codes.append(code)
            self.is_over.set()

        monkeypatch.setattr(worker_process, "_command", command)
        self.worker = WorkerProcess(
            task, cast("Keeper", None), when_ready=lambda _index: None, when_ended=ended
        )
        self.worker.start()


def test_a_worker_that_says_something_unknown_is_ended_and_its_end_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = Started(monkeypatch, GARBLED)

    assert started.is_over.wait(WAIT_S)
    assert started.codes == [-signal.SIGKILL]


def test_a_worker_that_no_longer_answers_is_killed_once_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started = Started(monkeypatch, SILENT)
    worker = started.worker
    await_true(lambda: worker._is_ready)
    for _ in range(2):
        worker.beat()
        await_true(lambda: not worker._is_asked)
    worker.beat()

    for _ in range(worker_process.SILENT_BEATS_MAX - 1):
        worker.beat()
    was_over = started.is_over.is_set() or "killing" in caplog.text
    for _ in range(3):
        worker.beat()

    assert started.is_over.wait(WAIT_S)
    assert not was_over
    assert started.codes == [-signal.SIGKILL]
    assert caplog.text.count("process 1") == caplog.text.count("has not answered for 60 s") == 1


def beaten(worker: WorkerProcess, count: int) -> None:
    for _ in range(count):
        worker.beat()


def step(worker: WorkerProcess) -> None:
    """Have a worker that starts say that it has come further, and wait until it is heard."""
    worker.signal(signal.SIGUSR1)
    await_true(lambda: not worker._silent_beats)


def test_a_worker_that_makes_no_progress_before_it_is_ready_is_killed_once_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started = Started(monkeypatch, "import sys; sys.stdin.read()")

    beaten(started.worker, worker_process.STARTING_BEATS_MAX - 1)
    was_over = started.worker.has_hung or "killing" in caplog.text
    beaten(started.worker, 3)

    assert started.is_over.wait(WAIT_S)
    assert not was_over
    assert started.worker.has_hung
    assert started.codes == [-signal.SIGKILL]
    said = "is not ready and has made no progress for 300 s; killing it"
    assert caplog.text.count("process 1") == caplog.text.count(said) == 1


def test_a_worker_may_take_as_long_as_it_makes_progress_before_it_is_ready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started = Started(monkeypatch, STARTING)
    beaten(started.worker, 1)
    await_true(lambda: not started.worker._silent_beats)  # the program handles signals now

    for _ in range(4):
        beaten(started.worker, worker_process.STARTING_BEATS_MAX - 1)
        step(started.worker)

    assert not started.worker.has_hung
    assert not started.is_over.is_set()
    beaten(started.worker, worker_process.STARTING_BEATS_MAX)
    assert started.is_over.wait(WAIT_S)
    assert "has made no progress" in caplog.text


def test_a_worker_that_is_asked_to_end_may_be_silent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    starting = Started(monkeypatch, "import sys; sys.stdin.read()")
    ending = Started(monkeypatch, SILENT)
    await_true(lambda: ending.worker._is_ready)
    for started in (starting, ending):
        started.worker.stop()

    for started in (starting, ending):
        beaten(started.worker, 2 * worker_process.STARTING_BEATS_MAX)

    assert "killing" not in caplog.text
    for started in (starting, ending):
        started.worker.kill()
        assert started.is_over.wait(WAIT_S)

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

WAIT_S = 30.0
# Says something that nobody understands, and lives on.
GARBLED = """
import socket, sys
news = socket.socket(fileno=int(sys.argv[1]))
news.sendall(bytes([0, 0, 0, 1, 255]))
while news.recv(4096):
    pass
"""


def test_a_worker_that_says_something_unknown_is_ended_and_its_end_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = BrokerConfig()
    config = NodeConfig(
        broker=broker,
        security=SecurityConfig.assemble(broker, {}),
        store=StoreConfig(log_dirs=("data",)),
        topic_defaults=TopicConfig(),
        log_output=LogOutputConfig(),
    )
    task = ProcessTask(config=config, index=1, count=2, epoch=5, listening={})
    is_over, codes = threading.Event(), list[int]()

    def command(fds: Sequence[int]) -> list[str]:
        return [sys.executable, "-c", GARBLED, *map(str, fds)]

    def ended(_worker: WorkerProcess, code: int) -> None:
        codes.append(code)
        is_over.set()

    monkeypatch.setattr(worker_process, "_command", command)
    worker = WorkerProcess(
        task, cast("Keeper", None), when_ready=lambda _index: None, when_ended=ended
    )
    worker.start()

    assert is_over.wait(WAIT_S)
    assert codes == [-signal.SIGKILL]

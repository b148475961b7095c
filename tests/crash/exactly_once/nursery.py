"""Forks brokers and workers, which then need no time to import what they use.

    python -m crash.exactly_once.nursery

reads one command per line and answers with the process id of the child. It has one thread and no
connections, so forking is safe. Its children die with it, and it ends with its owner's pipe.

A broker may be told to die before the Nth write or sync of its life: between any two of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

_DIES_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOrder:
    """A broker to start. `plant` is a bug of `plants`, or empty."""

    directory: str
    port: int
    advertised_port: int
    ready_file: str
    log_file: str
    die_at: int = 0
    plant: str = ""


# --- in the children -------------------------------------------------------------------------


def serve(order: BrokerOrder) -> NoReturn:
    """A broker, until it is killed."""
    import logging

    import cordwood
    from crash.exactly_once import plants

    logging.basicConfig(
        filename=order.log_file, level=logging.INFO, format="%(asctime)s %(name)s %(message)s"
    )
    plants.plant(order.plant)
    if order.die_at:
        _die_at(order.die_at)
    broker = cordwood.Broker(
        order.directory,
        order.port,
        config={
            "log.durability": "disk",
            "log.retention.ms": -1,
            "advertised.host": "127.0.0.1",
            "advertised.port": order.advertised_port,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
            "auto.create.topics.enable": False,
        },
    )
    broker.start()
    temporary = f"{order.ready_file}.tmp"
    Path(temporary).write_text(broker.bootstrap_servers)
    os.rename(temporary, order.ready_file)
    while True:
        signal.pause()


def _die_at(number: int) -> None:
    """Die before the Nth call that changes something on the disk."""
    from cordwood.storage.disk.kernel_syncs import KernelSyncs
    from cordwood.storage.disk.real_file import RealDirectory, RealFile

    calls = itertools.count(1)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments)

        return call

    for owner, name in (
        (RealFile, "write_at"),
        (RealFile, "sync"),
        (RealFile, "truncate_to"),
        (RealDirectory, "sync"),
        (KernelSyncs, "submit"),
    ):
        setattr(owner, name, counted(getattr(owner, name)))


def _work(fields: dict[str, Any]) -> NoReturn:
    from crash.exactly_once.workers import run_worker
    from crash.exactly_once.workload import Assignment

    run_worker(Assignment(**fields))
    os._exit(0)


def _fork(run: Callable[[], NoReturn], log_file: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with open(log_file, "ab", buffering=0) as log:
            for descriptor in (1, 2):
                os.dup2(log.fileno(), descriptor)
        run()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(3)


def main() -> None:
    # Everything that children import, so that they need not.
    import aiokafka  # noqa: F401

    import cordwood.testing  # noqa: F401
    from crash.exactly_once import workers  # noqa: F401

    assert threading.active_count() == 1, threading.enumerate()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    print("ready", flush=True)
    for line in sys.stdin:
        kind, fields = json.loads(line)
        if kind == "broker":
            order = BrokerOrder(**fields)
            pid = _fork(lambda order=order: serve(order), order.log_file)  # type: ignore[misc]
        else:
            log_file = f"{fields['directory']}/{fields['name']}.log"
            pid = _fork(lambda fields=fields: _work(fields), log_file)  # type: ignore[misc]
        print(pid, flush=True)


# --- its owner -------------------------------------------------------------------------------


class Nursery:
    """The process, and what it started. For one thread."""

    def __init__(self) -> None:
        root = Path(__file__).resolve().parents[3]
        path = os.pathsep.join([f"{root}/src", f"{root}/tests"])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crash.exactly_once.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._answer() == "ready"

    def start_broker(self, order: BrokerOrder) -> int:
        return self._start("broker", asdict(order))

    def start_worker(self, fields: dict[str, Any]) -> int:
        return self._start("worker", fields)

    def close(self) -> None:
        """End it, and with it all its children."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _start(self, kind: str, fields: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([kind, fields]) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def kill(pid: int) -> None:
    """SIGKILL, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline_s = time.monotonic() + _TIMEOUT_S
    while is_alive(pid):
        assert time.monotonic() < deadline_s, f"process {pid} does not die"
        time.sleep(0.001)


if __name__ == "__main__":
    main()

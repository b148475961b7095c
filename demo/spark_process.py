"""Spark in its own process, which gets commands and sends answers.

It starts first and is used late, so that no stage waits for a JVM to start.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from demo.demo_plan import PAYMENTS, DemoFiles

_STOP_TIMEOUT_S: Final = 5.0
_LAST_LINES: Final = 12
_ENDED: Final = {"kind": "failed", "reason": "the Spark process ended"}

Totals = dict[str, tuple[str, int, int]]  # by merchant: currency, events, amount


class SparkFailedError(Exception):
    """Spark did not answer; the message has the reason and the end of its log."""


class SparkProcess:
    """Use it from one thread. Another thread calls `on_totals` after each micro-batch."""

    def __init__(self, files: DemoFiles) -> None:
        self._files = files
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.on_totals: Callable[[Totals], None] = lambda _: None

    def start(self) -> None:
        """Return at once. Raise `SparkFailedError` if pyspark is not installed."""
        if importlib.util.find_spec("pyspark") is None:
            raise SparkFailedError("pyspark is not installed; run script/bootstrap")
        self._files.spark.mkdir(parents=True)
        arguments = (str(self._files.store.absolute()), PAYMENTS, str(self._files.spark.absolute()))
        root = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        with self._files.spark_log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "demo.spark_program", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._files.spark,
                env=os.environ | {"PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )
        threading.Thread(target=self._listen, name="spark answers", daemon=True).start()

    def ask(self, command: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the answer has the reason
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()

    def answer(self, kind: str, timeout_s: float) -> dict[str, Any]:
        """Wait for an answer of that kind; ignore others before it."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                found = self._answers.get(timeout=max(deadline_s - time.monotonic(), 0.0))
            except queue.Empty:
                raise self._failure(f"no answer within {timeout_s:.0f} s") from None
            if found["kind"] == "failed":
                raise self._failure(str(found["reason"]))
            if found["kind"] == kind:
                return found

    def has_answered(self) -> bool:
        return not self._answers.empty()

    def close(self) -> None:
        """Ask it to stop, then kill it and its JVM. Safe to repeat."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_TIMEOUT_S)
        # Its session contains the JVM and the Python workers: end all of them.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                found: dict[str, Any] = json.loads(line)
                if found["kind"] == "totals":
                    self.on_totals(totals_of(found))
                else:
                    self._answers.put(found)
        self._answers.put(_ENDED)

    def _failure(self, reason: str) -> SparkFailedError:
        lines = self._files.spark_log.read_text(errors="replace").splitlines()
        end = "\n".join(f"    {line[:200]}" for line in lines[-_LAST_LINES:])
        return SparkFailedError(f"{reason}\n  end of {self._files.spark_log}:\n{end}")


def totals_of(answer: dict[str, Any]) -> Totals:
    return {name: (currency, count, amount) for name, currency, count, amount in answer["rows"]}

"""The process of all clients, as its owner sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from crash.cluster_processes.clients import ClientPlan
from crash.cluster_processes.cluster_nodes import STOP_S


class ClientProcess:
    """The process of all clients."""

    def __init__(self, plan: ClientPlan, log_file: Path) -> None:
        root = Path(__file__).resolve().parents[3]
        with open(log_file, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "crash.cluster_processes.clients", plan.encode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([f"{root}/src", f"{root}/tests"])},
            )
        self._log_file = log_file
        self._expect("ready")

    def ask(self, word: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._answer()

    def finish(self) -> None:
        assert self.ask("finish") == "finished", self._log_file.read_text()[-4000:]
        self._process.wait(STOP_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _expect(self, wanted: str) -> None:
        found = self._answer()
        assert found == wanted, f"{found!r}: {self._log_file.read_text()[-4000:]}"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

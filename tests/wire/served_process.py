"""`cordwood serve` as a process of its own, to be stopped, killed and started again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from fakes.reserved_port import reserved_port

TIMEOUT_S = 60.0


class ServedProcess:
    """A broker over `directory`. With `keeps_port` it has the same port when it starts again."""

    def __init__(
        self,
        directory: Path,
        *settings: str,
        arguments: Sequence[str] = (),
        keeps_port: bool = True,
    ) -> None:
        self.directory = directory
        self._settings = settings
        self.arguments = arguments
        self._keeps_port = keeps_port
        self._ends = ExitStack()
        self._port = self._ends.enter_context(reserved_port()) if keeps_port else 0
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.started: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._ends.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns once clients are answered."""
        self._starts += 1
        reports = self._reports
        command = [sys.executable, "-m", "cordwood", "serve", "--dir", str(self.directory)]
        port = self._port if self._keeps_port else 0
        command += ["--port", str(port), "--log-format", "json", *self.arguments]
        for setting in self._settings:
            command += ["--set", setting]
        environment = {
            name: v for name, v in os.environ.items() if not name.startswith("CORDWOOD_")
        }
        with reports.open("wb") as output:
            self._process = subprocess.Popen(
                command, stderr=output, stdout=output, env=environment, cwd=self.directory.parent
            )
        self.started = self.await_report("started")
        self._port = int(self.started["address"].rsplit(":", 1)[1])

    @property
    def _reports(self) -> Path:
        return self.directory.with_name(f"{self.directory.name}-{self._starts}.log")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def await_report(self, event: str) -> dict[str, Any]:
        """The first line of its log about `event`."""
        reports = self._reports
        assert self._process is not None
        deadline_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline_s:
            is_over = self._process.poll() is not None
            for line in reports.read_text().splitlines(keepends=True):
                if line.endswith("\n") and line.startswith("{"):
                    report: dict[str, Any] = json.loads(line)
                    if report.get("event") == event:
                        return report
            assert not is_over, reports.read_text()
            time.sleep(0.01)
        raise AssertionError(reports.read_text())

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: nothing is finished, synced or marked."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(TIMEOUT_S)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(TIMEOUT_S)
        finally:
            process.kill()

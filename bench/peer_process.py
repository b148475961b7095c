"""A server process: start, wait until it answers, stop, restart."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

_START_TIMEOUT_S: Final = 120.0  # after a kill it may have gigabytes to read
_STOP_TIMEOUT_S: Final = 30.0


class ServerFailedError(Exception):
    """A server did not start or did not stop; the message has its output."""


class PeerProcess:
    """One process at a time; its data stays in `directory`."""

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = tuple(command)
        self._directory = directory
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def launch(self) -> None:
        """Start it and return at once."""
        assert self._process is None, "already started"
        self._directory.mkdir(parents=True, exist_ok=True)
        with open(self._directory / "console.log", "wb") as console:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environment,
            )

    def stop(self) -> None:
        """Stop it as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it as the out-of-memory killer would."""
        self._end(signal.SIGKILL)

    def wait_until(self, answers: Callable[[], bool]) -> None:
        """Try every few milliseconds; an `OSError` counts as not ready."""
        assert self._process is not None, "not started"
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                if answers():
                    return
            except OSError:
                pass  # not listening yet
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailedError(f"{self._command[-1]} did not start\n{self.printed()}")
            time.sleep(0.002)

    def printed(self) -> str:
        """The end of its output."""
        return end_of(self._directory / "console.log")

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServerFailedError(
                f"{' '.join(self._command)} did not stop in {_STOP_TIMEOUT_S:.0f} s\n"
                f"{self.printed()}"
            ) from None


def end_of(path: Path) -> str:
    """The end of a server's output."""
    return path.read_text(errors="replace")[-4000:] if path.exists() else ""

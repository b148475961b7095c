"""A broker in its own process: starts, stops and kills `cordwood serve`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 40.0
_LOOK_S: Final = 0.005
_LAST_LINES: Final = 15
# JSON log lines, which we parse; no background compaction, so that the demo can show it.
_QUIETLY: Final = ("--log-format", "json", "--set", "log.cleaner.enable=false")


class BrokerFailedError(Exception):
    """The broker failed to start, run or stop; the message has the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStart:
    """The duration of a start, and what the broker reports about itself."""

    address: str
    process_s: float  # from the start of the program until it is ready
    opening_ms: int  # part of it: opening the store, including recovery
    partitions: int
    recovered_partitions: int


class BrokerProcess:
    """At most one process at a time, over one store. Use it from one thread.

    The process has its own session, so that Ctrl-C reaches only the demo, which then stops the
    broker properly. Every start uses the same port, which stays ours while no process listens.
    """

    def __init__(self, store: Path, log: Path) -> None:
        self.store = store.absolute()
        self.log = log.absolute()
        self._held_port, self.port = _hold_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self) -> list[str]:
        """The command line, without the Python interpreter."""
        return ["cordwood", "serve", "--dir", str(self.store), "--port", str(self.port)]

    def start(self) -> BrokerStart:
        """Start, and return once the broker serves clients."""
        assert not self.is_running
        began_s = time.monotonic()
        with self.log.open("ab") as output:
            position = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self.command(), *_QUIETLY],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.log.parent,  # not a directory with a cordwood.toml of the user
                env=_environment(),
                start_new_session=True,
            )
        facts = self._wait_until_started(self._process, position, began_s)
        return BrokerStart(
            address=str(facts["address"]),
            process_s=time.monotonic() - began_s,
            opening_ms=int(facts["took_ms"]),
            partitions=int(facts["partitions"]),
            recovered_partitions=int(facts["recovered_partitions"]),
        )

    def _wait_until_started(
        self, process: subprocess.Popen[bytes], position: int, began_s: float
    ) -> dict[str, Any]:
        while time.monotonic() - began_s < _START_TIMEOUT_S:
            ended = process.poll() is not None
            with self.log.open("rb") as written:
                written.seek(position)
                for line in written:
                    # The last line may be half-written.
                    if b'"event": "started"' in line and line.endswith(b"\n"):
                        found: dict[str, Any] = json.loads(line)
                        return found
            if ended:
                break
            time.sleep(_LOOK_S)
        raise BrokerFailedError(f"the broker did not start:\n{self.last_lines()}")

    def kill(self) -> None:
        """Kill it like a crash: it answers, syncs and marks nothing."""
        process = self._running()
        process.kill()
        process.wait()

    def stop(self) -> float:
        """Stop it properly; return the duration in seconds."""
        process = self._running()
        began_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailedError(
                f"the broker did not stop within {_STOP_TIMEOUT_S:.0f} s:\n{self.last_lines()}"
            ) from None
        if status != 0:
            raise BrokerFailedError(f"the broker exited with {status}:\n{self.last_lines()}")
        return time.monotonic() - began_s

    def close(self) -> None:
        """Make sure that no process is left. Safe to repeat."""
        self._held_port.close()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def last_lines(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise BrokerFailedError(f"the broker is not running:\n{self.last_lines()}")
        return self._process


def _hold_port() -> tuple[socket.socket, int]:
    """A free port, and a socket that keeps it and does not listen.

    While the broker is down, the system gives the port to nobody else, neither to another server
    nor to a connection; the broker may listen, because it asks for the port by its number with
    SO_REUSEADDR. Only Linux allows that; elsewhere the port is merely free now.
    """
    held = socket.socket()
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
    except BaseException:
        held.close()
        raise
    if sys.platform != "linux":
        held.close()
    return held, port


def _environment() -> dict[str, str]:
    """Our environment, without the user's settings for other brokers."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CORDWOOD_") or name in {"CORDWOOD_CC", "CORDWOOD_PYTHON"}
    }

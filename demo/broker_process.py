"""A broker as a process of its own: `cordwood serve`, started, stopped and killed."""

from __future__ import annotations

import json
import os
import signal
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
# Reports that we can read; and compaction waits for us to ask, so that it can be seen.
_QUIETLY: Final = ("--log-format", "json", "--set", "log.cleaner.enable=false")


class BrokerFailedError(Exception):
    """The broker did not do what it was told; carries the end of what it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStart:
    """How a start went: as a user sees it, and what the broker says about itself."""

    address: str
    process_s: float  # from starting the program to being ready
    opening_ms: int  # of that, opening the store, recovery included
    partitions: int
    recovered_partitions: int


class BrokerProcess:
    """At most one process at a time, over one store. For one thread.

    It is in a session of its own, so that Ctrl-C reaches the demonstration alone, which then
    stops it in order.
    """

    def __init__(self, store: Path, log: Path) -> None:
        self.store = store.absolute()
        self.log = log.absolute()
        self.port = 0  # any; the same again from the second start on
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self) -> list[str]:
        """What is run, but for the Python in front."""
        return ["cordwood", "serve", "--dir", str(self.store), "--port", str(self.port)]

    def start(self) -> BrokerStart:
        """Start, and return once clients are answered."""
        assert not self.is_running
        began_s = time.monotonic()
        with self.log.open("ab") as output:
            position = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self.command(), *_QUIETLY],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.log.parent,  # not where a cordwood.toml of the user's may be
                env=_environment(),
                start_new_session=True,
            )
        facts = self._wait_until_started(self._process, position, began_s)
        address = str(facts["address"])
        self.port = int(address.rpartition(":")[2])
        return BrokerStart(
            address=address,
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
                for line in written.read().splitlines():
                    if b'"event": "started"' in line:
                        found: dict[str, Any] = json.loads(line)
                        return found
            if ended:
                break
            time.sleep(_LOOK_S)
        raise BrokerFailedError(f"the broker did not start:\n{self.last_lines()}")

    def kill(self) -> None:
        """End it as a crash would: nothing is answered, synced or marked clean."""
        process = self._running()
        process.kill()
        process.wait()

    def stop(self) -> float:
        """Stop it in order; return how many seconds that took."""
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
            raise BrokerFailedError(f"the broker ended with {status}:\n{self.last_lines()}")
        return time.monotonic() - began_s

    def close(self) -> None:
        """Whatever happened: no process is left. Safe to repeat."""
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


def _environment() -> dict[str, str]:
    """Ours, less what a user may have set for brokers of their own."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CORDWOOD_") or name in {"CORDWOOD_CC", "CORDWOOD_PYTHON"}
    }

"""Forks brokers into network namespaces; they then need no time to import what they use.

    python -m crash.cluster_processes.member_nursery

reads one `MemberOrder` per line and answers with the process id of the child. It has one thread and
no connections, so forking is safe. Its children die with it, and it ends with its owner's pipe.

A broker reads its wall clock through a file, which says how wrong the clock is: eight bytes, the
error in milliseconds. Whoever writes the file moves the clock of a running broker.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NoReturn

from crash.cluster_processes.virtual_switch import die_with_parent, enter_namespace

CLOCK_FILE_BYTES: Final = 8
_ERROR: Final = struct.Struct("<q")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOrder:
    """A broker to start: where, with which configuration file, and what it writes to."""

    namespace: str
    config_file: str
    log_file: str
    clock_file: str


def set_clock_error(path: Path, error_ms: int) -> None:
    with open(path, "r+b" if path.exists() else "wb") as file:
        file.write(_ERROR.pack(error_ms))


# --- in the children -------------------------------------------------------------------------


def _follow_clock(path: str) -> None:
    """Have the wall clock of this process be wrong, as the file says at each reading."""
    import time

    from cordwood.clock import SystemClock
    from cordwood.quantities import TimestampMs

    with open(path, "rb") as file:
        error = mmap.mmap(file.fileno(), CLOCK_FILE_BYTES, prot=mmap.PROT_READ)

    def now_ms(self: SystemClock) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000 + _ERROR.unpack_from(error)[0])

    SystemClock.now_ms = now_ms  # type: ignore[method-assign]


def _serve(order: MemberOrder) -> NoReturn:
    from cordwood.cli.app import main as run_command

    enter_namespace(order.namespace)
    _follow_clock(order.clock_file)
    sys.argv = ["cordwood", "serve", "--config", order.config_file]
    run_command()
    os._exit(0)


def _fork(order: MemberOrder) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        with open(order.log_file, "ab", buffering=0) as log:
            for descriptor in (1, 2):
                os.dup2(log.fileno(), descriptor)
        _serve(order)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    die_with_parent()
    # Everything that children import, so that they need not.
    import cordwood.broker.cluster.cluster_assembly
    import cordwood.broker.server
    import cordwood.cli.commands.serve
    import cordwood.settings  # noqa: F401

    assert threading.active_count() == 1, threading.enumerate()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    print("ready", flush=True)
    for line in sys.stdin:
        print(_fork(MemberOrder(**json.loads(line))), flush=True)


# --- its owner -------------------------------------------------------------------------------


class MemberNursery:
    """The process, and what it started. For one thread."""

    def __init__(self) -> None:
        root = Path(__file__).resolve().parents[3]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crash.cluster_processes.member_nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([f"{root}/src", f"{root}/tests"])},
        )
        assert self._answer() == "ready"

    def start(self, order: MemberOrder) -> int:
        """The id of the new process."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def close(self) -> None:
        """End it, and with it all its children."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


if __name__ == "__main__":
    main()

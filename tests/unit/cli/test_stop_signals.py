"""Being asked to stop, and being told."""

import signal
import subprocess
import sys

import pytest

ASKED_ONCE = """
import os, signal, sys
from cordwood.cli.stop_signals import StopSignals
stop = StopSignals()
stop.install()
number = int(sys.argv[1])
os.kill(os.getpid(), number)
stop.wait()
print(stop.reason, flush=True)
"""
ASKED_TWICE = ASKED_ONCE + "os.kill(os.getpid(), number)\nprint('not reached')\n"


def run(code: str, number: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code, str(int(number))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_program_ends_as_it_likes(number: signal.Signals) -> None:
    result = run(ASKED_ONCE, number)

    assert (result.returncode, result.stdout) == (0, f"{number.name}\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_at_once_with_its_exit_code(number: signal.Signals) -> None:
    result = run(ASKED_TWICE, number)

    assert (result.returncode, result.stdout) == (128 + number, f"{number.name}\n")
    assert result.stderr == f"cordwood: a second {number.name}, ended without a clean stop\n"

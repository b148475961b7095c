"""Signals: interrupting a command between two steps, and stopping a broker."""

import os
import signal
import subprocess
import sys

import pytest

from cordwood.cli.signals import Interruption

ASKED_ONCE = """
import os, signal, sys
from cordwood.cli.signals import StopSignals
stop = StopSignals()
stop.install()
number = int(sys.argv[1])
os.kill(os.getpid(), number)
stop.wait()
print(stop.reason, flush=True)
"""
IN_A_FINALIZER = """
import os, sys, time
from cordwood.cli.signals import Interruption, interrupt_surely
number = int(sys.argv[1])
class Dropped:
    def __del__(self):
        os.kill(os.getpid(), number)
        print("finalized", flush=True)
interrupt_surely()
try:
    if sys.argv[2:] == ["handled"]:
        with Interruption().handled():
            Dropped()
            time.sleep(60)
    Dropped()
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
ASKED_TWICE = ASKED_ONCE + "os.kill(os.getpid(), number)\nprint('not reached')\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_at_once(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    with pytest.raises(KeyboardInterrupt), Interruption().handled():
        os.kill(os.getpid(), number)

    assert signal.getsignal(number) is before


def test_what_is_held_is_done_whole() -> None:
    done: list[str] = []
    interruption = Interruption()

    def work() -> None:
        with interruption.handled():
            with interruption.held():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("step")
            done.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()

    assert done == ["step"]


def test_whoever_insists_does_not_wait() -> None:
    done: list[str] = []
    interruption = Interruption()

    def work() -> None:
        with interruption.handled(), interruption.held():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()

    assert done == []


@pytest.mark.parametrize("words", [[], ["handled"]], ids=["by default", "handled"])
def test_an_interrupt_that_comes_in_a_finalizer_is_not_lost(words: list[str]) -> None:
    ended = run(IN_A_FINALIZER, signal.SIGINT, *words)

    assert ended.stdout.split() == ["finalized", "interrupted"]
    assert ended.stderr == ""


def run(code: str, number: int, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code, str(int(number)), *words],
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
    assert result.stderr == f"cordwood: second {number.name}, ended without a clean stop\n"

"""Signals between two steps."""

import os
import signal

import pytest

from cordwood.cli.interruption import Interruption


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

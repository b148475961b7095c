"""Tests that were started in the background interrupt programs like those of a terminal."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fakes.heard_interrupts import hear_interrupts

INTERRUPTED = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('heard nothing')"


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_programs_are_interrupted_although_the_signal_was_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    hear_interrupts()

    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False
    )
    assert ended.stdout == ""
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")


def test_a_handler_stays() -> None:
    def handle(number: int, frame: object) -> None:
        """Nothing."""

    signal.signal(signal.SIGINT, handle)

    hear_interrupts()

    assert signal.getsignal(signal.SIGINT) is handle

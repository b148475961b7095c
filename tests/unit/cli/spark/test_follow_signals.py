"""A job that follows a topic ends by itself when it is told to."""

import os
import signal

import pytest

from cordwood.cli.spark.table_commands import stopped_by_signals


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_event_and_its_handler_is_put_back(kind: signal.Signals) -> None:
    before = signal.getsignal(kind)

    with stopped_by_signals() as stop:
        os.kill(os.getpid(), kind)
        assert stop.wait(60)

    assert signal.getsignal(kind) == before

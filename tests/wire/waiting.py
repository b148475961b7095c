"""Waiting for something in the broker to happen, never for longer than a test may take."""

import time
from collections.abc import Callable

import cordwood

TIMEOUT_S = 60.0


def await_true(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.002)


def await_waiting_fetches(broker: cordwood.Broker, count: int) -> None:
    """Until so many fetches wait in the broker."""
    fetches = broker._running().fetches
    await_true(lambda: fetches.waiting_count == count)


def await_completion(broker: cordwood.Broker) -> None:
    """Until all transactions that were ended have their markers."""
    transactions = broker.store.transactions
    await_true(lambda: not any(found.is_prepared for found in transactions.all()))

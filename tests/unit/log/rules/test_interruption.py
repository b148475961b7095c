"""Locks that outlive a function, and clean-up that an interrupt does not end."""

import threading

import pytest

from cordwood.log.rules.interruption import LockHold, insist


def test_a_hold_knows_whether_it_has_the_lock() -> None:
    lock = threading.Lock()
    first, second = LockHold(lock), LockHold(lock)

    assert first.take()
    assert not second.take(timeout_s=0)
    assert not second.take(timeout_s=0.01)
    assert bool(first)
    assert not second

    second.release()
    assert lock.locked(), "a hold releases its own lock alone"
    first.release()
    first.release()
    assert second.take()


def test_what_is_insisted_on_begins_again_after_an_interrupt_and_raises_it_at_the_end() -> None:
    interrupts = [KeyboardInterrupt("first"), KeyboardInterrupt("second")]
    done: list[str] = []

    def action() -> None:
        if interrupts:
            raise interrupts.pop(0)
        done.append("whole")

    with pytest.raises(KeyboardInterrupt, match="second"):
        insist(action)
    assert done == ["whole"]


def test_an_error_ends_what_is_insisted_on() -> None:
    calls: list[None] = []

    def action() -> None:
        calls.append(None)
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        insist(action)
    assert len(calls) == 1

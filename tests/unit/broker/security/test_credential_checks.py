"""The threads that check passwords, on a system that has none to give."""

import threading

import pytest

from cordwood.broker.security.credential_checks import CredentialChecks


def test_a_login_that_got_no_thread_does_not_keep_later_ones_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = CredentialChecks(threads=1)
    checked = threading.Event()

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            checks.submit("a", lambda: None)
    assert checks.waiting_count == 0
    checks.submit("b", checked.set)
    assert checked.wait(60)
    checks.stop()


def test_checks_go_on_in_fewer_threads_if_there_are_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = CredentialChecks(threads=2)
    is_busy, may_go_on, checked = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        is_busy.set()
        may_go_on.wait(60)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    checks.submit("a", wait)
    assert is_busy.wait(60)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        checks.submit("b", checked.set)
    may_go_on.set()
    assert checked.wait(60)
    checks.stop()

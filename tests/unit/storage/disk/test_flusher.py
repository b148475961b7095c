"""Group commit: whoever asks is synced, many by one sync."""

import threading

from cordwood.storage.disk.flusher import Flusher, InlineFlusher
from fakes.own_threads import OwnThreads


class Log:
    """Counts its syncs; the first waits until it is let go."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.syncs = 0
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.threads: list[str] = []
        if not is_held:
            self.may_end.set()

    def sync_pending(self) -> None:
        self.syncs += 1
        self.threads.append(threading.current_thread().name)
        self.began.set()
        assert self.may_end.wait(60)


def test_an_inline_flusher_syncs_in_the_thread_that_asks() -> None:
    log = Log()
    flusher = InlineFlusher()

    flusher.request(log)
    flusher.request(log)
    flusher.stop()

    assert log.syncs == 2
    assert set(log.threads) == {threading.current_thread().name}


def test_a_flusher_syncs_on_a_thread_of_its_own_named_after_its_directory() -> None:
    log = Log()
    flusher = Flusher("/data")

    flusher.request(log)
    flusher.stop()

    assert log.threads == ["cordwood-flusher /data"]


def test_requests_during_a_sync_are_served_by_the_next_one() -> None:
    log = Log(is_held=True)
    flusher = Flusher("test")
    flusher.request(log)
    assert log.began.wait(60)
    for _ in range(50):
        flusher.request(log)

    log.may_end.set()
    flusher.stop()

    assert log.syncs == 2


def test_every_log_that_asked_is_synced() -> None:
    first = Log(is_held=True)
    others = [Log() for _ in range(5)]
    flusher = Flusher("test")
    flusher.request(first)
    assert first.began.wait(60)
    for log in others:
        flusher.request(log)

    first.may_end.set()
    flusher.stop()

    assert [log.syncs for log in others] == [1] * 5


def test_stopping_serves_what_was_asked_for_and_is_safe_to_repeat() -> None:
    log = Log()
    flusher = Flusher("test")
    flusher.request(log)

    flusher.stop()
    flusher.stop()

    assert log.syncs == 1


def test_a_flusher_nobody_asked_has_no_thread() -> None:
    with OwnThreads() as threads:
        flusher = Flusher("test")

        assert threads.names == []
        flusher.stop()

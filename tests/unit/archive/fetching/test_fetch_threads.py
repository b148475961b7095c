"""Fetching ahead is bounded, keeps the order, and ends when nobody wants it any more."""

import threading
from collections.abc import Iterator

import pytest

from cordwood.archive.fetching.fetch_threads import THREADS_MAX, FetchThreads, read_ahead
from cordwood.archive.objects.local_objects import LocalObjects
from cordwood.archive.objects.object_port import PIECE_BYTES
from cordwood.errors import LimitExceededError, TruncatedInputError
from fakes.own_threads import OwnThreads
from fakes.simulated_fs import SimulatedFileSystem
from fakes.thread_shortage import ThreadShortage
from fakes.watched_objects import WatchedObjects

SIZE = 5 * PIECE_BYTES + 100


@pytest.fixture
def objects() -> WatchedObjects:
    found = WatchedObjects(LocalObjects(SimulatedFileSystem(), "/archive"))
    found.put("key", [bytes([number]) * (SIZE // 5) for number in range(5)])
    return found


@pytest.fixture
def threads() -> Iterator[FetchThreads]:
    threads = FetchThreads()
    yield threads
    threads.close(60)


def test_the_pieces_come_in_order(threads: FetchThreads, objects: WatchedObjects) -> None:
    found = b"".join(read_ahead(threads, objects, "key", SIZE))

    assert found == b"".join(objects.read("key"))


def test_as_many_are_under_way_as_there_are_threads_and_no_more(
    threads: FetchThreads, objects: WatchedObjects
) -> None:
    objects.await_together(5)

    assert sum(map(len, read_ahead(threads, objects, "key", SIZE))) == SIZE

    assert 5 <= objects.together_max <= THREADS_MAX + 1


@pytest.mark.parametrize(
    ("size", "error"), [(SIZE + 1, TruncatedInputError), (SIZE - 1, LimitExceededError)]
)
def test_an_object_of_another_size_is_refused(
    threads: FetchThreads, objects: WatchedObjects, size: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        list(read_ahead(threads, objects, "key", size))


def test_the_error_of_a_piece_reaches_the_reader(
    threads: FetchThreads, objects: WatchedObjects
) -> None:
    objects.delete("key")

    with pytest.raises(FileNotFoundError):
        list(read_ahead(threads, objects, "key", SIZE))


def test_what_was_not_begun_is_not_fetched_for_a_reader_that_is_gone(
    objects: WatchedObjects,
) -> None:
    threads = FetchThreads(threads_max=1)
    gate = threading.Event()
    threads.offer(objects, _Wait(gate))
    reading = read_ahead(threads, objects, "key", SIZE)
    next(reading)

    assert isinstance(reading, Iterator)
    reading.close()  # type: ignore[attr-defined]
    gate.set()
    threads.close(60)

    assert objects.calls == 1


def test_a_reader_needs_no_threads(objects: WatchedObjects) -> None:
    threads = FetchThreads()
    threads.close()

    assert sum(map(len, read_ahead(threads, objects, "key", SIZE))) == SIZE


class _Wait:
    """A task that takes until its gate opens."""

    def __init__(self, gate: threading.Event) -> None:
        self._gate = gate
        self.is_cancelled = False
        self.has_run = threading.Event()

    def run(self) -> None:
        self._gate.wait(60)
        self.has_run.set()

    def cancel(self) -> None:
        self.is_cancelled = True


def test_closing_cancels_what_is_queued_and_waits_for_the_rest(objects: WatchedObjects) -> None:
    gate = threading.Event()
    tasks = [_Wait(gate) for _ in range(5)]
    with OwnThreads() as own:
        threads = FetchThreads(threads_max=1)
        assert all(threads.offer(objects, task) for task in tasks)

        gate.set()
        threads.close(60)

        assert not threads.offer(objects, _Wait(gate))
        assert own.names == []


def test_too_much_work_is_refused(objects: WatchedObjects) -> None:
    threads = FetchThreads(threads_max=1)
    gate = threading.Event()

    accepted = [threads.offer(objects, _Wait(gate)) for _ in range(200)]
    gate.set()
    threads.close(60)

    assert 64 <= accepted.count(True) <= 65


def test_without_any_thread_an_offer_is_refused_and_the_reader_fetches_itself(
    threads: FetchThreads, objects: WatchedObjects
) -> None:
    with ThreadShortage(threads):
        assert not threads.offer(objects, _Wait(threading.Event()))
        assert sum(map(len, read_ahead(threads, objects, "key", SIZE))) == SIZE

    objects.await_together(2)  # threads come again, and wait for each other
    assert sum(map(len, read_ahead(threads, objects, "key", SIZE))) == SIZE


def test_a_task_that_cannot_have_a_thread_runs_in_one_that_there_is(
    objects: WatchedObjects,
) -> None:
    threads, gate, opened = FetchThreads(), threading.Event(), threading.Event()
    opened.set()
    ran = _Wait(opened)
    assert threads.offer(objects, _Wait(gate))

    with ThreadShortage(threads):
        assert threads.offer(objects, ran)
    gate.set()

    assert ran.has_run.wait(60)
    threads.close(60)

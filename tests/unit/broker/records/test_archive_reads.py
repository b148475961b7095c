"""Archives are read in a few threads; a fetch is answered also if there is none."""

import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.records.archive_reads import ArchivedPlace, ArchiveReaders, ArchiveReads
from cordwood.errors import StorageError
from fakes.thread_shortage import ThreadShortage

S = 30.0
ARCHIVE = "s3://here"


class _ArchivedLog:
    name = "t-0"
    config = SimpleNamespace(archive_url=ARCHIVE)


@pytest.fixture
def readers() -> Iterator[ArchiveReaders]:
    made = ArchiveReaders()
    yield made
    made.stop()


def _wait(event: threading.Event) -> None:
    event.wait(S)


def test_a_read_that_cannot_have_a_thread_waits_for_one_that_there_is(
    readers: ArchiveReaders,
) -> None:
    go, done = threading.Event(), threading.Event()
    readers.submit(ARCHIVE, partial(_wait, go))

    with ThreadShortage(readers):
        readers.submit(ARCHIVE, done.set)
    go.set()

    assert done.wait(S)


def test_a_read_that_is_refused_for_want_of_any_thread_does_not_run(
    readers: ArchiveReaders,
) -> None:
    ran, done = list[int](), threading.Event()
    with ThreadShortage(readers):
        for number in range(10):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                readers.submit(ARCHIVE, partial(ran.append, number))

    readers.submit(ARCHIVE, done.set)

    assert done.wait(S)
    assert not ran


def test_who_waits_for_a_read_without_a_thread_is_told_and_the_next_one_tries_again(
    readers: ArchiveReaders,
) -> None:
    loop = EventLoop("data")
    loop._thread_id = threading.get_ident()
    place = ArchivedPlace(cast("Any", _ArchivedLog()), 7, 100)
    reads, found = ArchiveReads(loop, readers), list[object]()

    with ThreadShortage(readers):
        for _ in range(2):
            reads.read(place, lambda _, result: found.append(result))
            loop._turn()
    loop._close()

    assert [type(result) for result in found] == [StorageError, StorageError]

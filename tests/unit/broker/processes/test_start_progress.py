"""What a worker tells its keeper before it is ready."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cordwood.broker.cluster.control.keeper_link import FrameKind, receive_frame
from cordwood.broker.cluster.control.local_control import KeeperNews
from cordwood.broker.processes import start_progress
from cordwood.broker.processes.held_files import SlotFileSystem
from cordwood.broker.processes.start_progress import StartProgress
from cordwood.log.store.store import Store, StoreSetup
from cordwood.storage.disk.file_access import FileAccess
from cordwood.storage.files import RealFileSystem

WAIT_S = 30.0


class Link:
    """Both ends of the connection between a worker and its keeper."""

    def __init__(self) -> None:
        self._keeper, process = socket.socketpair()
        self._keeper.settimeout(WAIT_S)
        self.news = KeeperNews(process)

    def told(self) -> FrameKind:
        frame = receive_frame(self._keeper)
        assert frame is not None
        return frame.kind

    def close(self) -> None:
        self.news.has_become_ready.set()
        self._keeper.close()
        self.news.connection.close()


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    monkeypatch.setattr(start_progress, "PROGRESS_S", 0.001)
    made = Link()
    yield made
    made.close()


def test_progress_is_told_once_for_each_step_until_the_worker_is_ready(link: Link) -> None:
    looks = threading.Semaphore(0)
    steps = [5, 5, 5, 6, 6, 9]
    progress = StartProgress(link.news)

    def look() -> int:
        looks.release()
        return steps.pop(0) if len(steps) > 1 else steps[0]

    progress.watch(look)
    progress.start()
    for _ in range(20):
        assert looks.acquire(timeout=WAIT_S)
    link.news.is_ready()

    told = [link.told() for _ in range(4)]
    assert told == [*[FrameKind.WORKING] * 3, FrameKind.READY]


def test_another_part_of_the_start_is_progress(link: Link) -> None:
    progress = StartProgress(link.news)
    progress.watch(lambda: 7)
    progress.start()
    first = link.told()

    progress.watch(lambda: 7)

    assert first == link.told() == FrameKind.WORKING


def test_recovery_makes_a_step_with_every_part_of_a_log_that_it_reads(tmp_path: Path) -> None:
    records, path = 40, str(tmp_path / "data")
    fs = RealFileSystem()
    setup = partial(StoreSetup, free_bytes_min=0, has_housekeeping=False)
    killed = Store([path], setup(fs=fs))
    topic = killed.create_topic("t", config={"durability": "os"})
    for _ in range(records):
        topic.partition(0).append(bytes(100_000))
    killed.directories.abandon()  # as if it were killed: the log is read again
    counted = SlotFileSystem(FileAccess.OWNER, slot=1)

    store = Store([path], setup(fs=counted))
    steps = counted.opening_steps
    counted.store_is_open()
    read = [record.offset for record in store.topic("t").partition(0).read(0)]

    assert steps > 20
    assert read == list(range(records))
    assert counted.opening_steps == 0
    store.close()


def test_files_that_are_opened_after_the_store_are_ordinary_ones(tmp_path: Path) -> None:
    fs = SlotFileSystem(FileAccess.OWNER, slot=1)
    during = fs.create(str(tmp_path / "during"))

    fs.store_is_open()
    after = fs.create(str(tmp_path / "after"))

    plain = RealFileSystem().open_read(str(tmp_path / "after"))
    assert type(after) is type(plain) is not type(during)
    for file in (during, after, plain):
        file.close()

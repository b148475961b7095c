"""Syncs by the kernel: they end while the thread that began them is busy with other things."""

import importlib.util
import os
import select
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from cordwood.storage.disk import kernel_syncs
from cordwood.storage.disk.kernel_syncs import KernelSyncs

SOURCE = Path(__file__).parents[4] / "src" / "cordwood" / "storage" / "disk" / "kernel_syncs.py"
SLOTS = 64


def load_plain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_kernel_syncs", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.COMPILED
    return module


@pytest.fixture(params=["as installed", "plain"])
def syncs(request: pytest.FixtureRequest) -> Iterator[KernelSyncs]:
    form = kernel_syncs if request.param == "as installed" else load_plain()
    opened = form.KernelSyncs.open()
    if opened is None:
        pytest.skip("the kernel offers no such syncs")
    yield opened
    opened.close()


def test_each_sync_is_reported_once_by_its_number(syncs: KernelSyncs, tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb", buffering=0) as file:
        for number in (7, 8):
            file.write(b"x")
            assert syncs.submit(file.fileno(), number)

        ended = syncs.wait_for_all()

    assert sorted(ended) == [(7, None), (8, None)]
    assert syncs.wait_for_all() == []


def test_one_may_wait_for_the_first_that_ends_for_a_while(
    syncs: KernelSyncs, tmp_path: Path
) -> None:
    with open(tmp_path / "file", "wb", buffering=0) as file:
        without = syncs.finished_within(0.0001)
        file.write(b"x")
        assert syncs.submit(file.fileno(), 7)
        ended = syncs.finished_within(0.9) or syncs.wait_for_all()

    assert without == []
    assert ended == [(7, None)]


def test_a_sync_that_is_impossible_is_reported_or_refused(syncs: KernelSyncs) -> None:
    reader, writer = os.pipe()
    try:
        is_taken = syncs.submit(reader, 1)
        ended = syncs.wait_for_all()
    finally:
        os.close(reader)
        os.close(writer)

    assert not is_taken or isinstance(dict(ended)[1], OSError)


def test_the_end_of_a_sync_makes_the_descriptor_readable(
    syncs: KernelSyncs, tmp_path: Path
) -> None:
    with open(tmp_path / "file", "wb", buffering=0) as file:
        file.write(b"x")
        assert syncs.submit(file.fileno(), 7)

        ready, _, _ = select.select([syncs.fd], [], [], 30)
        ended = syncs.finished()

    assert ready == [syncs.fd]
    assert ended == [(7, None)]
    assert syncs.finished() == []


def test_a_number_comes_back_as_it_was(syncs: KernelSyncs, tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb", buffering=0) as file:
        assert syncs.submit(file.fileno(), 2**40 + 3)

        ended = syncs.wait_for_all()

    assert ended == [(2**40 + 3, None)]


def test_more_syncs_than_there_are_slots_are_refused_until_some_have_ended(
    syncs: KernelSyncs, tmp_path: Path
) -> None:
    with open(tmp_path / "file", "wb", buffering=0) as file:
        taken = [syncs.submit(file.fileno(), number) for number in range(SLOTS)]
        is_one_more_taken = syncs.submit(file.fileno(), SLOTS)
        ended = syncs.wait_for_all()
        is_taken_later = syncs.submit(file.fileno(), SLOTS)
        ended_later = syncs.wait_for_all()

    assert taken == [True] * SLOTS
    assert not is_one_more_taken
    assert sorted(number for number, _ in ended) == list(range(SLOTS))
    assert is_taken_later
    assert ended_later == [(SLOTS, None)]


def test_a_descriptor_that_is_not_open_is_refused(syncs: KernelSyncs) -> None:
    assert not syncs.submit(2**30, 1)
    assert syncs.wait_for_all() == []


def test_a_context_that_is_gone_is_an_error_by_its_number(syncs: KernelSyncs) -> None:
    fd = os.dup(syncs.fd)
    try:
        gone = type(syncs)(fd, 1)

        with pytest.raises(OSError, match="Invalid argument"):
            gone.finished()
        assert not gone.submit(fd, 1)
    finally:
        os.close(fd)


def test_a_signal_does_not_end_a_wait_but_its_handler_runs(syncs: KernelSyncs) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: seen.append(number))
    waiting = threading.get_ident()
    sender = threading.Timer(0.05, lambda: signal.pthread_kill(waiting, signal.SIGUSR1))
    try:
        sender.start()
        ended = syncs.finished_within(0.2)
        sender.join()
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert ended == []
    assert seen == [signal.SIGUSR1]


def test_a_handler_that_raises_ends_a_wait(syncs: KernelSyncs) -> None:
    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    waiting = threading.get_ident()
    sender = threading.Timer(0.05, lambda: signal.pthread_kill(waiting, signal.SIGUSR1))
    try:
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            syncs.finished_within(30)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)


def test_other_threads_run_while_one_waits(syncs: KernelSyncs) -> None:
    began = threading.Event()
    thread = threading.Timer(0.01, began.set)
    thread.start()

    ended = syncs.finished_within(0.3)

    assert ended == []
    assert began.is_set()
    thread.join()


def test_a_system_without_such_syncs_is_told_by_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "eventfd")

    assert KernelSyncs.open() is None
    assert load_plain().KernelSyncs.open() is None

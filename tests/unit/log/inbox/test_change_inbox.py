"""The files of the inbox, as both sides see them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cordwood.log.inbox.change_inbox import (
    LEFTOVER_MS,
    LOST_RUN_MS,
    Beat,
    ChangeInbox,
    new_request_id,
)
from cordwood.log.inbox.change_request import ChangeRequester
from cordwood.log.inbox.staging_run import StagingRun, mark_staging
from cordwood.log.inbox.store_change import ChangeAnswer, CommitGroup
from cordwood.log.rules.work_progress import WorkDone
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, open_store

COMMIT = CommitGroup(group="billing", offsets={("orders", 0): (7, "")})


class Waiting:
    """A requester on a simulated disk, whose pauses move the clock and may do something."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fs = SimulatedFileSystem(clock=self.clock)
        self.fs.make_directory(DATA)
        self.inbox = ChangeInbox(self.fs, DATA)
        self.request_id = new_request_id()
        self.meanwhile: Callable[[], object] = lambda: None
        self.seen: list[WorkDone] = []

    def ask(self, *, timeout_s: float = 10.0) -> ChangeAnswer:
        requester = ChangeRequester(
            self.fs,
            DATA,
            lambda: open_store(self.fs, clock=self.clock),
            self.clock,
            pause=self._pause,
            on_progress=self.seen.append,
        )
        return requester.ask(COMMIT, self.request_id, timeout_s=timeout_s)

    def _pause(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1000))
        self.meanwhile()


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"{}", b"[1]", b'["1", 2, 3]', b"[1, 2, 3.5]", b"[" * 5000]
)
def test_what_is_no_sign_of_life_is_none(waiting: Waiting, content: bytes) -> None:
    waiting.fs.make_directory(waiting.inbox.directory)
    file = waiting.fs.create(f"{waiting.inbox.directory}/{waiting.request_id}.progress")
    if content:
        file.write_at(0, content)

    assert waiting.inbox.progress(waiting.request_id) is None


def test_a_sign_of_life_goes_with_the_answer_or_is_swept(waiting: Waiting) -> None:
    inbox, request_id = waiting.inbox, waiting.request_id
    waiting.fs.make_directory(inbox.directory)
    inbox.note_progress(request_id, 1, WorkDone(5, None))
    assert inbox.progress(request_id) == Beat(1, WorkDone(5, None))

    inbox.answer(request_id, ChangeAnswer(outcome="done"))

    assert inbox.progress(request_id) is None
    inbox.note_progress(request_id, 2, WorkDone(6, 10))
    waiting.clock.advance(LEFTOVER_MS)
    assert inbox.sweep(waiting.clock.now_ms()) == 2  # the answer that nobody took, too


def stage(waiting: Waiting, run_id: str) -> str:
    """A directory of staged files, written now."""
    staging = f"{waiting.inbox.directory}/{waiting.request_id}"
    waiting.fs.make_directory(staging)
    mark_staging(waiting.fs, staging, run_id)
    waiting.fs.create(f"{staging}/0.log").write_at(0, b"batches")
    return staging


def test_files_of_a_job_that_was_killed_go_after_ten_minutes(waiting: Waiting) -> None:
    run = StagingRun(waiting.fs, DATA)
    waiting.fs.make_directory(waiting.inbox.directory)
    run.beat()
    staging = stage(waiting, run.run_id)

    waiting.clock.advance(LOST_RUN_MS - 1)
    assert waiting.inbox.sweep(waiting.clock.now_ms()) == 0
    waiting.clock.advance(1)
    assert waiting.inbox.sweep(waiting.clock.now_ms()) == 1

    assert not waiting.fs.exists(staging)


def test_files_of_a_job_that_beats_stay_however_old_they_are(waiting: Waiting) -> None:
    run = StagingRun(waiting.fs, DATA)
    waiting.fs.make_directory(waiting.inbox.directory)
    staging = stage(waiting, run.run_id)

    waiting.clock.advance(LEFTOVER_MS - 1)
    run.beat()

    assert waiting.inbox.sweep(waiting.clock.now_ms()) == 0
    assert waiting.fs.exists(staging)


def test_files_that_a_request_names_stay_though_its_job_is_gone(waiting: Waiting) -> None:
    staging = stage(waiting, "0" * 32)
    waiting.fs.create(f"{staging}.request").write_at(0, b"{}")

    waiting.clock.advance(LOST_RUN_MS)

    assert waiting.inbox.sweep(waiting.clock.now_ms()) == 0
    assert waiting.fs.exists(staging)


def test_a_job_that_ends_takes_its_beat_with_it(waiting: Waiting) -> None:
    with StagingRun(waiting.fs, DATA) as run:
        assert waiting.fs.exists(f"{waiting.inbox.directory}/{run.run_id}.beat")

    assert not waiting.fs.exists(f"{waiting.inbox.directory}/{run.run_id}.beat")

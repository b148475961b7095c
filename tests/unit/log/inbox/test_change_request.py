"""Asking for a change: made at once where nobody owns the store, else by its owner."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import (
    ChangeRefusedError,
    ChangeTimeoutError,
    DirectoryLockedError,
    StorageError,
)
from cordwood.library import request_change
from cordwood.log.inbox.change_inbox import ChangeInbox, new_request_id
from cordwood.log.inbox.change_request import ChangeRequester
from cordwood.log.inbox.store_change import ChangeAnswer, CommitGroup
from cordwood.log.inbox.topic_change import ForgetGroup
from cordwood.log.rules.work_progress import WorkDone
from cordwood.log.store.store import Store
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
        self.owner: Store | None = None  # a store that nobody refers to releases its lock

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


def test_where_nobody_owns_the_store_the_change_is_made_at_once(waiting: Waiting) -> None:
    assert waiting.ask().outcome == "done"

    assert open_store(waiting.fs).group("billing").committed(("orders", 0)) == 7
    assert waiting.inbox.waiting() == []


def test_where_someone_owns_it_the_owner_answers(waiting: Waiting) -> None:
    owner = open_store(waiting.fs, clock=waiting.clock)
    waiting.meanwhile = owner.changes.serve

    assert waiting.ask().outcome == "done"

    assert owner.group("billing").committed(("orders", 0)) == 7


def test_an_owner_that_goes_away_leaves_the_change_to_who_asks(waiting: Waiting) -> None:
    owner = open_store(waiting.fs, clock=waiting.clock)
    waiting.meanwhile = owner.close

    assert waiting.ask().outcome == "done"


def test_an_owner_that_does_not_answer_is_named_and_nothing_is_changed(waiting: Waiting) -> None:
    owner = open_store(waiting.fs, clock=waiting.clock)

    with pytest.raises(ChangeTimeoutError, match="nothing was changed") as caught:
        waiting.ask(timeout_s=3)

    assert caught.value.owner == "this process"
    assert not caught.value.is_in_doubt
    assert owner.changes.serve() == 0


def test_an_owner_that_takes_its_time_is_waited_for(waiting: Waiting) -> None:
    waiting.owner = open_store(waiting.fs, clock=waiting.clock)
    started_s = waiting.clock.monotonic()

    def work_slowly() -> None:
        waiting.inbox.claim(waiting.request_id)
        if waiting.clock.monotonic() - started_s > 8:
            waiting.inbox.answer(waiting.request_id, ChangeAnswer(outcome="done"))

    waiting.meanwhile = work_slowly

    assert waiting.ask(timeout_s=1).outcome == "done"


def test_an_owner_that_shows_signs_of_life_is_waited_for_as_long_as_it_takes(
    waiting: Waiting,
) -> None:
    waiting.owner = open_store(waiting.fs, clock=waiting.clock)
    started_s = waiting.clock.monotonic()

    def work_very_slowly() -> None:
        waiting.inbox.claim(waiting.request_id)
        seconds = int(waiting.clock.monotonic() - started_s)
        waiting.inbox.note_progress(waiting.request_id, seconds, WorkDone(seconds, 100))
        if seconds >= 100:
            waiting.inbox.answer(waiting.request_id, ChangeAnswer(outcome="done"))

    waiting.meanwhile = work_very_slowly

    assert waiting.ask(timeout_s=2).outcome == "done"
    assert waiting.seen[:3] == [WorkDone(0, 100), WorkDone(1, 100), WorkDone(2, 100)]
    assert len(waiting.seen) in (100, 101)


def test_an_owner_whose_signs_of_life_end_is_given_up(waiting: Waiting) -> None:
    waiting.owner = open_store(waiting.fs, clock=waiting.clock)

    def stop_at_five() -> None:
        waiting.inbox.claim(waiting.request_id)
        beat = min(int(waiting.clock.monotonic()), 5)
        waiting.inbox.note_progress(waiting.request_id, beat, WorkDone(beat))

    waiting.meanwhile = stop_at_five

    with pytest.raises(ChangeTimeoutError, match="may still make the change"):
        waiting.ask(timeout_s=2)


def test_an_owner_that_took_it_up_and_never_answers_leaves_it_in_doubt(waiting: Waiting) -> None:
    waiting.owner = open_store(waiting.fs, clock=waiting.clock)
    waiting.meanwhile = lambda: waiting.inbox.claim(waiting.request_id)

    with pytest.raises(ChangeTimeoutError, match="may still make the change") as caught:
        waiting.ask(timeout_s=1)

    assert caught.value.is_in_doubt


def test_a_refusal_is_raised_with_its_reason(waiting: Waiting) -> None:
    owner = open_store(waiting.fs, clock=waiting.clock)

    class Refusal:
        def commit(self, change: CommitGroup) -> None:
            raise StorageError("not today")

        def forget(self, change: ForgetGroup) -> None:
            raise StorageError("not today")

    owner.changes.coordinate_groups(Refusal())
    waiting.meanwhile = owner.changes.serve

    with pytest.raises(ChangeRefusedError, match="not today"):
        waiting.ask()


def test_a_requester_that_is_interrupted_takes_its_request_back(waiting: Waiting) -> None:
    owner = open_store(waiting.fs, clock=waiting.clock)

    def interrupt() -> None:
        raise KeyboardInterrupt

    waiting.meanwhile = interrupt

    with pytest.raises(KeyboardInterrupt):
        waiting.ask()

    assert owner.changes.serve() == 0


# --- for real ------------------------------------------------------------------------------------


def test_the_housekeeping_of_an_owner_in_this_process_answers(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        store.create_topic("orders")

        answer = request_change(tmp_path, COMMIT)

        assert answer.outcome == "done"
        assert store.group("billing").committed(("orders", 0)) == 7


def test_many_may_ask_at_the_same_time(tmp_path: Path) -> None:
    cordwood.open(tmp_path).close()
    answers: list[str] = []

    def ask(number: int) -> None:
        change = CommitGroup(group=f"group {number}", offsets={("orders", 0): (number, "")})
        answers.append(request_change(tmp_path, change).outcome)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert answers == ["done"] * 6
    with cordwood.open(tmp_path, read_only=True) as store:
        assert len(store.groups()) == 6


def test_where_there_is_no_store_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no data directory"):
        request_change(tmp_path / "nothing", COMMIT)

    assert not (tmp_path / "nothing").exists()


def test_the_store_can_be_opened_again_at_once(tmp_path: Path) -> None:
    cordwood.open(tmp_path).close()

    request_change(tmp_path, COMMIT)

    with cordwood.open(tmp_path), pytest.raises(DirectoryLockedError):
        cordwood.open(tmp_path)

"""Long changes run beside other requests, report their progress, and survive their owner."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import cordwood
from cordwood.library import request_change
from cordwood.log.inbox.change_inbox import ChangeInbox, new_request_id
from cordwood.log.inbox.store_change import (
    ChangeRequest,
    CommitGroup,
)
from cordwood.log.inbox.topic_change import CreateTopic
from cordwood.log.inbox.upkeep_change import (
    SnapshotStore,
)
from cordwood.log.rules.work_progress import WorkDone, WorkProgress
from cordwood.log.store.store import Store
from cordwood.quantities import TimestampMs
from cordwood.storage.files import RealFileSystem

TIMEOUT_S = 60.0


# --- made for whoever asks -----------------------------------------------------------------------


@pytest.fixture(params=["nobody holds it", "someone holds it"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A store, perhaps with an owner: an archived topic, and one that is compacted."""
    store = filled(tmp_path / "data", archive=(tmp_path / "archive").as_uri())
    if request.param == "nobody holds it":
        store.close()
    yield tmp_path / "data"
    store.close()


def filled(path: Path, *, archive: str) -> Store:
    store = cordwood.open(path)
    config = {"archive.url": archive, "archive.after.ms": 0, "segment.records": 10}
    orders = store.create_topic("orders", partitions=2, config=config)
    for _ in range(3):
        orders.append_many([(None, b"x" * 10)] * 10, partition=0)
    accounts = store.create_topic("accounts", config={"cleanup.policy": "compact"})
    accounts.append_many([(b"k%d" % (n % 3), b"%d" % n) for n in range(30)])
    return store


def read_only(path: Path) -> cordwood.ReadOnlyStore:
    return cordwood.open(path, read_only=True)


def values(path: Path, topic: str) -> list[bytes | None]:
    with read_only(path) as store:
        return [record.value for record in store.topic(topic).partition(0).read()]


# --- long work -----------------------------------------------------------------------------------


@contextmanager
def slow_snapshot(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While the block runs, a copy of `store` does not end; the event is set once it began."""
    began, may_end = threading.Event(), threading.Event()
    snapshot = Store.snapshot

    def slowly(self: Store, path: str, *, progress: WorkProgress, **options: Any) -> object:
        progress.expect(100)
        progress.add(40)
        began.set()
        assert may_end.wait(TIMEOUT_S)
        return snapshot(self, path, progress=progress, **options)

    monkeypatch.setattr(Store, "snapshot", slowly)
    try:
        yield began
    finally:
        may_end.set()


def test_other_changes_are_made_while_a_long_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = CommitGroup(group="billing", offsets={("orders", 0): (7, "")})
    path = tmp_path / "data"
    answers: list[object] = []
    seen: list[WorkDone] = []
    has_progress = threading.Event()

    def note(work: WorkDone) -> None:
        seen.append(work)
        has_progress.set()

    def ask() -> None:
        change = SnapshotStore(path=str(tmp_path / "copy"))
        answers.append(request_change(path, change, on_progress=note).facts["path"])

    with filled(path, archive=(tmp_path / "archive").as_uri()) as store:
        asker = threading.Thread(target=ask)
        with slow_snapshot(store, monkeypatch) as began:
            asker.start()
            assert began.wait(TIMEOUT_S)

            assert request_change(path, commit).outcome == "done"

            assert has_progress.wait(TIMEOUT_S)
            assert not answers
        asker.join(TIMEOUT_S)

    assert answers == [str(tmp_path / "copy")]
    assert seen[0] == WorkDone(40, 100)


def test_a_long_change_that_was_begun_is_left_to_the_next_owner_by_one_that_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    store = filled(path, archive=(tmp_path / "archive").as_uri())
    inbox = ChangeInbox(RealFileSystem(), str(path))
    request_id = new_request_id()
    deadline_ms = TimestampMs(2**60)
    change = SnapshotStore(path=str(tmp_path / "copy"))
    closer = threading.Thread(target=store.close)
    with slow_snapshot(store, monkeypatch) as began:
        inbox.submit(
            request_id,
            ChangeRequest(change=change, submitted_ms=TimestampMs(0), deadline_ms=deadline_ms),
        )
        assert began.wait(TIMEOUT_S)
        closer.start()
        while not store.is_closed:
            closer.join(0.01)
    closer.join(TIMEOUT_S)
    assert inbox.take_answer(request_id) is None
    assert not (tmp_path / "copy").exists()

    with cordwood.open(path) as again:
        again.changes.serve()

        answer = inbox.take_answer(request_id)
    assert answer is not None
    assert answer.outcome == "done"
    assert values(tmp_path / "copy", "orders") == [b"x" * 10] * 30


def test_a_creation_that_waits_for_a_copy_holds_up_no_other_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    commit = CommitGroup(group="billing", offsets={("orders", 0): (7, "")})
    created: list[str] = []

    def create() -> None:
        created.append(request_change(path, CreateTopic(topic="new")).outcome)

    with filled(path, archive=(tmp_path / "archive").as_uri()) as store:
        creator = threading.Thread(target=create)
        store.group("billing").commit({("orders", 0): 1})
        with store.registry.changing:  # as a copy does
            creator.start()
            inbox = ChangeInbox(RealFileSystem(), str(path))
            while not any(map(store.changes.is_under_way, inbox.waiting())):
                creator.join(0.01)

            assert request_change(path, commit).outcome == "done"

            assert not created
        creator.join(TIMEOUT_S)

        assert created == ["done"]
        assert store.topics() == ["accounts", "new", "orders"]


@pytest.mark.parametrize("kind", ["directory", "pipe", "huge"])
def test_a_strange_file_in_the_inbox_stops_nobody(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data"
    commit = CommitGroup(group="billing", offsets={("orders", 0): (7, "")})
    with filled(path, archive=(tmp_path / "archive").as_uri()) as store:
        strange = Path(store.changes.inbox.directory) / f"{'0' * 32}.request"
        strange.parent.mkdir(parents=True, exist_ok=True)
        if kind == "directory":
            strange.mkdir()
        elif kind == "pipe":
            os.mkfifo(strange)
        else:
            with strange.open("wb") as file:
                file.truncate(2**40)

        assert request_change(path, commit).outcome == "done"

        store.changes.serve()
    assert not strange.exists() or kind == "directory"


def test_an_owner_killed_in_mid_change_leaves_it_to_who_asks(tmp_path: Path) -> None:
    path = tmp_path / "data"
    filled(path, archive=(tmp_path / "archive").as_uri()).abandon()
    inbox = ChangeInbox(RealFileSystem(), str(path))
    request_id = new_request_id()
    change = SnapshotStore(path=str(tmp_path / "copy"))
    inbox.submit(
        request_id,
        ChangeRequest(change=change, submitted_ms=TimestampMs(0), deadline_ms=TimestampMs(2**60)),
    )
    inbox.claim(request_id)
    (tmp_path / "copy.incomplete").mkdir()

    request_change(path, CommitGroup(group="billing", offsets={("orders", 0): (7, "")}))

    answer = inbox.take_answer(request_id)
    assert answer is not None
    assert answer.outcome == "done"
    assert not (tmp_path / "copy.incomplete").exists()
    assert values(tmp_path / "copy", "orders") == [b"x" * 10] * 30


def test_a_change_whose_answer_cannot_be_written_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    inbox = ChangeInbox(RealFileSystem(), str(path))
    request_id = new_request_id()
    change = SnapshotStore(path=str(tmp_path / "copy"))

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with filled(path, archive=(tmp_path / "archive").as_uri()) as store:
        monkeypatch.setattr(store.changes.inbox, "answer", no_room)
        inbox.submit(
            request_id,
            ChangeRequest(
                change=change, submitted_ms=TimestampMs(0), deadline_ms=TimestampMs(2**60)
            ),
        )

        store.changes.serve()

        assert inbox.waiting() == []
    assert (tmp_path / "copy").exists()
    assert list(Path(inbox.directory).iterdir()) == []


def test_more_long_changes_than_can_be_under_way_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    inbox = ChangeInbox(RealFileSystem(), str(path))
    ids = [new_request_id() for _ in range(17)]
    with filled(path, archive=(tmp_path / "archive").as_uri()) as store:
        with slow_snapshot(store, monkeypatch):
            for number, request_id in enumerate(ids):
                change = SnapshotStore(path=str(tmp_path / f"copy{number}"))
                inbox.submit(
                    request_id,
                    ChangeRequest(
                        change=change, submitted_ms=TimestampMs(0), deadline_ms=TimestampMs(2**60)
                    ),
                )
            store.changes.serve(wait=False)
            refused = [a for a in map(inbox.take_answer, ids) if a is not None]
        store.changes.serve()
        others = [a for a in map(inbox.take_answer, ids) if a is not None]

    assert [answer.outcome for answer in refused] == ["refused"]
    assert "try again later" in refused[0].reason
    assert [answer.outcome for answer in others] == ["done"] * 16
    assert list(Path(inbox.directory).iterdir()) == []

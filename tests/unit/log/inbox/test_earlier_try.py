"""A change that an owner made before it died is answered as made, whatever the clock says."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from cordwood.errors import FormatError
from cordwood.log.inbox.change_inbox import ChangeInbox, new_request_id, staging_directory
from cordwood.log.inbox.store_change import (
    REFUSED,
    ChangeAnswer,
    ChangeRequest,
    CommitGroup,
    PublishBatches,
    StagedBatches,
    StoreChange,
)
from cordwood.log.inbox.topic_change import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ForgetGroup,
    TrimTopic,
)
from cordwood.log.inbox.upkeep_change import RestoreTopic, SnapshotStore
from cordwood.log.publishing.publication import PublicationId
from cordwood.log.store.store import Store
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.small_files.staged_file import StagedFileWriter
from fakes.client_batches import client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, log_of, open_store

TIMEOUT_MS = 60_000
WEEK_MS = 7 * 24 * 3_600_000


class Died(BaseException):
    """The owner dies."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fs(clock: ManualClock) -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=clock)


@pytest.fixture
def store(fs: SimulatedFileSystem, clock: ManualClock) -> Store:
    store = open_store(fs, clock=clock)
    store.create_topic("orders").append_many([(None, b"%d" % n) for n in range(10)])
    store.group("billing").commit({("orders", 0): 5})
    store.group("audit").commit({("orders", 0): 5})
    clock.advance(1000)
    return store


def submit(fs: SimulatedFileSystem, change: StoreChange) -> str:
    request_id, now_ms = new_request_id(), fs.clock.now_ms()
    request = ChangeRequest(
        change=change, submitted_ms=now_ms, deadline_ms=TimestampMs(now_ms + TIMEOUT_MS)
    )
    ChangeInbox(fs, DATA).submit(request_id, request)
    return request_id


def answer_to(fs: SimulatedFileSystem, request_id: str) -> ChangeAnswer:
    answer = ChangeInbox(fs, DATA).take_answer(request_id)
    assert answer is not None
    return answer


def die_before_the_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the changes that wait, and die before the first answer is written."""

    def die(*args: object) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(ChangeInbox, "answer", die)
        with pytest.raises(Died):
            store.changes.serve()
    store.abandon()


def publication(fs: SimulatedFileSystem) -> PublishBatches:
    staging_id = new_request_id()
    fs.make_directory(staging_directory(DATA, staging_id))
    writer = StagedFileWriter(fs, os.path.join(staging_directory(DATA, staging_id), "rows"))
    writer.add(("orders", 0), client_batch(b"published", timestamps=[fs.clock.now_ms()]))
    return PublishBatches(
        publication=PublicationId(application="etl", number=0),
        files=(StagedBatches(staging_id=staging_id, name="rows", size=writer.finish()),),
    )


def orders_id(store: Store) -> Any:
    return store.topic("orders").topic_id


CHANGES: dict[str, Callable[[SimulatedFileSystem, Store], StoreChange]] = {
    "publish": lambda fs, store: publication(fs),
    "create": lambda fs, store: CreateTopic(topic="new", partitions=2),
    "delete": lambda fs, store: DeleteTopic(topic="orders", topic_id=orders_id(store)),
    "alter": lambda fs, store: AlterTopic(
        topic="orders", config={"retention.ms": "77", "segment.bytes": None}, partitions=3
    ),
    "trim": lambda fs, store: TrimTopic(
        topic="orders", topic_id=orders_id(store), before={0: Offset(4)}
    ),
    "commit": lambda fs, store: CommitGroup(group="billing", offsets={("orders", 0): (7, "x")}),
    "forget": lambda fs, store: ForgetGroup(group="billing", places=(("orders", 0),)),
}


def shown(store: Store) -> dict[str, object]:
    """Everything that the changes above change."""
    return {
        "topics": {
            name: (store.topic(name).topic_id, store.topic(name).partition_count)
            for name in store.topics()
        },
        "overrides": {name: store.registry.overrides(name) for name in store.topics()},
        "records": {
            name: [record.offset for record in store.topic(name).partition(0).read()]
            for name in store.topics()
        },
        "offsets": {name: store.group(name).committed() for name in store.groups()},
    }


@pytest.mark.parametrize("late_ms", [0, 2 * TIMEOUT_MS, WEEK_MS])
@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_that_a_dead_owner_made_is_not_refused_and_not_made_twice(
    fs: SimulatedFileSystem,
    store: Store,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    late_ms: int,
) -> None:
    request_id = submit(fs, CHANGES[kind](fs, store))
    clock.advance(1000)
    die_before_the_answer(store, monkeypatch)
    again = open_store(fs, clock=clock)
    before = shown(again)
    clock.advance(late_ms)

    again.changes.serve()

    assert answer_to(fs, request_id).outcome in ("done", "skipped")
    assert shown(again) == before


def test_a_copy_that_a_dead_owner_finished_is_answered_with_its_facts(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_of(store, "orders", 0).roll()
    request_id = submit(fs, SnapshotStore(path="/copy"))
    monkeypatch.setattr(store.changes.inbox, "answer", lambda *args: None)
    store.changes.serve()  # as if the answer was lost: the request stays claimed
    store.abandon()
    monkeypatch.undo()
    clock.advance(WEEK_MS)

    open_store(fs, clock=clock).changes.serve()

    answer = answer_to(fs, request_id)
    assert answer.outcome == "done"
    assert answer.facts["path"] == "/copy"
    assert answer.facts["partitions"] == 2  # of the topic, and of the offsets topic
    assert log_of(open_store(fs, directories=("/copy",)), "orders", 0).end_offset == 10


def test_a_directory_that_somebody_else_made_is_not_taken_for_the_copy(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock
) -> None:
    store.snapshot("/copy")
    request_id = submit(fs, SnapshotStore(path="/copy"))
    store.changes.inbox.claim(request_id)
    store.abandon()

    open_store(fs, clock=clock).changes.serve()

    assert "must not exist" in answer_to(fs, request_id).reason


def test_a_commit_that_was_made_does_not_move_a_group_back_that_went_on(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = submit(fs, CHANGES["commit"](fs, store))
    clock.advance(1000)
    die_before_the_answer(store, monkeypatch)
    again = open_store(fs, clock=clock)
    again.group("billing").commit({("orders", 0): 9})

    again.changes.serve()

    assert answer_to(fs, request_id).outcome == "done"
    assert again.group("billing").committed() == {("orders", 0): 9}


def test_a_commit_that_was_claimed_and_not_made_is_made(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock
) -> None:
    offsets = {("orders", 0): (7, "")}
    request_id = submit(fs, CommitGroup(group="billing", offsets=offsets))
    store.changes.inbox.claim(request_id)
    store.abandon()
    again = open_store(fs, clock=clock)
    clock.advance(2 * TIMEOUT_MS)  # its asker waits ten times as long for a claimed one

    again.changes.serve()

    assert answer_to(fs, request_id).outcome == "done"
    assert again.group("billing").committed() == {("orders", 0): 7}


def test_a_claimed_change_that_was_not_made_is_refused_when_nobody_waits_any_more(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock
) -> None:
    request_id = submit(fs, CreateTopic(topic="new"))
    store.changes.inbox.claim(request_id)
    store.abandon()
    clock.advance(12 * TIMEOUT_MS)
    again = open_store(fs, clock=clock)

    again.changes.serve()

    assert "deadline" in answer_to(fs, request_id).reason
    assert again.topics() == ["orders"]


def test_a_creation_finds_the_topic_of_somebody_else_and_is_refused(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock
) -> None:
    request_id = submit(fs, CreateTopic(topic="orders"))
    store.changes.inbox.claim(request_id)
    store.abandon()

    open_store(fs, clock=clock).changes.serve()

    assert answer_to(fs, request_id).outcome == "refused"


@pytest.mark.parametrize("has_id", [False, True])
def test_a_topic_that_was_there_before_is_not_taken_for_the_restored_one(
    fs: SimulatedFileSystem, store: Store, *, has_id: bool
) -> None:
    archived_id = orders_id(store) if has_id else None
    change = RestoreTopic(topic="orders", url="file:///archive", archived_id=archived_id)
    request_id = submit(fs, change)
    ChangeInbox(fs, DATA).claim(request_id)

    store.changes.serve()

    assert answer_to(fs, request_id).outcome == REFUSED
    store.close()


def test_offsets_that_cannot_be_read_do_not_stop_other_requests(
    fs: SimulatedFileSystem, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = CommitGroup(group="billing", offsets={("orders", 0): (7, "")})
    requests = [submit(fs, commit) for _ in range(3)]
    for request_id in requests:
        ChangeInbox(fs, DATA).claim(request_id)

    def fail(group: str) -> None:
        raise FormatError("injected")

    with monkeypatch.context() as patched:
        patched.setattr(store.committed_offsets, "of_group", fail)
        store.changes.serve()

    assert [answer_to(fs, request_id).outcome for request_id in requests] == [REFUSED] * 3
    store.close()

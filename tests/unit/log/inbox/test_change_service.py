"""What the owner of a store does with requests in its inbox: makes, answers, refuses, sweeps."""

from __future__ import annotations

import os
from typing import Any

import pytest

from cordwood.log.inbox.change_inbox import (
    LEFTOVER_MS,
    ChangeInbox,
    inbox_directory,
    new_request_id,
    staging_directory,
)
from cordwood.log.inbox.store_change import (
    ChangeAnswer,
    ChangeRequest,
    CommitGroup,
    PublishBatches,
    StagedBatches,
    StoreChange,
    render_request,
)
from cordwood.log.inbox.topic_change import ForgetGroup
from cordwood.log.publishing.publication import PublicationId
from cordwood.log.store.store import Store
from cordwood.quantities import TimestampMs
from cordwood.storage.small_files.staged_file import StagedFileWriter
from fakes.client_batches import client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, log_of, open_store

HOUR_MS = 3_600_000


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=ManualClock())


@pytest.fixture
def store(fs: SimulatedFileSystem) -> Store:
    assert isinstance(fs.clock, ManualClock)
    store = open_store(fs, clock=fs.clock)
    store.create_topic("orders", partitions=2)
    return store


def stage(fs: SimulatedFileSystem, *batches: tuple[str, int, bytes]) -> StagedBatches:
    """A staged file in a directory of its own, as a task writes it."""
    staging_id = new_request_id()
    directory = staging_directory(DATA, staging_id)
    fs.make_directory(directory)
    writer = StagedFileWriter(fs, os.path.join(directory, "rows"))
    for topic, partition, value in batches:
        writer.add((topic, partition), client_batch(value, timestamps=[fs.clock.now_ms()]))
    return StagedBatches(staging_id=staging_id, name="rows", size=writer.finish())


def submit(fs: SimulatedFileSystem, change: StoreChange, *, in_ms: int = HOUR_MS) -> str:
    request_id = new_request_id()
    deadline_ms = TimestampMs(fs.clock.now_ms() + in_ms)
    ChangeInbox(fs, DATA).submit(
        request_id,
        ChangeRequest(change=change, submitted_ms=fs.clock.now_ms(), deadline_ms=deadline_ms),
    )
    return request_id


def put(fs: SimulatedFileSystem, name: str, content: bytes) -> None:
    fs.make_directory(inbox_directory(DATA))
    file = fs.create(os.path.join(inbox_directory(DATA), name))
    file.write_at(0, content)
    file.close()


def answer_to(fs: SimulatedFileSystem, request_id: str) -> ChangeAnswer:
    answer = ChangeInbox(fs, DATA).take_answer(request_id)
    assert answer is not None
    return answer


def names(fs: SimulatedFileSystem) -> list[str]:
    return [entry.name for entry in fs.list(inbox_directory(DATA))]


def publish(number: int, *files: StagedBatches, **rest: Any) -> PublishBatches:
    return PublishBatches(
        publication=PublicationId(application="etl", number=number), files=files, **rest
    )


def values(store: Store, topic: str = "orders", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in log_of(store, topic, partition).read(0)]


# --- publishing ----------------------------------------------------------------------------------


def test_staged_batches_of_several_tasks_are_published_in_their_order(
    fs: SimulatedFileSystem, store: Store
) -> None:
    first = stage(fs, ("orders", 0, b"1"), ("orders", 1, b"2"), ("orders", 0, b"3"))
    second = stage(fs, ("orders", 0, b"4"))
    request_id = submit(fs, publish(0, first, second))

    assert store.changes.serve() == 1

    answer = answer_to(fs, request_id)
    assert answer.outcome == "done"
    assert answer.facts["offsets"] == [["orders", 0, 0, 3], ["orders", 1, 0, 1]]
    assert values(store) == [b"1", b"3", b"4"]
    assert names(fs) == []


def test_what_was_published_before_is_skipped(fs: SimulatedFileSystem, store: Store) -> None:
    submit(fs, publish(5, stage(fs, ("orders", 0, b"1"))))
    store.changes.serve()
    request_id = submit(fs, publish(5, stage(fs, ("orders", 0, b"1"))))

    store.changes.serve()

    assert answer_to(fs, request_id).outcome == "skipped"
    assert values(store) == [b"1"]


def test_a_topic_that_is_missing_is_created_where_that_was_asked_for(
    fs: SimulatedFileSystem, store: Store
) -> None:
    file = stage(fs, ("audit", 2, b"1"), ("orders", 0, b"2"))
    submit(fs, publish(0, file, topics={"audit": 3, "orders": 7}))

    store.changes.serve()

    assert store.topic("audit").partition_count == 3
    assert store.topic("orders").partition_count == 2
    assert values(store, "audit", 2) == [b"1"]


def test_a_request_that_an_owner_died_over_is_answered_by_the_next(
    fs: SimulatedFileSystem, store: Store
) -> None:
    request_id = submit(fs, publish(0, stage(fs, ("orders", 0, b"1"))))
    assert ChangeInbox(fs, DATA).claim(request_id) is not None
    left = fs.kill()

    again = open_store(left)
    again.changes.serve()

    assert answer_to(left, request_id).outcome == "done"
    assert values(again) == [b"1"]


def test_an_owner_that_died_before_its_answer_has_published_once(
    fs: SimulatedFileSystem, store: Store
) -> None:
    request_id = submit(fs, publish(0, stage(fs, ("orders", 0, b"1"))))
    left: list[SimulatedFileSystem] = []
    fs.watch = lambda _operation, path: (
        left.append(fs.kill()) if path.endswith(".answer.tmp") and not left else None
    )
    store.changes.serve()
    fs.watch = None

    again = open_store(left[0])
    again.changes.serve()

    assert answer_to(left[0], request_id).outcome == "skipped"
    assert values(again) == [b"1"]


def test_a_request_that_was_withdrawn_is_not_made(fs: SimulatedFileSystem, store: Store) -> None:
    request_id = submit(fs, publish(0, stage(fs, ("orders", 0, b"1"))))

    assert ChangeInbox(fs, DATA).withdraw(request_id)
    store.changes.serve()

    assert values(store) == []
    assert not ChangeInbox(fs, DATA).withdraw(request_id)


def test_a_store_that_is_closing_leaves_requests_to_the_next_owner(
    fs: SimulatedFileSystem, store: Store
) -> None:
    request_id = submit(fs, publish(0, stage(fs, ("orders", 0, b"1"))))
    store.close()

    assert store.changes.serve() == 0
    again = open_store(fs)
    again.changes.serve()

    assert answer_to(fs, request_id).outcome == "done"
    assert values(again) == [b"1"]


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[" * 9999, b'{"version": 1, "kind": "delete everything"}', b"\xff"]
)
def test_a_malformed_request_is_answered_and_does_no_harm(
    fs: SimulatedFileSystem, store: Store, content: bytes
) -> None:
    request_id = new_request_id()
    put(fs, f"{request_id}.request", content)

    assert store.changes.serve() == 1

    answer = answer_to(fs, request_id)
    assert answer.outcome == "refused"
    assert answer.reason
    assert names(fs) == []


def test_one_bad_request_does_not_keep_others_waiting(
    fs: SimulatedFileSystem, store: Store
) -> None:
    put(fs, f"{'0' * 32}.request", b"nonsense")
    good = submit(fs, publish(0, stage(fs, ("orders", 0, b"1"))))

    assert store.changes.serve() == 2

    assert answer_to(fs, good).outcome == "done"


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        ([("nowhere", 0, b"1")], "nowhere"),
        ([("orders", 7, b"1")], "partitions 0 to 1"),
        ([("__consumer_offsets", 0, b"1")], "__consumer_offsets"),
    ],
)
def test_batches_for_what_is_not_there_are_refused_as_a_whole(
    fs: SimulatedFileSystem, store: Store, batches: list[tuple[str, int, bytes]], reason: str
) -> None:
    request_id = submit(fs, publish(0, stage(fs, ("orders", 0, b"good"), *batches)))

    store.changes.serve()

    answer = answer_to(fs, request_id)
    assert answer.outcome == "refused"
    assert reason in answer.reason
    assert values(store) == []
    assert store.publisher.last_of("etl") is None


def test_a_staged_file_that_is_missing_or_torn_is_refused(
    fs: SimulatedFileSystem, store: Store
) -> None:
    missing = StagedBatches(staging_id=new_request_id(), name="rows", size=100)
    torn = stage(fs, ("orders", 0, b"1"))
    path = os.path.join(staging_directory(DATA, torn.staging_id), "rows")
    file = fs.open_write(path)
    file.write_at(40, b"\x55\x55")
    file.close()
    requests = [submit(fs, publish(0, file)) for file in (missing, torn)]

    store.changes.serve()

    assert [answer_to(fs, request).outcome for request in requests] == ["refused", "refused"]
    assert values(store) == []


def test_a_request_that_nobody_waits_for_any_more_is_refused(
    fs: SimulatedFileSystem, store: Store
) -> None:
    request_id = submit(fs, publish(0, stage(fs, ("orders", 0, b"1"))), in_ms=-1)

    store.changes.serve()

    assert "deadline" in answer_to(fs, request_id).reason
    assert values(store) == []
    assert names(fs) == []  # its files are gone too


def test_names_that_are_not_of_the_inbox_are_left_alone(
    fs: SimulatedFileSystem, store: Store
) -> None:
    change = CommitGroup(group="g", offsets={})
    content = render_request(
        ChangeRequest(change=change, submitted_ms=TimestampMs(0), deadline_ms=TimestampMs(2**62))
    )
    put(fs, "..request", content)
    put(fs, "x.request", content)
    put(fs, f"{'A' * 32}.request", content)

    assert store.changes.serve() == 0
    store.changes.sweep()

    assert len(names(fs)) == 3


# --- groups --------------------------------------------------------------------------------------


def test_offsets_of_a_group_are_committed(fs: SimulatedFileSystem, store: Store) -> None:
    offsets = {("orders", 0): (7, "at seven"), ("orders", 1): (9, "")}
    request_id = submit(fs, CommitGroup(group="billing", offsets=offsets))

    store.changes.serve()

    assert answer_to(fs, request_id).outcome == "done"
    assert store.group("billing").committed() == {("orders", 0): 7, ("orders", 1): 9}


class NotedGroupChanges:
    """A coordinator that only notes what it is asked."""

    def __init__(self) -> None:
        self.commits: list[CommitGroup] = []

    def commit(self, change: CommitGroup) -> None:
        self.commits.append(change)

    def forget(self, change: ForgetGroup) -> None:
        raise AssertionError(change)


def test_a_coordinator_of_groups_commits_in_its_own_way(
    fs: SimulatedFileSystem, store: Store
) -> None:
    coordinator = NotedGroupChanges()
    store.changes.coordinate_groups(coordinator)
    submit(fs, CommitGroup(group="billing", offsets={("orders", 0): (7, "")}))

    store.changes.serve()

    assert [change.group for change in coordinator.commits] == ["billing"]
    assert store.groups() == []


def test_without_a_coordinator_groups_are_changed_directly_again(
    fs: SimulatedFileSystem, store: Store
) -> None:
    store.changes.coordinate_groups(NotedGroupChanges())
    store.changes.coordinate_groups(None)
    submit(fs, CommitGroup(group="billing", offsets={("orders", 0): (7, "")}))

    store.changes.serve()

    assert store.groups() == ["billing"]


# --- the housekeeping ----------------------------------------------------------------------------


def test_one_pass_of_the_housekeeping_serves_the_inbox(
    fs: SimulatedFileSystem, store: Store
) -> None:
    request_id = submit(fs, publish(0, stage(fs, ("orders", 0, b"1"))))

    store.maintain()

    assert answer_to(fs, request_id).outcome == "done"


def test_leftovers_are_removed_once_they_are_a_day_old(
    fs: SimulatedFileSystem, store: Store
) -> None:
    abandoned = stage(fs, ("orders", 0, b"1"))
    put(fs, f"{'1' * 32}.answer", b"{}")
    clock = fs.clock
    assert isinstance(clock, ManualClock)

    clock.advance(LEFTOVER_MS - 1)
    store.maintain()
    young = stage(fs, ("orders", 0, b"2"))
    kept = names(fs)
    clock.advance(1)
    store.maintain()

    assert set(kept) == {abandoned.staging_id, f"{'1' * 32}.answer", young.staging_id}
    assert names(fs) == [young.staging_id]

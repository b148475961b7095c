"""Upkeep asked of a store whoever holds it: rolled, compacted, archived, copied, restored."""

import errno
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import ChangeRefusedError, FormatError
from cordwood.library import open_writer, request_change
from cordwood.log.compaction.cleaner import CleanerConfig
from cordwood.log.inbox.change_inbox import ChangeInbox, new_request_id
from cordwood.log.inbox.store_change import (
    ChangeRequest,
    CommitGroup,
    StoreChange,
    kind_of,
    parse_request,
    render_request,
)
from cordwood.log.inbox.upkeep_change import (
    ArchiveTopics,
    CompactTopic,
    RestoreTopic,
    RollTopic,
    SnapshotStore,
)
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.rules.work_progress import WorkDone, WorkProgress
from cordwood.log.store.store import Store
from cordwood.quantities import TimestampMs
from cordwood.storage.files import RealFileSystem

TOPIC_ID = uuid.UUID(int=2**100 + 7)
TIMEOUT_S = 60.0

CHANGES: list[StoreChange] = [
    RollTopic(topic="orders", topic_id=TOPIC_ID),
    RollTopic(topic="orders", topic_id=TOPIC_ID, partitions=(0, 2)),
    CompactTopic(topic="orders", topic_id=TOPIC_ID),
    CompactTopic(topic="orders", topic_id=TOPIC_ID, partitions=(1,), force=False),
    ArchiveTopics(),
    ArchiveTopics(topics=("orders", "payments")),
    SnapshotStore(path="/srv/copy"),
    RestoreTopic(topic="orders", url="file:///srv/archive"),
    RestoreTopic(
        topic="orders",
        url="s3://bucket/prefix",
        to_timestamp_ms=5,
        archived_id=TOPIC_ID,
        new_name="orders-then",
        config={"retention.ms": "1d"},
    ),
]


@pytest.mark.parametrize("change", CHANGES, ids=kind_of)
def test_a_change_survives_the_way_through_the_inbox(change: StoreChange) -> None:
    request = ChangeRequest(change=change, deadline_ms=TimestampMs(5))

    assert parse_request(render_request(request)) == request


ROLL: dict[str, object] = {"topic": "a", "topic_id": "AAAAEAAAAAAAAAAAAAAABw", "partitions": None}
RESTORE: dict[str, object] = {
    "topic": "a",
    "url": "file:///a",
    "to_timestamp_ms": None,
    "archived_id": None,
    "new_name": None,
    "config": {},
}


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("roll", {**ROLL, "topic": "a/b"}, "a/b"),
        ("roll", {**ROLL, "topic_id": "?"}, "not a request"),
        ("roll", {**ROLL, "partitions": []}, "not a list of partitions"),
        ("roll", {**ROLL, "partitions": "0"}, "not a list of partitions"),
        ("roll", {**ROLL, "partitions": [0] * 10_001}, "not a list of partitions"),
        ("roll", {**ROLL, "partitions": [-1]}, "-1"),
        ("compact", {**ROLL, "force": 1}, "not true or false"),
        ("compact", ROLL, "force"),
        ("archive", {"topics": []}, "not a list of topics"),
        ("archive", {"topics": ["a/b"]}, "a/b"),
        ("snapshot", {"path": "copy"}, "not an absolute path"),
        ("snapshot", {"path": "/srv/../etc"}, "not an absolute path"),
        ("snapshot", {"path": "/srv/co\0py"}, "not an absolute path"),
        ("snapshot", {"path": "/" + "x" * 5000}, "at most 4096"),
        ("restore", {**RESTORE, "to_timestamp_ms": -1}, "-1"),
        ("restore", {**RESTORE, "new_name": ".."}, "not a request"),
        ("restore", {**RESTORE, "config": {"retention.ms": None}}, "go back to"),
        ("restore", {**RESTORE, "url": "x" * 10_000}, "at most 8192"),
        ("format-the-disk", {}, "none of"),
    ],
)
def test_what_is_no_request_is_refused_with_the_reason(
    kind: str, body: dict[str, object], message: str
) -> None:
    content = json.dumps({"version": 1, "kind": kind, "deadline_ms": 5, **body}).encode()

    with pytest.raises(FormatError, match=message):
        parse_request(content)


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


def topic_id(path: Path, topic: str) -> uuid.UUID:
    with read_only(path) as store:
        return store.topic(topic).topic_id


def values(path: Path, topic: str) -> list[bytes | None]:
    with read_only(path) as store:
        return [record.value for record in store.topic(topic).partition(0).read()]


def test_active_segments_are_sealed(path: Path) -> None:
    change = RollTopic(topic="orders", topic_id=topic_id(path, "orders"))

    answer = request_change(path, change)

    full, empty = answer.facts["partitions"]
    assert (full["is_rolled"], full["sealed_offset"], full["records"]) == (True, 20, 10)
    assert (empty["is_rolled"], empty["active_offset"]) == (False, 0)
    with read_only(path) as store:
        assert store.topic("orders").partition(0).segments()[-1].base_offset == 30


def test_a_topic_is_compacted_though_all_of_it_is_active(path: Path) -> None:
    change = CompactTopic(topic="accounts", topic_id=topic_id(path, "accounts"))

    [row] = request_change(path, change).facts["partitions"]

    assert (row["outcome"], row["records_read"], row["records_removed"]) == ("done", 30, 27)
    assert row["bytes_after"] < row["bytes_before"]
    assert values(path, "accounts") == [b"27", b"28", b"29"]


def test_what_is_not_due_is_left_alone_with_the_reason(path: Path) -> None:
    change = CompactTopic(
        topic="accounts", topic_id=topic_id(path, "accounts"), partitions=(0,), force=False
    )

    [row] = request_change(path, change).facts["partitions"]

    assert row["outcome"] == "nothing to do"
    assert "active segment" in row["reason"]
    assert len(values(path, "accounts")) == 30


def test_what_is_due_is_archived(path: Path) -> None:
    full, empty = request_change(path, ArchiveTopics(topics=("orders",))).facts["partitions"]

    assert (full["archived_up_to"], full["copied_segments"], full["lag_records"]) == (20, 2, 10)
    assert (full["last_error"], full["lag_segments"]) == (None, 0)
    assert empty["archived_up_to"] == empty["copied_segments"] == 0
    again, _ = request_change(path, ArchiveTopics()).facts["partitions"]
    assert (again["archived_up_to"], again["copied_segments"]) == (20, 0)


def test_the_store_is_copied(path: Path, tmp_path: Path) -> None:
    seen: list[WorkDone] = []

    answer = request_change(
        path, SnapshotStore(path=str(tmp_path / "copy")), on_progress=seen.append
    )

    assert answer.facts["partitions"] == 3
    assert answer.facts["linked_bytes"] + answer.facts["copied_bytes"] > 0
    assert values(tmp_path / "copy", "orders") == values(path, "orders")


def test_a_topic_is_restored_beside_itself(path: Path, tmp_path: Path) -> None:
    request_change(path, ArchiveTopics())
    url = (tmp_path / "archive").as_uri()

    answer = request_change(path, RestoreTopic(topic="orders", url=url, new_name="orders-then"))

    assert answer.facts["topic"] == "orders-then"
    assert [row["end_offset"] for row in answer.facts["partitions"]] == [20, 0]
    assert values(path, "orders-then") == values(path, "orders")[:20]
    with read_only(path) as store:
        assert store.topic("orders-then").topic_id != store.topic("orders").topic_id
        assert store.topic("orders-then").config.archive_url is None
        assert store.topic("orders").config.archive_url == url


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (RollTopic(topic="none", topic_id=TOPIC_ID), "no topic named 'none'"),
        (RollTopic(topic="orders", topic_id=TOPIC_ID), "created again"),
        (CompactTopic(topic="none", topic_id=TOPIC_ID), "no topic named 'none'"),
        (CompactTopic(topic="accounts", topic_id=TOPIC_ID), "created again"),
        (ArchiveTopics(topics=("none",)), "no topic named 'none'"),
        (ArchiveTopics(topics=("accounts",)), "no archive: set its archive.url"),
        (RestoreTopic(topic="orders", url="file:///nowhere"), "no topic named 'orders'"),
        (RestoreTopic(topic="orders", url="nowhere"), "archive.url"),
    ],
    ids=lambda value: kind_of(value) if not isinstance(value, str) else value,
)
def test_a_change_that_cannot_be_is_refused_with_the_reason(
    path: Path, change: StoreChange, reason: str
) -> None:
    with pytest.raises(ChangeRefusedError, match=reason):
        request_change(path, change)


def test_unknown_partitions_and_wrong_policies_are_refused(path: Path, tmp_path: Path) -> None:
    orders = topic_id(path, "orders")

    with pytest.raises(ChangeRefusedError, match="not 7"):
        request_change(path, RollTopic(topic="orders", topic_id=orders, partitions=(0, 7)))
    with pytest.raises(ChangeRefusedError, match=r"set cleanup\.policy=compact"):
        request_change(path, CompactTopic(topic="orders", topic_id=orders))
    with pytest.raises(ChangeRefusedError, match="must not exist yet"):
        request_change(path, SnapshotStore(path=str(tmp_path)))
    with pytest.raises(ChangeRefusedError, match="must not lie within"):
        request_change(path, SnapshotStore(path=str(path / "copy")))


def test_keys_that_do_not_fit_the_map_at_once_take_several_rounds(tmp_path: Path) -> None:
    cleaner = CleanerConfig(dedupe_buffer_size=4096)
    with open_writer([str(tmp_path)], defaults=TopicConfig(), cleaner=cleaner) as store:
        topic = store.create_topic("accounts", config={"cleanup.policy": "compact"})
        topic.append_many([(b"k%d" % (n % 1000), b"%d" % n) for n in range(3000)])

        change = CompactTopic(topic="accounts", topic_id=topic.topic_id)
        [row] = request_change(tmp_path, change).facts["partitions"]

        [cleaning] = store.cleaner.status()
    assert cleaning.runs > 1
    assert (row["outcome"], row["cleaned_up_to"]) == ("done", 3000)
    assert values(tmp_path, "accounts") == [b"%d" % n for n in range(2000, 3000)]


def test_a_log_that_is_being_compacted_by_another_is_left_alone(tmp_path: Path) -> None:
    with filled(tmp_path / "data", archive=(tmp_path / "archive").as_uri()) as store:
        topic = store.topic("accounts")
        change = CompactTopic(topic="accounts", topic_id=topic.topic_id)

        with topic.partition(0).compaction.lock:
            [row] = request_change(tmp_path / "data", change).facts["partitions"]

    assert (row["outcome"], row["records_removed"]) == ("left alone", 0)
    assert "another compaction" in row["reason"]


# --- long work -----------------------------------------------------------------------------------


@contextmanager
def slow_snapshot(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While the block runs, a copy of `store` does not end; the event is set once it began."""
    began, may_end = threading.Event(), threading.Event()
    snapshot = Store.snapshot

    def slowly(self: Store, path: str, *, progress: WorkProgress) -> object:
        progress.expect(100)
        progress.add(40)
        began.set()
        assert may_end.wait(TIMEOUT_S)
        return snapshot(self, path, progress=progress)

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
        inbox.submit(request_id, ChangeRequest(change=change, deadline_ms=deadline_ms))
        assert began.wait(TIMEOUT_S)
        closer.start()
        while not store.is_closed:
            closer.join(0.01)
    closer.join(TIMEOUT_S)
    assert inbox.take_answer(request_id) is None
    assert not (tmp_path / "copy").exists()

    with cordwood.open(path) as again:
        again.serve_changes()

        answer = inbox.take_answer(request_id)
    assert answer is not None
    assert answer.outcome == "done"
    assert values(tmp_path / "copy", "orders") == [b"x" * 10] * 30


def test_an_owner_killed_in_mid_change_leaves_it_to_who_asks(tmp_path: Path) -> None:
    path = tmp_path / "data"
    filled(path, archive=(tmp_path / "archive").as_uri()).abandon()
    inbox = ChangeInbox(RealFileSystem(), str(path))
    request_id = new_request_id()
    change = SnapshotStore(path=str(tmp_path / "copy"))
    inbox.submit(request_id, ChangeRequest(change=change, deadline_ms=TimestampMs(2**60)))
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
        inbox.submit(request_id, ChangeRequest(change=change, deadline_ms=TimestampMs(2**60)))

        store.serve_changes()

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
                    request_id, ChangeRequest(change=change, deadline_ms=TimestampMs(2**60))
                )
            store.changes.serve(wait=False)
            refused = [a for a in map(inbox.take_answer, ids) if a is not None]
        store.serve_changes()
        others = [a for a in map(inbox.take_answer, ids) if a is not None]

    assert [answer.outcome for answer in refused] == ["refused"]
    assert "ask again later" in refused[0].reason
    assert [answer.outcome for answer in others] == ["done"] * 16
    assert list(Path(inbox.directory).iterdir()) == []

"""Requested upkeep: values and their text."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import FormatError
from cordwood.log.inbox.store_change import (
    ChangeRequest,
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
from cordwood.log.store.store import Store
from cordwood.quantities import TimestampMs

TOPIC_ID = uuid.UUID(int=2**100 + 7)


CHANGES: list[StoreChange] = [
    RollTopic(topic="orders", topic_id=TOPIC_ID),
    RollTopic(topic="orders", topic_id=TOPIC_ID, partitions=(0, 2)),
    CompactTopic(topic="orders", topic_id=TOPIC_ID),
    CompactTopic(topic="orders", topic_id=TOPIC_ID, partitions=(1,), force=False),
    ArchiveTopics(),
    ArchiveTopics(topics=("orders", "payments")),
    SnapshotStore(path="/srv/copy"),
    SnapshotStore(path="/srv/copy", include_security=True),
    RestoreTopic(topic="orders", url="file:///srv/archive"),
    RestoreTopic(
        topic="orders",
        url="s3://bucket/prefix",
        to_timestamp_ms=5,
        archived_id=TOPIC_ID,
        new_name="orders-then",
        config={"retention.ms": "1d"},
    ),
    RestoreTopic(topic="orders", url="file:///srv/archive", take_over=True),
]


@pytest.mark.parametrize("change", CHANGES, ids=kind_of)
def test_a_change_survives_the_way_through_the_inbox(change: StoreChange) -> None:
    request = ChangeRequest(change=change, submitted_ms=TimestampMs(0), deadline_ms=TimestampMs(5))

    assert parse_request(render_request(request)) == request


ROLL: dict[str, object] = {"topic": "a", "topic_id": "AAAAEAAAAAAAAAAAAAAABw", "partitions": None}


RESTORE: dict[str, object] = {
    "topic": "a",
    "url": "file:///a",
    "to_timestamp_ms": None,
    "archived_id": None,
    "new_name": None,
    "config": {},
    "take_over": False,
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
        ("restore", {**RESTORE, "config": {"retention.ms": None}}, "no previous value"),
        ("restore", {**RESTORE, "url": "x" * 10_000}, "at most 8192"),
        ("restore", {**RESTORE, "take_over": "yes"}, "not true or false"),
        ("format-the-disk", {}, "unknown kind"),
    ],
)
def test_what_is_no_request_is_refused_with_the_reason(
    kind: str, body: dict[str, object], message: str
) -> None:
    content = json.dumps(
        {"version": 1, "kind": kind, "submitted_ms": 0, "deadline_ms": 5, **body}
    ).encode()

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

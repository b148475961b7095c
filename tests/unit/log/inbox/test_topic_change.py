"""Requested changes of topics and groups: values and their text."""

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
from cordwood.log.inbox.topic_change import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ForgetGroup,
    TrimTopic,
)
from cordwood.quantities import Offset, TimestampMs

TOPIC_ID = uuid.UUID(int=2**100 + 7)


CHANGES: list[StoreChange] = [
    CreateTopic(topic="orders"),
    CreateTopic(topic="orders", partitions=3, config={"retention.ms": "7d"}),
    AlterTopic(topic="orders", config={"retention.ms": None, "segment.bytes": "1048576"}),
    AlterTopic(topic="orders", partitions=9),
    DeleteTopic(topic="orders", topic_id=TOPIC_ID),
    TrimTopic(topic="orders", topic_id=TOPIC_ID, before={0: Offset(5), 2: Offset(0)}),
    ForgetGroup(group="billing"),
    ForgetGroup(group="billing", places=(("orders", 0), ("orders", 1))),
]


@pytest.mark.parametrize("change", CHANGES, ids=kind_of)
def test_a_change_survives_the_way_through_the_inbox(change: StoreChange) -> None:
    request = ChangeRequest(change=change, submitted_ms=TimestampMs(0), deadline_ms=TimestampMs(5))

    assert parse_request(render_request(request)) == request


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("create-topic", {"topic": "a/b", "partitions": 1, "config": {}}, "a/b"),
        ("create-topic", {"topic": "a", "partitions": 10**10, "config": {}}, "2147483647"),
        (
            "create-topic",
            {"topic": "a", "partitions": 1, "config": {"x": None}},
            "no previous value",
        ),
        ("create-topic", {"topic": "a", "partitions": 1, "config": []}, "not a configuration"),
        ("create-topic", {"topic": "a", "config": {}}, "partitions"),
        ("alter-topic", {"topic": "a", "partitions": None, "config": {"x": 5}}, "not a text"),
        ("delete-topic", {"topic": "a", "topic_id": "?"}, "not a request"),
        ("trim-topic", {"topic": "a", "topic_id": "?", "before": []}, "not a request"),
        ("forget-group", {"group": "", "places": None}, "no name"),
        ("forget-group", {"group": "g", "places": [["a"]]}, "not a request"),
        ("forget-group", {"group": "g", "places": [["a", -1]]}, "-1"),
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


@pytest.fixture(params=["nobody holds it", "someone holds it"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A store with a topic of two partitions and a group, and perhaps an owner."""
    store = cordwood.open(tmp_path / "data")
    topic = store.create_topic("orders", partitions=2)
    topic.append_many([(None, b"x")] * 10, partition=0)
    store.group("billing").commit({("orders", 0): 3, ("orders", 1): 0})
    if request.param == "nobody holds it":
        store.close()
    yield tmp_path / "data"
    store.close()


def read_only(path: Path) -> cordwood.ReadOnlyStore:
    return cordwood.open(path, read_only=True)


def topic_id(path: Path, topic: str = "orders") -> uuid.UUID:
    with read_only(path) as store:
        return store.topic(topic).topic_id

"""Changes of topics and groups on request, whether or not the store has an owner."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import ChangeRefusedError
from cordwood.format.small_files.partition_metadata import encode_topic_id
from cordwood.library import request_change
from cordwood.log.inbox.store_change import (
    CommitGroup,
    StoreChange,
    kind_of,
)
from cordwood.log.inbox.topic_change import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ForgetGroup,
    TrimTopic,
)
from cordwood.quantities import Offset

TOPIC_ID = uuid.UUID(int=2**100 + 7)


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


def test_a_topic_is_created_altered_and_deleted(path: Path) -> None:
    config = {"retention.ms": "7d", "segment.bytes": "2MiB"}
    created = request_change(path, CreateTopic(topic="new", partitions=2, config=config))
    assert created.facts == {"topic_id": encode_topic_id(topic_id(path, "new")), "partitions": 2}

    request_change(path, AlterTopic(topic="new", config={"retention.ms": None}, partitions=3))
    with read_only(path) as store:
        altered = store.topic("new")
        assert altered.partition_count == 3
        assert altered.config.segment_bytes == 2 * 1024**2

    request_change(path, DeleteTopic(topic="new", topic_id=topic_id(path, "new")))
    with read_only(path) as store:
        assert store.topics() == ["orders"]


def test_a_topic_is_trimmed(path: Path) -> None:
    change = TrimTopic(topic="orders", topic_id=topic_id(path), before={0: Offset(4), 1: Offset(0)})

    answer = request_change(path, change)

    assert answer.facts == {"starts": [[0, 4], [1, 0]]}
    with read_only(path) as store:
        assert [log.start_offset for log in store.topic("orders").partitions] == [4, 0]


def test_one_wrong_offset_deletes_nothing_at_all(path: Path) -> None:
    before = {0: Offset(4), 1: Offset(1)}

    with pytest.raises(ChangeRefusedError, match="offset 1 is out of range"):
        request_change(path, TrimTopic(topic="orders", topic_id=topic_id(path), before=before))

    with read_only(path) as store:
        assert [log.start_offset for log in store.topic("orders").partitions] == [0, 0]


def test_a_compacted_topic_is_not_trimmed(path: Path) -> None:
    request_change(path, AlterTopic(topic="orders", config={"cleanup.policy": "compact"}))

    with pytest.raises(ChangeRefusedError, match="append tombstones"):
        request_change(path, TrimTopic(topic="orders", topic_id=topic_id(path), before={}))


def test_a_group_is_forgotten_in_part_and_then_whole(path: Path) -> None:
    request_change(path, ForgetGroup(group="billing", places=(("orders", 1),)))
    with read_only(path) as store:
        assert store.group("billing").committed() == {("orders", 0): 3}

    request_change(path, ForgetGroup(group="billing", places=()))
    request_change(path, ForgetGroup(group="billing"))

    with read_only(path) as store:
        assert store.groups() == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (CreateTopic(topic="orders"), "already exists"),
        (CreateTopic(topic="__consumer_offsets"), "internal"),
        (CreateTopic(topic="new", config={"retention.sm": "1"}), "retention.sm"),
        (AlterTopic(topic="none"), "no topic named 'none'"),
        (AlterTopic(topic="orders", partitions=1), "must be at least 2"),
        (DeleteTopic(topic="none", topic_id=TOPIC_ID), "no topic named 'none'"),
        (DeleteTopic(topic="orders", topic_id=TOPIC_ID), "created again"),
        (DeleteTopic(topic="__consumer_offsets", topic_id=TOPIC_ID), "internal"),
        (TrimTopic(topic="orders", topic_id=TOPIC_ID, before={}), "created again"),
        (TrimTopic(topic="__consumer_offsets", topic_id=TOPIC_ID, before={}), "internal"),
    ],
    ids=lambda value: kind_of(value) if not isinstance(value, str) else value,
)
def test_a_change_that_cannot_be_is_refused_with_the_reason(
    path: Path, change: StoreChange, reason: str
) -> None:
    with pytest.raises(ChangeRefusedError, match=reason):
        request_change(path, change)

    with read_only(path) as store:
        assert store.topics() == ["orders"]


def test_offsets_are_committed_for_whoever_asks(path: Path) -> None:
    request_change(path, CommitGroup(group="billing", offsets={("orders", 0): (7, "by hand")}))

    with read_only(path) as store:
        assert store.group("billing").committed("orders", 0) == 7

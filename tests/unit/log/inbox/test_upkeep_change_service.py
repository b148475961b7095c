"""Upkeep on request, whether or not the store has an owner."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import ChangeRefusedError
from cordwood.library import open_writer, request_change
from cordwood.log.compaction.cleaner import CleanerConfig
from cordwood.log.inbox.store_change import (
    StoreChange,
    kind_of,
)
from cordwood.log.inbox.upkeep_change import (
    ArchiveTopics,
    CompactTopic,
    RestoreTopic,
    RollTopic,
    SnapshotStore,
)
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.rules.work_progress import WorkDone
from cordwood.log.store.store import Store

TOPIC_ID = uuid.UUID(int=2**100 + 7)


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
        (ArchiveTopics(topics=("accounts",)), "no archive; set its archive.url"),
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

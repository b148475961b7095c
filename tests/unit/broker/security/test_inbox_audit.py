"""Changes that arrive through the inbox are in the audit log, as those of clients are."""

from collections.abc import Iterator

import pytest

from cordwood.broker.security.inbox_audit import INBOX, InboxAudit
from cordwood.broker.security.security_events import AdministrativeChange, SecurityEvent
from cordwood.log.inbox.change_inbox import ChangeInbox, new_request_id
from cordwood.log.inbox.store_change import ChangeRequest, CommitGroup, StoreChange
from cordwood.log.inbox.topic_change import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ForgetGroup,
    TrimTopic,
)
from cordwood.log.inbox.upkeep_change import RestoreTopic, RollTopic, SnapshotStore
from cordwood.log.store.store import Store
from cordwood.quantities import Offset, TimestampMs
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, open_store

HOUR_MS = 3_600_000


class Watched:
    """A store with the topic ``orders``, and what was reported of its changes."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.fs = SimulatedFileSystem(clock=clock)
        self.store: Store = open_store(self.fs, clock=clock)
        self.topic = self.store.create_topic("orders", partitions=2)
        self.topic.append(b"value", partition=0)
        self.events: list[AdministrativeChange] = []
        self.store.changes.watch(InboxAudit(self.store.registry, self))

    def report(self, event: SecurityEvent) -> None:
        assert isinstance(event, AdministrativeChange)
        self.events.append(event)

    def request(self, change: StoreChange) -> None:
        now_ms = self.fs.clock.now_ms()
        ChangeInbox(self.fs, DATA).submit(
            new_request_id(),
            ChangeRequest(
                change=change, submitted_ms=now_ms, deadline_ms=TimestampMs(now_ms + HOUR_MS)
            ),
        )
        self.store.changes.serve()

    def reported(self) -> list[tuple[str, str, str, str]]:
        return [(e.api, e.operation, e.resource, e.name) for e in self.events]


@pytest.fixture
def watched() -> Iterator[Watched]:
    found = Watched()
    yield found
    found.store.close()


def test_topics_are_reported_with_the_values_before_and_after(watched: Watched) -> None:
    watched.request(CreateTopic(topic="new", partitions=3, config={"retention.ms": "1000"}))
    watched.request(AlterTopic(topic="new", config={"retention.ms": "2000"}, partitions=5))
    topic_id = watched.store.topic("new").topic_id
    watched.request(DeleteTopic(topic="new", topic_id=topic_id))

    assert watched.reported() == [
        ("CreateTopics", "CREATE", "TOPIC", "new"),
        ("IncrementalAlterConfigs", "ALTER_CONFIGS", "TOPIC", "new"),
        ("CreatePartitions", "ALTER", "TOPIC", "new"),
        ("DeleteTopics", "DELETE", "TOPIC", "new"),
    ]
    assert {event.origin for event in watched.events} == {INBOX}
    _, altered, grown, deleted = watched.events
    assert (altered.old, altered.new) == ({"retention.ms": "1000"}, {"retention.ms": "2000"})
    assert (grown.old, grown.new) == ({"partitions": 3}, {"partitions": 5})
    assert deleted.old == {"topic_id": str(topic_id), "partitions": 5}


def test_deleted_records_and_groups_are_reported(watched: Watched) -> None:
    topic_id = watched.topic.topic_id
    watched.request(TrimTopic(topic="orders", topic_id=topic_id, before={0: Offset(1)}))
    watched.request(CommitGroup(group="g", offsets={("orders", 0): (1, "")}))
    watched.request(ForgetGroup(group="g", places=(("orders", 0),)))
    watched.request(CommitGroup(group="g", offsets={("orders", 1): (0, "")}))
    watched.request(ForgetGroup(group="g"))

    assert watched.reported() == [
        ("DeleteRecords", "DELETE", "TOPIC", "orders"),
        ("OffsetCommit", "ALTER", "GROUP", "g"),
        ("OffsetDelete", "DELETE", "GROUP", "g"),
        ("OffsetCommit", "ALTER", "GROUP", "g"),
        ("DeleteGroups", "DELETE", "GROUP", "g"),
    ]
    assert watched.events[0].new == {"partition": 0, "log_start_offset": 1}
    assert watched.events[1].new == {"orders-0": 1}


def test_a_copy_with_the_users_is_reported_and_one_without_is_not(watched: Watched) -> None:
    watched.request(SnapshotStore(path="/copies/one"))
    watched.request(SnapshotStore(path="/copies/two", include_security=True))

    assert watched.reported() == [("Snapshot", "COPY", "USER", "*")]
    assert watched.events[0].new == {"path": "/copies/two"}


def test_a_restored_topic_is_reported_without_the_secrets_of_its_address(watched: Watched) -> None:
    change = RestoreTopic(topic="a", new_name="b", url="s3://key:secret@bucket/x?token=y")

    report = InboxAudit(watched.store.registry, watched)(change)

    assert report is not None
    (made,) = InboxAudit(watched.store.registry, watched)._events_of(change)
    assert (made.name, made.new) == ("b", {"restored_from": "s3://bucket/x"})


def test_what_was_refused_or_is_only_upkeep_is_not_reported(watched: Watched) -> None:
    watched.request(CreateTopic(topic="orders"))
    watched.request(AlterTopic(topic="missing", config={"retention.ms": "1"}))
    watched.request(AlterTopic(topic="missing", partitions=3))
    watched.request(RollTopic(topic="orders", topic_id=watched.topic.topic_id))

    assert watched.events == []

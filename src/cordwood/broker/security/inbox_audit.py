"""Changes that other processes request through the inbox of the data directory, for the audit log.

Who can write there owns the files, or is in the group that `log.dir.access` names. Nobody has
proved who it is, so the events name the directory instead. They have the names of the requests that
do the same through the protocol. Users, access rules and quotas cannot be changed that way.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final
from urllib.parse import urlsplit

from cordwood.broker.security.security_events import (
    AdministrativeChange,
    Detail,
    Origin,
    SecurityEvents,
)
from cordwood.errors import LogError
from cordwood.log.inbox.store_change import ChangeAnswer, CommitGroup, PublishBatches, StoreChange
from cordwood.log.inbox.topic_change import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ForgetGroup,
    TrimTopic,
)
from cordwood.log.inbox.upkeep_change import RestoreTopic, SnapshotStore
from cordwood.log.topics.topic_registry import TopicRegistry

INBOX: Final = Origin(principal="data directory", address="", listener="inbox")
_SHOWN_MAX: Final = 100


class InboxAudit:
    """Sees each change before it is made, and reports it once it is. Any thread."""

    def __init__(self, registry: TopicRegistry, events: SecurityEvents) -> None:
        self._registry = registry
        self._events = events

    def __call__(self, change: StoreChange) -> Callable[[ChangeAnswer], None] | None:
        """What reports the change; None: it is none of administration."""
        made = list(self._events_of(change))
        if not made and not isinstance(change, TrimTopic):
            return None

        def report(answer: ChangeAnswer) -> None:
            if isinstance(change, TrimTopic):
                made.extend(_trimmed(change, answer))
            for event in made:
                self._events.report(event)

        return report

    def _events_of(self, change: StoreChange) -> Iterator[AdministrativeChange]:
        match change:
            case CreateTopic(topic=name):
                new: dict[str, Detail] = {
                    "partitions": change.partitions,
                    "configs": dict(change.config),
                }
                yield _event("CreateTopics", "CREATE", "TOPIC", name, new=new)
            case AlterTopic():
                yield from self._altered(change)
            case DeleteTopic(topic=name):
                old: dict[str, Detail] = {"topic_id": str(change.topic_id), **self._size(name)}
                yield _event("DeleteTopics", "DELETE", "TOPIC", name, old=old)
            case PublishBatches():
                for name, partitions in change.topics.items():
                    if self._registry.find(name) is None:
                        created: dict[str, Detail] = {"partitions": partitions}
                        yield _event("CreateTopics", "CREATE", "TOPIC", name, new=created)
            case RestoreTopic():
                restored: dict[str, Detail] = {"restored_from": _without_secrets(change.url)}
                name = change.new_name or change.topic
                yield _event("CreateTopics", "CREATE", "TOPIC", name, new=restored)
            case SnapshotStore(include_security=True):
                yield _event("Snapshot", "COPY", "USER", "*", new={"path": change.path})
            case CommitGroup(group=group):
                yield _event("OffsetCommit", "ALTER", "GROUP", group, new=_offsets(change))
            case ForgetGroup(group=group, places=None):
                yield _event("DeleteGroups", "DELETE", "GROUP", group)
            case ForgetGroup(group=group, places=tuple(places)):
                listed = [f"{topic}-{number}" for topic, number in places[:_SHOWN_MAX]]
                gone: dict[str, Detail] = {"offsets of": listed, "count": len(places)}
                yield _event("OffsetDelete", "DELETE", "GROUP", group, old=gone)

    def _altered(self, change: AlterTopic) -> Iterator[AdministrativeChange]:
        name = change.topic
        if change.config:
            try:
                before = self._registry.overrides(name)
            except LogError:  # there is no such topic: the change will fail
                return
            yield _event(
                "IncrementalAlterConfigs",
                "ALTER_CONFIGS",
                "TOPIC",
                name,
                old={key: before.get(key) for key in change.config},
                new=dict(change.config),
            )
        if change.partitions is not None:
            yield _event(
                "CreatePartitions",
                "ALTER",
                "TOPIC",
                name,
                old=self._size(name),
                new={"partitions": change.partitions},
            )

    def _size(self, name: str) -> dict[str, Detail]:
        topic = self._registry.find(name)
        return {} if topic is None else {"partitions": topic.partition_count}


def _trimmed(change: TrimTopic, answer: ChangeAnswer) -> Iterator[AdministrativeChange]:
    for number, start in answer.facts.get("starts", ()):
        new: dict[str, Detail] = {"partition": number, "log_start_offset": start}
        yield _event("DeleteRecords", "DELETE", "TOPIC", change.topic, new=new)


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _offsets(change: CommitGroup) -> dict[str, Detail]:
    new: dict[str, Detail] = {
        f"{topic}-{partition}": offset
        for (topic, partition), (offset, _) in islice(change.offsets.items(), _SHOWN_MAX)
    }
    if len(change.offsets) > _SHOWN_MAX:
        new["more"] = len(change.offsets) - _SHOWN_MAX
    return new


def _event(
    api: str,
    operation: str,
    resource: str,
    name: str,
    *,
    old: Mapping[str, Detail] | None = None,
    new: Mapping[str, Detail] | None = None,
) -> AdministrativeChange:
    return AdministrativeChange(
        origin=INBOX,
        api=api,
        operation=operation,
        resource=resource,
        name=name,
        old=old or {},
        new=new or {},
    )

"""Keeping the object that describes an archived topic up to date: configuration and groups."""

from collections.abc import Mapping
from uuid import UUID

from cordwood.archive.manifests.manifest import (
    MANIFEST_BYTES_MAX,
    TOPIC_NAME,
    ArchivedTopic,
    GroupMoment,
    GroupOffset,
    parse_topic,
    render_topic,
    topic_prefix,
)
from cordwood.archive.objects.object_store import ObjectStore, get, shown_url
from cordwood.clock import Clock
from cordwood.errors import FormatError, StorageError
from cordwood.log.store.archive_port import ArchivableStore
from cordwood.log.topics.topic import Topic
from cordwood.value_class import replace


def read_topic(objects: ObjectStore, topic: str, topic_id: UUID) -> ArchivedTopic | None:
    """The topic's object; None if there is none. Raises `StorageError` if it is damaged."""
    key = f"{topic_prefix(topic, topic_id)}/{TOPIC_NAME}"
    try:
        return parse_topic(get(objects, key, limit=MANIFEST_BYTES_MAX))
    except FileNotFoundError:
        return None
    except FormatError as error:
        raise StorageError(f"{objects.url}/{key} is damaged: {error.reason}") from error


class TopicKeeper:
    """Remembers what it saved last and puts only changes. For one pass at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._saved: dict[tuple[str, UUID], ArchivedTopic] = {}

    def save(self, store: ArchivableStore, topic: Topic, objects: ObjectStore) -> None:
        """Put the topic's object if its configuration or its groups' offsets changed."""
        key = (objects.url, topic.topic_id)
        old = self._saved.get(key)
        if old is None:
            old = read_topic(objects, topic.name, topic.topic_id)
            if old is not None:
                self._saved[key] = old
        new = self._described(store, topic, old)
        if new != old:
            new = replace(new, generation=new.generation + 1, updated_ms=self._clock.now_ms())
            prefix = topic_prefix(topic.name, topic.topic_id)
            objects.put(f"{prefix}/{TOPIC_NAME}", [render_topic(new)])
            self._saved[key] = new

    def save_for_cluster(
        self, store: ArchivableStore, topic: Topic, objects: ObjectStore, owner: str
    ) -> None:
        """As `save`, for the broker that leads partition 0. It looks at the object every time.

        A leader that was deposed may put its own description once more; the next pass of the new
        one corrects it. Offsets of groups are not part of it: other brokers have them.
        """
        old = read_topic(objects, topic.name, topic.topic_id)
        new = self._without_groups(store, topic, old, owner)
        if new != old:
            new = replace(new, generation=new.generation + 1, updated_ms=self._clock.now_ms())
            prefix = topic_prefix(topic.name, topic.topic_id)
            objects.put(f"{prefix}/{TOPIC_NAME}", [render_topic(new)])

    def _described(
        self, store: ArchivableStore, topic: Topic, old: ArchivedTopic | None
    ) -> ArchivedTopic:
        described = self._without_groups(store, topic, old, store.writer_id)
        offsets = _group_offsets(store, topic.name)
        last = described.moments[-1].offsets if described.moments else ()
        if offsets == last:
            return described
        return described.plus(GroupMoment(at_ms=self._clock.now_ms(), offsets=offsets))

    def _without_groups(
        self, store: ArchivableStore, topic: Topic, old: ArchivedTopic | None, owner: str
    ) -> ArchivedTopic:
        """The description with the offsets of groups that it had before."""
        return ArchivedTopic(
            generation=0 if old is None else old.generation,
            topic=topic.name,
            topic_id=topic.topic_id,
            partitions=topic.partition_count,
            owner=owner,
            updated_ms=self._clock.now_ms() if old is None else old.updated_ms,
            config=_shown_config({**topic.config.render(), **store.registry.overrides(topic.name)}),
            moments=() if old is None else old.moments,
        )


def _shown_config(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration without secrets."""
    shown = dict(config)
    if "archive.url" in shown:
        shown["archive.url"] = shown_url(shown["archive.url"])
    return shown


def _group_offsets(store: ArchivableStore, topic: str) -> tuple[GroupOffset, ...]:
    found = [
        GroupOffset(
            group=group,
            partition=partition,
            offset=committed.offset,
            metadata=committed.metadata,
            committed_ms=committed.committed_ms,
        )
        for group in store.groups()
        for (name, partition), committed in store.group(group).details().items()
        if name == topic
    ]
    found.sort(key=lambda offset: (offset.group, offset.partition))
    return tuple(found)

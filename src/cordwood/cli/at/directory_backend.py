"""A data directory as a target: read without a lock, changed through its owner.

Reading works next to a live writer, and on a directory that Kafka wrote. If no process owns the
store, this process makes a change itself; otherwise it sends a request to the owner's inbox.
"""

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cordwood.archive.archives_on_demand import ArchivesOnDemand
from cordwood.cli.at.backend import (
    Appender,
    CommittedFacts,
    ConfigFact,
    GroupFacts,
    PartitionFacts,
    Place,
    TopicFacts,
)
from cordwood.cli.at.directory_reader import DirectoryReader
from cordwood.cli.at.store_directories import check_is_store
from cordwood.cli.at.target import DirectoryTarget
from cordwood.cli.failures import UsageError
from cordwood.clock import SystemClock
from cordwood.errors import (
    ChangeRefusedError,
    TopicExistsError,
    UnknownTopicError,
)
from cordwood.format.file_names import INTERNAL_TOPICS, check_topic_name
from cordwood.format.small_files.partition_metadata import encode_topic_id
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.cluster_mark import CLUSTER_MARK
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.topics.topic import Topic
from cordwood.quantities import Offset
from cordwood.storage.files import RealFileSystem

if TYPE_CHECKING:
    from cordwood.log.inbox.store_change import ChangeAnswer, StoreChange


class DirectoryBackend:
    """Implements `Backend`. For one thread."""

    def __init__(self, target: DirectoryTarget) -> None:
        self._paths = target.paths
        self._opened: dict[str | None, ReadOnlyStore] = {}
        self._defaults: TopicConfig | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        while self._opened:
            self._opened.popitem()[1].close()

    def _store(self, topic: str | None = None, *, may_be_new: bool = False) -> ReadOnlyStore:
        """Open the store for reading: all topics, or only one, which is faster."""
        known = self._opened.get(topic)
        if known is None:
            if not may_be_new:
                check_is_store(self._paths)
            fs, clock = RealFileSystem(), SystemClock()
            known = self._opened[topic] = ReadOnlyStore(
                self._paths,
                fs=fs,
                clock=clock,
                defaults=self._defaults or TopicConfig(),
                archives=ArchivesOnDemand(fs, clock),
                wants=None if topic is None else lambda name, number: name == topic,
            )
        return known

    # --- topics ------------------------------------------------------------------------------

    def topic_names(self, *, include_internal: bool) -> list[str]:
        return self._store().topics(include_internal=include_internal)

    def topics(self, *, include_internal: bool) -> list[TopicFacts]:
        store = self._store()
        return [
            self._facts(store, name) for name in store.topics(include_internal=include_internal)
        ]

    def topic(self, name: str) -> TopicFacts:
        """A topic, with the defaults that `cordwood serve` would give it."""
        if self._defaults is None:
            self._defaults = _configured_defaults()
            self.close()
        return self._facts(self._store(name), name)

    def _facts(self, store: ReadOnlyStore, name: str) -> TopicFacts:
        topic = store.topic(name)
        overrides = store.topic_overrides(name)
        standard = TopicConfig().effective()
        return TopicFacts(
            name=name,
            topic_id=encode_topic_id(topic.topic_id),
            is_internal=name in INTERNAL_TOPICS,
            partitions=tuple(_partition(topic, n) for n in range(topic.partition_count)),
            config={
                key: ConfigFact(
                    value=value,
                    source="topic"
                    if key in overrides
                    else "default"
                    if standard.get(key) == value
                    else "broker",
                )
                for key, value in topic.config.effective().items()
            },
        )

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None,
        config: Mapping[str, str],
        replicas: int | None = None,
    ) -> int:
        if replicas not in (None, -1, 1):
            raise UsageError(
                f"--replication-factor {replicas}: a data directory has one replica of each "
                "partition; create the topic at a broker of a cluster"
            )
        from cordwood.log.inbox.topic_change import CreateTopic

        check_topic_name(name)
        TopicConfig.parse(config)
        self._make_directories()
        if name in self._store(name, may_be_new=True).topics(include_internal=True):
            raise TopicExistsError(name)
        answer = self._ask(CreateTopic(topic=name, partitions=partitions or 1, config=config))
        return int(answer.facts["partitions"])

    def _make_directories(self) -> None:
        fs = RealFileSystem()
        for path in self._paths:
            if not fs.exists(path):
                fs.make_directory(path)

    def alter_topic(
        self, name: str, *, partitions: int | None, config: Mapping[str, str | None]
    ) -> None:
        from cordwood.log.inbox.topic_change import AlterTopic

        self._store(name).topic(name)
        self._ask(AlterTopic(topic=name, config=config, partitions=partitions))

    def delete_topic(self, name: str) -> None:
        from cordwood.log.inbox.topic_change import DeleteTopic

        topic_id = self._store(name).topic(name).topic_id
        self._ask(DeleteTopic(topic=name, topic_id=topic_id))

    def trim_topic(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        from cordwood.log.inbox.topic_change import TrimTopic

        topic_id = self._store(name).topic(name).topic_id
        offsets = {number: Offset(offset) for number, offset in before.items()}
        answer = self._ask(TrimTopic(topic=name, topic_id=topic_id, before=offsets))
        return dict(answer.facts["starts"])

    def _ask(self, change: "StoreChange") -> "ChangeAnswer":
        from cordwood.cli.at.owner_changes import refused
        from cordwood.library import request_change

        refuse_member(self._paths)
        self.close()  # facts read before the change are outdated after it
        try:
            return request_change(self._paths[0], change, data_dirs=self._paths[1:])
        except ChangeRefusedError as error:
            raise refused(error) from error

    # --- records -----------------------------------------------------------------------------

    def reader(self, topic: str, partitions: Sequence[int] | None = None) -> DirectoryReader:
        return DirectoryReader(self._store(topic), topic, partitions)

    def appender(self, topic: str) -> Appender:
        from cordwood.cli.at.directory_appender import InboxAppender, OwnerAppender, open_owned

        described = self._store(topic).topic(topic)  # fails before anything is locked
        owned = open_owned(self._paths, _configured_defaults())
        if owned is None:
            return InboxAppender(self._paths, described)
        try:
            return OwnerAppender(owned, topic)
        except BaseException:
            owned.close()
            raise

    # --- groups ------------------------------------------------------------------------------

    def groups(self) -> list[GroupFacts]:
        return [self._group_facts(name) for name in self._store().groups()]

    def group(self, name: str) -> GroupFacts | None:
        found = self._group_facts(name)
        return found if found.committed else None

    def _group_facts(self, name: str) -> GroupFacts:
        store = self._store()
        return GroupFacts(
            name=name,
            kind=None,
            state=None,
            assignor=None,
            members=None,
            committed=tuple(
                _committed(store, place, committed.offset, committed.metadata)
                for place, committed in sorted(store.group(name).details().items())
            ),
        )

    def commit(self, group: str, offsets: Mapping[Place, int]) -> None:
        from cordwood.log.inbox.store_change import CommitGroup

        committed = {place: (offset, "") for place, offset in offsets.items()}
        self._ask(CommitGroup(group=group, offsets=committed))

    def delete_group(self, name: str) -> None:
        from cordwood.log.inbox.topic_change import ForgetGroup

        self._ask(ForgetGroup(group=name))


def refuse_member(paths: Sequence[str]) -> None:
    """Raise `UsageError` for directories that a broker of a cluster writes."""
    for path in paths:
        if os.path.exists(os.path.join(path, CLUSTER_MARK)):
            raise UsageError(
                f"{path} belongs to a broker of a cluster: a change there would be on this replica "
                "alone. Pass --at HOST:PORT of one of the brokers of the cluster"
            )


def _configured_defaults() -> TopicConfig:
    from cordwood.settings import load_settings

    return load_settings().topic_defaults


def _partition(topic: Topic[ReadOnlyLog], number: int) -> PartitionFacts:
    if not topic.is_here(number) and not topic.has_partition(number):
        return PartitionFacts(
            partition=number,
            start_offset=None,
            end_offset=None,
            size_bytes=None,
            is_elsewhere=True,
        )
    if not topic.has_partition(number):
        return PartitionFacts(
            partition=number,
            start_offset=None,
            end_offset=None,
            size_bytes=None,
            problem="its files are missing from the data directories",
        )
    log = topic.partition(number)
    view = log.view()
    return PartitionFacts(
        partition=number,
        start_offset=view.start,
        end_offset=view.high_watermark,
        size_bytes=sum(segment.size for segment in view.segments if not segment.is_archived),
        has_gaps=log.source.allows_gaps,
    )


def _committed(store: ReadOnlyStore, place: Place, offset: int, metadata: str) -> CommittedFacts:
    topic, number = place
    start = end = None
    try:
        found = store.topic(topic)
    except UnknownTopicError:
        found = None
    if found is not None and found.has_partition(number):
        view = found.partition(number).view()
        start, end = int(view.start), int(view.high_watermark)
    return CommittedFacts(
        topic=topic,
        partition=number,
        offset=offset,
        metadata=metadata,
        start_offset=start,
        end_offset=end,
    )

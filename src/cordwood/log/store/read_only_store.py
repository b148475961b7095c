"""A store opened for reading: beside its live writer, or a data directory that Kafka wrote.

It takes no lock and writes nothing. Topics that appear later are found on demand.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cordwood.clock import Clock
from cordwood.errors import FormatError, ReadOnlyError
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.reading.archived_segments import ArchiveStatus, cluster_owner
from cordwood.log.rules.compaction_plan import CompactionPlan
from cordwood.log.rules.lifetime import Lifetime
from cordwood.log.rules.retention import RetentionPlan
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.archive_port import ReadableArchives
from cordwood.log.store.cluster_mark import CLUSTER_MARK
from cordwood.log.store.observed_topics import ObservedTopics
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.log.topics.group import Group, checked_group
from cordwood.log.topics.log_directory import read_meta_properties
from cordwood.log.topics.topic import Topic
from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem
from cordwood.storage.recovery import Damage

if TYPE_CHECKING:
    from cordwood.log.compaction.compaction_forecast import CompactionForecast


class _OffsetsTopic:
    """The offsets topic, which a reader cannot create."""

    def __init__(self, topics: ObservedTopics) -> None:
        self._topics = topics

    def find(self) -> Topic[ReadOnlyLog] | None:
        return self._topics.find(CONSUMER_OFFSETS_TOPIC)

    def ensure(self) -> Topic[ReadOnlyLog]:
        raise ReadOnlyError("commit offsets")


class ReadOnlyStore:
    """The topics found in the data directories. Any thread may use it."""

    def __init__(
        self,
        directories: Sequence[str],
        *,
        fs: FileSystem,
        clock: Clock,
        defaults: TopicConfig,
        archives: ReadableArchives | None = None,
        wants: Callable[[str, int], bool] | None = None,
    ) -> None:
        """`wants` selects partitions by topic and number: a large store then opens faster."""
        self.data_dirs = [os.path.abspath(path) for path in directories]
        self.path = self.data_dirs[0]
        self._fs = fs
        self._clock = clock
        self._archives = archives
        self._lifetime = Lifetime(f"the store in {self.path}")
        self._topics = ObservedTopics(
            self.data_dirs,
            fs=fs,
            defaults=defaults,
            find_archive=None if archives is None else archives.source,
            wants=wants,
        )
        self._offsets = CommittedOffsets(_OffsetsTopic(self._topics), clock)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"topics={len(self.topics())}"
        return f"ReadOnlyStore({self.path!r}, {state})"

    # --- topics ------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Topic[ReadOnlyLog]:
        """The topic of that name. Raises `UnknownTopicError`, which is a `KeyError`."""
        return self.topic(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.topics(include_internal=True)

    def __iter__(self) -> Iterator[str]:
        """The names of all topics, in order."""
        return iter(self.topics())

    def topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, in order, as they are now."""
        self._lifetime.check_open()
        return self._topics.names(include_internal=include_internal)

    def topic(self, name: str) -> Topic[ReadOnlyLog]:
        """The topic of that name. Raises `UnknownTopicError`."""
        self._lifetime.check_open()
        return self._topics.get(name)

    def topic_overrides(self, name: str) -> dict[str, str]:
        """The keys that were set for a topic, as text; empty without a catalog of ours."""
        self._lifetime.check_open()
        return self._topics.overrides(name)

    def topic_config(self, name: str) -> TopicConfig:
        """The configuration of a topic now: it may have changed since the topic was opened."""
        self._lifetime.check_open()
        return self._topics.newest_config(name)

    def cleaned_up_to(self, log: ReadOnlyLog) -> Offset | None:
        """How far the owner has compacted a log; None if it never has."""
        self._lifetime.check_open()
        return self._topics.cleaned_up_to(log)

    def damages(self) -> list[Damage]:
        """Segments that are missing or end too early, as far as the files show it now.

        Reads a few kilobytes of each sealed segment. `verify` reads all of them.
        """
        self._lifetime.check_open()
        return [damage for log in self._topics.logs() for damage in log.find_damages()]

    # --- plans of the owner ------------------------------------------------------------------

    def explain_retention(self, topic: str) -> list[RetentionPlan]:
        """For each partition, what retention would do now and why: the plan the owner runs."""
        now_ms = self._clock.now_ms()
        logs = self.topic(topic).partitions
        config = self._topics.newest_config(topic)
        return [log.upkeep.plan_retention(config, now_ms) for log in logs]

    def explain_compaction(self, topic: str, *, force: bool = False) -> list[CompactionPlan]:
        """For each partition, what compaction would do now, or why it would do nothing."""
        now_ms = self._clock.now_ms()
        logs = self.topic(topic).partitions
        config = self._topics.newest_config(topic)
        return [
            log.upkeep.plan_compaction(
                config, now_ms, cleaned_up_to=self._topics.cleaned_up_to(log), force=force
            )
            for log in logs
        ]

    def forecast_compaction(
        self, plan: CompactionPlan, *, pace: Callable[[int], None]
    ) -> "CompactionForecast":
        """What `plan` would save. Reads the whole log; `pace` gets the bytes read."""
        log = self.topic(plan.topic).partition(plan.partition)
        config = self._topics.newest_config(plan.topic)
        return log.upkeep.forecast_compaction(config, plan, self._clock.now_ms(), pace=pace)

    def archive_status(self) -> list[ArchiveStatus]:
        """How far the archive of each partition is, and why it cannot go on.

        Asks every archive, and compares its owner with this store. Failures that only the owner
        of the store meets are not known here.
        """
        self._lifetime.check_open()
        if self._archives is None:
            return []
        try:
            meta = read_meta_properties(self._fs, self.path)
            writer_id = meta.writer_id
            if self._fs.exists(os.path.join(self.path, CLUSTER_MARK)):
                writer_id = cluster_owner(meta.cluster_id or "")
        except (FileNotFoundError, FormatError):
            writer_id = None  # written by an old Kafka, which had no archives of ours
        return self._archives.status(self, checked_for=writer_id)

    # --- groups ------------------------------------------------------------------------------

    def group(self, name: str) -> Group:
        """A consumer group's committed offsets, as far as its writer has committed them."""
        self._lifetime.check_open()
        return Group(checked_group(name), self._offsets, self._lifetime)

    def groups(self) -> list[str]:
        """The names of all groups that have committed offsets."""
        self._lifetime.check_open()
        return self._offsets.groups()

    # --- refused -----------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        exist_ok: bool = False,
    ) -> Topic[ReadOnlyLog]:
        """Return the topic with `exist_ok` if it exists. Else raise `ReadOnlyError`."""
        self._lifetime.check_open()
        if exist_ok and name in self:
            return self.topic(name)
        raise ReadOnlyError(f"create topic {name!r}")

    def alter_topic(
        self,
        name: str,
        *,
        config: Mapping[str, object | None] | None = None,
        partitions: int | None = None,
    ) -> Topic[ReadOnlyLog]:
        """Raise `ReadOnlyError`."""
        self._lifetime.check_open()
        raise ReadOnlyError(f"alter topic {name!r}")

    def delete_topic(self, name: str) -> None:
        """Raise `ReadOnlyError`."""
        self._lifetime.check_open()
        raise ReadOnlyError(f"delete topic {name!r}")

    def maintain(self) -> None:
        """Raise `ReadOnlyError`."""
        self._lifetime.check_open()
        raise ReadOnlyError("maintain the store")

    # --- closing -----------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """True from the start of `close` on."""
        return self._lifetime.is_closing

    def close(self) -> None:
        """Release all files. Safe to repeat."""
        self._lifetime.end()
        if self._archives is not None:
            self._archives.close()
        self._topics.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

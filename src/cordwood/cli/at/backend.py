"""The interface of a target, a directory or a broker, and the facts it returns.

Both kinds of target return the same facts. A fact that a target cannot know is None; for example,
only a broker knows the members of a group.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from cordwood.format.record import Record
from cordwood.remote.record_chunk import RecordChunk
from cordwood.value_class import dataclass

Place = tuple[str, int]  # topic and partition
NewRecord = Record | tuple[bytes | None, bytes | None]  # a record, or its key and value


class Extent(NamedTuple):
    """The readable offsets of a partition, [start, end)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFacts:
    """The brokers of a partition. No `leader`: nobody leads it. `offline` are not alive."""

    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """A partition. If it cannot be read, offsets and size are None and `problem` says why.

    `is_elsewhere`: other brokers of the cluster have it, and this target does not. `has_gaps` says
    that compaction may have removed records, as far as the target knows. `replicas` is None unless
    the target is a cluster.
    """

    partition: int
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None
    problem: str | None = None
    is_elsewhere: bool = False
    has_gaps: bool = False
    replicas: ReplicaFacts | None = None

    @property
    def record_count(self) -> int | None:
        """The number of offsets: an upper bound if compaction left gaps."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFact:
    """The value of a key, and its source: topic, broker or default."""

    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionFacts, ...]
    config: Mapping[str, ConfigFact]

    @property
    def is_record_bound(self) -> bool:
        """Whether the topic may hold fewer records than offsets: compaction leaves gaps."""
        policy = self.config.get("cleanup.policy")
        is_compacted = policy is not None and "compact" in policy.value
        return is_compacted or any(partition.has_gaps for partition in self.partitions)

    @property
    def overrides(self) -> dict[str, str]:
        """The keys set for the topic itself."""
        return {key: fact.value for key, fact in self.config.items() if fact.source == "topic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    member_id: str
    client_id: str
    host: str
    partitions: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFacts:
    """The committed offset of a group. The log's offsets are None if the topic is deleted."""

    topic: str
    partition: int
    offset: int
    metadata: str
    start_offset: int | None
    end_offset: int | None

    @property
    def lag(self) -> int | None:
        return None if self.end_offset is None else max(self.end_offset - self.offset, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A group. Kind, state, assignor and members are None if only its offsets are known."""

    name: str
    kind: str | None
    state: str | None
    assignor: str | None
    members: tuple[MemberFacts, ...] | None
    committed: tuple[CommittedFacts, ...]

    @property
    def lag(self) -> int:
        return sum(place.lag or 0 for place in self.committed)


class AppendedTo(NamedTuple):
    """The offsets that appended records got, [first_offset, next_offset)."""

    partition: int
    first_offset: int
    next_offset: int


class TopicReader(Protocol):
    """Reads a topic, or some of its partitions."""

    topic: str

    @property
    def partitions(self) -> Sequence[int]: ...

    def refresh(self) -> None:
        """Update the list of partitions; `UnknownTopicError` if the topic was deleted."""
        ...

    def extents(self) -> dict[int, Extent]:
        """The readable offsets of each partition, now."""
        ...

    def offsets_at(self, timestamp_ms: int) -> dict[int, int]:
        """For each partition the first offset not older than the time, or its end."""
        ...

    def chunks(self, partition: int, start: int, stop: int) -> Iterator[RecordChunk]:
        """The records in [start, stop). `OffsetOutOfRangeError` if some do not exist."""
        ...

    def chunks_of_key(
        self, partition: int, start: int, stop: int, key: bytes
    ) -> Iterator[RecordChunk]:
        """Like `chunks`, only records of one key."""
        ...

    def news(self, positions: Mapping[int, int], timeout_s: float) -> list[RecordChunk]:
        """New records from `positions` on; empty if none arrive within the timeout."""
        ...

    def newest(self, partition: int, key: bytes) -> Record | None:
        """The newest record of a key."""
        ...


class Appender(Protocol):
    """Appends to one topic. When `append` returns, the records have the topic's durability."""

    @property
    def partition_count(self) -> int: ...

    def append(self, records: list[NewRecord], partition: int | None) -> list[AppendedTo]:
        """Append records; without a partition, their keys choose it."""
        ...

    def idle(self) -> None:
        """Called while there is nothing to append: serve other requests, keep connections."""
        ...

    def close(self) -> None:
        """Release resources. Safe to repeat."""
        ...


class Backend(Protocol):
    """An opened target. For one thread."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def close(self) -> None: ...

    # topics
    def topic_names(self, *, include_internal: bool) -> list[str]: ...
    def topics(self, *, include_internal: bool) -> list[TopicFacts]: ...
    def topic(self, name: str) -> TopicFacts: ...
    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None,
        config: Mapping[str, str],
        replicas: int | None = None,
    ) -> int:
        """Create a topic; return its number of partitions."""
        ...

    def alter_topic(
        self, name: str, *, partitions: int | None, config: Mapping[str, str | None]
    ) -> None: ...
    def delete_topic(self, name: str) -> None: ...
    def trim_topic(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete records before these offsets; return the new start of each partition."""
        ...

    # records
    def reader(self, topic: str, partitions: Sequence[int] | None = None) -> TopicReader: ...
    def appender(self, topic: str) -> Appender: ...

    # groups
    def groups(self) -> list[GroupFacts]: ...
    def group(self, name: str) -> GroupFacts | None:
        """A group; None if there is no group of that name."""
        ...

    def commit(self, group: str, offsets: Mapping[Place, int]) -> None: ...
    def delete_group(self, name: str) -> None: ...

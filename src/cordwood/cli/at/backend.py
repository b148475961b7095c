"""What commands ask of a target, be it a directory or a broker: the questions and the answers.

Both kinds of target give the same answers to the same questions. Where one cannot know, the
answer is None: who is in a group is known to a broker alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from cordwood.format.record import Record
from cordwood.remote.record_chunk import RecordChunk

Place = tuple[str, int]  # topic and partition


class Extent(NamedTuple):
    """Offsets [start, end) of a partition that can be read."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """A partition. Offsets and size are None for one that cannot be read; `problem` says why."""

    partition: int
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None
    problem: str | None = None

    @property
    def record_count(self) -> int | None:
        """At most so many records: compaction leaves gaps."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFact:
    """The value of a key, and where it is from: topic, broker or default."""

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
    def overrides(self) -> dict[str, str]:
        """What was set for the topic itself."""
        return {key: fact.value for key, fact in self.config.items() if fact.source == "topic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    member_id: str
    client_id: str
    host: str
    partitions: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFacts:
    """Where a group is in a partition. The log's offsets are None where the topic is gone."""

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
    """A group. Kind, state, assignor and members are None where only its offsets are known."""

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
    """Offsets [first_offset, next_offset) of a partition that records were given."""

    partition: int
    first_offset: int
    next_offset: int


class TopicReader(Protocol):
    """Reads a topic, or some of its partitions."""

    topic: str

    @property
    def partitions(self) -> Sequence[int]: ...

    def refresh(self) -> None:
        """Look again which partitions there are; `UnknownTopicError` if the topic has gone."""
        ...

    def extents(self) -> dict[int, Extent]:
        """What can be read now."""
        ...

    def offsets_at(self, timestamp_ms: int) -> dict[int, int]:
        """The first offset that is not older, for each partition; its end where none is."""
        ...

    def chunks(self, partition: int, start: int, stop: int) -> Iterator[RecordChunk]:
        """The records in [start, stop). Raises `OffsetOutOfRangeError` for what is not there."""
        ...

    def chunks_of_key(
        self, partition: int, start: int, stop: int, key: bytes
    ) -> Iterator[RecordChunk]:
        """As `chunks`, the records of one key alone."""
        ...

    def news(self, positions: Mapping[int, int], timeout_s: float) -> list[RecordChunk]:
        """What there is behind these positions; nothing when nothing came in time."""
        ...

    def newest(self, partition: int, key: bytes) -> Record | None:
        """The newest record of a key."""
        ...


class Appender(Protocol):
    """Appends to one topic. What `append` returned for has the topic's durability."""

    @property
    def partition_count(self) -> int: ...

    def append(self, records: list[Any], partition: int | None) -> list[AppendedTo]:
        """Append `Record`s or (key, value) pairs, to where their keys put them by default."""
        ...

    def idle(self) -> None:
        """Nothing is appended right now: see to others, if there is anything to see to."""
        ...

    def close(self) -> None:
        """Let go. Safe to repeat."""
        ...


class Backend(Protocol):
    """A target that was opened. For one thread."""

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
    def create_topic(self, name: str, *, partitions: int | None, config: Mapping[str, str]) -> int:
        """Create a topic; return how many partitions it has."""
        ...

    def alter_topic(
        self, name: str, *, partitions: int | None, config: Mapping[str, str | None]
    ) -> None: ...
    def delete_topic(self, name: str) -> None: ...
    def trim_topic(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete records before these offsets; return where each partition then starts."""
        ...

    # records
    def reader(self, topic: str, partitions: Sequence[int] | None = None) -> TopicReader: ...
    def appender(self, topic: str) -> Appender: ...

    # groups
    def groups(self) -> list[GroupFacts]: ...
    def group(self, name: str) -> GroupFacts | None:
        """A group; None where there is none of that name."""
        ...

    def commit(self, group: str, offsets: Mapping[Place, int]) -> None: ...
    def delete_group(self, name: str) -> None: ...

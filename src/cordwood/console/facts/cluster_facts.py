"""What a console knows about a store or a cluster at one moment. Values only."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from cordwood.console.facts.replica_facts import ClusterPicture
from cordwood.value_class import dataclass, field

Place = tuple[str, int]  # topic and partition


class PartitionFacts(NamedTuple):
    """A partition. What is not known is None; `problem` says why it cannot be read.

    A named tuple, because a snapshot has ten thousand of them.
    """

    topic: str
    partition: int
    start_offset: int | None = None
    end_offset: int | None = None  # the high watermark
    size_bytes: int | None = None
    segment_count: int | None = None
    problem: str | None = None

    @property
    def record_count(self) -> int | None:
        """The number of offsets: an upper bound if compaction left gaps."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic. `config` has the keys that differ from their defaults, or all keys of a broker."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionFacts, ...]
    cleanup_policy: str | None = None
    has_archive: bool = False

    @property
    def record_count(self) -> int:
        return sum(partition.record_count or 0 for partition in self.partitions)

    @property
    def size_bytes(self) -> int | None:
        sizes = [p.size_bytes for p in self.partitions if p.size_bytes is not None]
        return sum(sizes) if sizes else None

    @property
    def is_compacted(self) -> bool:
        return self.cleanup_policy is not None and "compact" in self.cleanup_policy


class CommittedFacts(NamedTuple):
    """The committed offset of a group in one partition."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    member_id: str
    client_id: str
    host: str
    partitions: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A group. Without a broker only its offsets are known, and the rest is None."""

    name: str
    kind: str | None = None
    state: str | None = None
    committed: tuple[CommittedFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """A data directory. Appends are refused while less than `floor_bytes` is free."""

    path: str
    free_bytes: int
    total_bytes: int
    floor_bytes: int
    error: str | None = None

    @property
    def is_short_of_room(self) -> bool:
        return self.error is None and self.free_bytes < self.floor_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageFacts:
    """Acknowledged records that cannot be read: offsets [first_offset, next_offset)."""

    topic: str
    partition: int
    path: str
    position: int
    first_offset: int
    next_offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """A broker that the console asks. `problem` says why it does not answer."""

    address: str
    cluster_id: str = ""
    broker_count: int = 0
    problem: str | None = None
    since_ms: int | None = None  # since when it does not answer


def _no_rates() -> "Mapping[Place, PartitionRate]":
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All facts of one moment; a new one replaces it, nothing edits it.

    replicas  of a cluster of several brokers
    problems  what could not be found out, in words
    """

    taken_ms: int
    took_ms: float
    topics: Mapping[str, TopicFacts]
    groups: Mapping[str, GroupFacts]
    disks: tuple[DiskFacts, ...] = ()
    damages: tuple[DamageFacts, ...] = ()
    broker: BrokerFacts | None = None
    replicas: ClusterPicture | None = None
    has_files: bool = False
    problems: tuple[str, ...] = ()
    rates: Mapping[Place, "PartitionRate"] = field(default_factory=_no_rates)
    sequence: int = 0

    def partition(self, place: Place) -> PartitionFacts | None:
        topic = self.topics.get(place[0])
        if topic is None or not 0 <= place[1] < len(topic.partitions):
            return None
        return topic.partitions[place[1]]

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())


class PartitionRate(NamedTuple):
    """How fast a partition grows, from the last two snapshots."""

    records_per_s: float
    bytes_per_s: float

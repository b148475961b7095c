"""What a follower asks of a leader, and what it is answered: the fields of Kafka's Fetch."""

from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from cordwood.log.reading.file_range import FileRange
from cordwood.log.rules.leader_epochs import EpochEnd
from cordwood.quantities import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from cordwood.value_class import dataclass


class ReplicaError(IntEnum):
    """Kafka's error codes that matter between replicas. Others are answered by trying again."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    NOT_ENOUGH_REPLICAS = 19
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75


class PartitionPlace(NamedTuple):
    """Which partition: by the id of its topic, because a name may be used again."""

    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPosition:
    """Where a follower wants to go on, and what it knows.

    offset           everything below is safe on this replica: on its disk, with durability=disk
    last_epoch       the epoch of the batch before `offset`; -1 for an empty log
    high_watermark   the follower's own: a leader that knows more answers at once
    bytes_max        at most so many bytes are wanted of this partition; None: as of any other
    """

    place: PartitionPlace
    leader_epoch: LeaderEpoch
    offset: Offset
    last_epoch: LeaderEpoch
    log_start: Offset
    high_watermark: Offset
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFetch:
    """One fetch of a follower from one leader. `broker_epoch` tells its lives apart."""

    replica: int
    broker_epoch: int
    positions: tuple[FetchPosition, ...]
    wait_max_ms: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """What the leader answered for one partition. `diverging` comes without `data`."""

    place: PartitionPlace
    error: int = ReplicaError.NONE
    high_watermark: Offset = NO_OFFSET
    log_start: Offset = NO_OFFSET
    diverging: EpochEnd | None = None
    data: bytes | memoryview = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerRead:
    """What a leader answers a follower, with the batches still in their file.

    `is_news` is whether it is worth an answer at once; if not, the leader may wait for batches.
    """

    error: ReplicaError = ReplicaError.NONE
    high_watermark: Offset = NO_OFFSET
    log_start: Offset = NO_OFFSET
    diverging: EpochEnd | None = None
    batches: FileRange | None = None
    is_news: bool = True


class LogBounds(NamedTuple):
    """Where the leader's log starts and ends, as ListOffsets tells it to a replica."""

    start: Offset
    end: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsQuery:
    """Asked by a follower that is out of range."""

    place: PartitionPlace
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH

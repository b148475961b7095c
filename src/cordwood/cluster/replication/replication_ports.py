"""What the machines need from outside. All callbacks come in the loop that owns the machines."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from cordwood.cluster.cluster_control import ClusterControl
from cordwood.cluster.replication.replica_fetch import (
    BoundsQuery,
    FetchedPartition,
    LogBounds,
    PartitionPlace,
    ReplicaFetch,
)
from cordwood.cluster.replication.replication_quota import ReplicationQuotas
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import MIB
from cordwood.value_class import dataclass, field

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The loop and its clock."""

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        """Call `function` after a delay."""
        ...

    def now_s(self) -> float:
        """Seconds since a fixed moment; never decreases, and knows no wall clock."""
        ...


class DiskJobs(Protocol):
    """Runs what may wait for a disk. A job may run in any thread, or at once."""

    def run(
        self,
        log: PartitionLog,
        job: Callable[[], T],
        when_done: Callable[[T | Exception], None],
    ) -> None:
        """Run `job`; then call `when_done` with its result, or with what it raised."""
        ...

    def sync(self, log: PartitionLog, when_done: Callable[[], None]) -> None:
        """Bring everything that was appended to the disk; then call `when_done`.

        If that failed, the state of the log says so.
        """
        ...


class ReplicaTransport(Protocol):
    """Requests to other brokers. Each is answered once, or never if the node stops."""

    def fetch(
        self,
        leader: int,
        fetch: ReplicaFetch,
        when_done: Callable[[Sequence[FetchedPartition] | None], None],
    ) -> None:
        """Fetch from `leader`; None if there was no answer in time."""
        ...

    def bounds(
        self, leader: int, query: BoundsQuery, when_done: Callable[[LogBounds | None], None]
    ) -> None:
        """Ask where the leader's log starts and ends; None if it did not say."""
        ...


class ReplicaListener(Protocol):
    """Who must know of replicas that cannot go on."""

    def paused(self, place: PartitionPlace, reason: str) -> None:
        """This replica could not take what its leader sent, or could not lead. It tries again."""
        ...

    def stopped(self, place: PartitionPlace, reason: str) -> None:
        """This replica needs help: it does nothing until the broker starts again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """The settings of replication, with Kafka's names and defaults in the comments."""

    lag_max_ms: int = 30_000  # replica.lag.time.max.ms
    fetch_wait_max_ms: int = 500  # replica.fetch.wait.max.ms
    fetch_bytes_min: int = 1  # replica.fetch.min.bytes
    partition_bytes_max: int = 1 * MIB  # replica.fetch.max.bytes
    fetch_bytes_max: int = 10 * MIB  # replica.fetch.response.max.bytes
    backoff_ms: int = 1_000  # replica.fetch.backoff.ms
    isr_retry_ms: int = 200
    isr_overtaken_ms: int = 2_000  # an image that explains a refusal is here long before


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """What all replicas of one node work with.

    `rebuild` has a damaged replica fetched again beside its files, soon. Without it, a follower
    empties its log and fills it again.
    """

    node_id: int
    control: ClusterControl
    disk: DiskJobs
    transport: ReplicaTransport
    scheduler: Scheduler
    listener: ReplicaListener
    config: ReplicationConfig = ReplicationConfig()
    quotas: ReplicationQuotas = field(default_factory=ReplicationQuotas)
    rebuild: Callable[[PartitionPlace], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSite:
    """What the roles of one replica work with."""

    place: PartitionPlace
    log: PartitionLog
    node: NodePorts

    @property
    def is_disk(self) -> bool:
        """Whether only what is on the disk counts."""
        return self.log.config.durability == "disk"

"""The port to the controllers of the cluster.

A broker learns what was decided from images, and asks for changes of its own partitions. Behind
the port are Kafka's controllers, a simulated controller in tests, or a local control for several
processes of one node.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple, Protocol
from uuid import UUID

from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.cluster.image.partition_image import LeaderRecovery
from cordwood.quantities import LeaderEpoch
from cordwood.value_class import dataclass


class InSyncReplica(NamedTuple):
    """A replica that a leader wants in the ISR, and the life of its broker that caught up."""

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """What a leader asks of the controllers: another ISR for one of its partitions."""

    topic_id: UUID
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    in_sync: tuple[InSyncReplica, ...]
    recovery: LeaderRecovery = LeaderRecovery.RECOVERED


class IsrAnswer(Enum):
    """What became of an `IsrChange`.

    MADE           `partition_epoch` and `in_sync` of the answer hold now
    REFUSED        the controllers know better, or a replica may not join: give the change up
    OVERTAKEN      the asker's image is old: the change stays pending until a newer image arrives
    RETRY          nothing is known: ask again
    """

    MADE = auto()
    REFUSED = auto()
    OVERTAKEN = auto()
    RETRY = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrOutcome:
    answer: IsrAnswer
    in_sync: tuple[int, ...] = ()
    partition_epoch: int = -1
    recovery: LeaderRecovery = LeaderRecovery.RECOVERED


class ClusterControl(Protocol):
    """The controllers, as one broker sees them. Callbacks come in the control loop."""

    @property
    def image(self) -> MetadataImage:
        """The newest image that was applied."""
        ...

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 before it is registered."""
        ...

    @property
    def is_fenced_by_silence(self) -> bool:
        """Whether the controllers have not been heard for so long that others may lead now."""
        ...

    def change_isr(self, change: IsrChange, when_done: Callable[[IsrOutcome], None]) -> None:
        """Ask for another ISR. `when_done` is called exactly once, unless the broker stops."""
        ...

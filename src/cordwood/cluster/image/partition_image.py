"""One partition as the controllers have decided it.

`leader_epoch` grows with every election, `partition_epoch` with every change. Of two images of one
partition, the one with the greater partition epoch is the newer one.
"""

from enum import IntEnum
from typing import Final
from uuid import UUID

from cordwood.quantities import LeaderEpoch
from cordwood.value_class import dataclass

NO_LEADER: Final = -1


class LeaderRecovery(IntEnum):
    """Whether the leader was elected cleanly, in the numbers of the metadata log."""

    RECOVERED = 0
    RECOVERING = 1  # an unclean election: acknowledged records may be gone


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """The replicas of one partition, in order of preference, and the role of each.

    in_sync      the replicas that an acknowledged record is on
    eligible     replicas out of `in_sync` that have all acknowledged records all the same
                 (KIP-966: eligible leader replicas)
    last_known   the last leader before the partition lost all of the above
    directories  the log directory of each replica, by the order of `replicas`; may be empty
    """

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    recovery: LeaderRecovery = LeaderRecovery.RECOVERED
    eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    directories: tuple[UUID, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

"""The in-sync replicas of a partition as its leader sees them, with a change that is under way.

    committed   what the controllers have decided, as far as this leader knows
    pending     what it asked for; at most one change is under way
    maximal     every replica that is in one of the two

The controllers may have made a pending change without the leader knowing. So a record counts as
committed only when all of `maximal` have it: whichever of the two sets is the true one, each
replica of it has the record.
"""

from cordwood.cluster.cluster_control import IsrChange
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True)
class IsrState:
    """Replaced, never edited."""

    committed: frozenset[int]
    pending: IsrChange | None = None

    @property
    def maximal(self) -> frozenset[int]:
        if self.pending is None:
            return self.committed
        return self.committed.union(replica.node_id for replica in self.pending.in_sync)

    def asking(self, change: IsrChange) -> "IsrState":
        assert self.pending is None, self
        return IsrState(self.committed, change)

    def given_up(self) -> "IsrState":
        return IsrState(self.committed)

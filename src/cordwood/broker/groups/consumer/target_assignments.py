"""The target assignment of each member of a consumer group, and when it is computed again."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cordwood.broker.groups.consumer.assignors import (
    ASSIGNORS,
    EMPTY_ASSIGNMENT,
    Assignment,
    Subscriber,
)
from cordwood.broker.groups.consumer.consumer_member import ConsumerMember
from cordwood.broker.groups.consumer.consumer_roster import ConsumerRoster
from cordwood.broker.groups.consumer.reconciliation import Target

# A large assignment takes tenths of a second on a thread that all clients share. The size is the
# number of members and partitions. Below _SMALL, targets are computed at every change. Above, the
# group waits _PAUSE_S for each of them before it computes targets again, at most _PAUSE_S_MAX.
_SMALL: Final = 1_000
_PAUSE_S: Final = 0.0001
_PAUSE_S_MAX: Final = 1.0


class TargetAssignments:
    """The targets of a group's members, and the group epoch they were computed for."""

    def __init__(self, epoch: int = 0, partitions: Mapping[str, Assignment] | None = None) -> None:
        self.epoch = epoch
        self._partitions: dict[str, Assignment] = dict(partitions or {})
        self._next_s: float | None = None

    def of(self, member_id: str) -> Target:
        return Target(
            epoch=self.epoch, partitions=self._partitions.get(member_id, EMPTY_ASSIGNMENT)
        )

    def rename(self, old_id: str, new_id: str) -> None:
        """A static member is back under a new id."""
        self._partitions[new_id] = self._partitions.pop(old_id, EMPTY_ASSIGNMENT)

    def forget(self, member_id: str) -> None:
        self._partitions.pop(member_id, None)

    def is_due(self, now_s: float) -> bool:
        return self._next_s is None or now_s >= self._next_s

    def renew(
        self, roster: ConsumerRoster, epoch: int, assignors: Sequence[str], now_s: float
    ) -> dict[str, Assignment]:
        """Compute all targets for `epoch`; return the changed ones, by member."""
        members = {
            member.member_id: Subscriber(
                topics=roster.subscriptions.topics(member.about),
                previous=self._partitions.get(member.member_id, EMPTY_ASSIGNMENT),
                instance_id=member.about.instance_id,
            )
            for member in roster
        }
        counts = roster.subscriptions.partition_counts
        partitions = ASSIGNORS[preferred_assignor(roster, assignors)](members, counts)
        changed = {
            member_id: assignment
            for member_id, assignment in partitions.items()
            if assignment != self._partitions.get(member_id)
        }
        self.epoch = epoch
        self._partitions = partitions
        size = len(members) + sum(counts.values())
        pause_s = 0.0 if size < _SMALL else min(size * _PAUSE_S, _PAUSE_S_MAX)
        self._next_s = now_s + pause_s
        return changed


def preferred_assignor(members: Iterable[ConsumerMember], assignors: Sequence[str]) -> str:
    """The assignor that most members ask for; in a tie, the first of `assignors`."""
    votes = Counter(member.about.assignor for member in members)
    return max(assignors, key=lambda name: votes[name])

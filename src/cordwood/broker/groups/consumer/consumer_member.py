"""A member of a consumer group: its identity, its subscription and its partitions."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final
from uuid import UUID

from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.format.groups.consumer_group_records import CurrentValue, MemberValue
from cordwood.value_class import dataclass, field

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
AWAY_EPOCH: Final = -2  # a static member that left for a while

DatedAssignment = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic, each with the epoch at which it was assigned."""


class MemberState(IntEnum):
    """How far a member has come on its way to its target. The numbers are those in the log.

    STABLE                 it has exactly its target
    UNREVOKED_PARTITIONS   it has not confirmed yet that it revoked partitions
    UNRELEASED_PARTITIONS  it waits for partitions that other members have not revoked yet
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member, as a value: every change makes a new one.

    Invariant: `assigned` and `revoking` have no partition in common, and `revoking` is empty
    unless the state is UNREVOKED_PARTITIONS.

    epoch           the epoch its next heartbeat must have; only increases, except to `AWAY_EPOCH`
    previous_epoch  the epoch before, for a member that did not receive our last answer
    assigned        partitions that it may use
    revoking        partitions that it must stop using before other members may have them
    """

    member_id: str
    about: MemberValue
    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: DatedAssignment = field(default_factory=dict)
    revoking: DatedAssignment = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert not self.revoking or self.state is MemberState.UNREVOKED_PARTITIONS, self

    @property
    def is_away(self) -> bool:
        return self.epoch == AWAY_EPOCH

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def assigned_at(self, topic: UUID, partition: int) -> int | None:
        """The epoch at which a partition was assigned; None if the member does not hold it."""
        epoch = self.assigned.get(topic, {}).get(partition)
        return self.revoking.get(topic, {}).get(partition) if epoch is None else epoch

    def held(self) -> dict[UUID, set[int]]:
        """The partitions that no other member may have: assigned and revoking."""
        found = {topic: set(epochs) for topic, epochs in self.assigned.items()}
        for topic, epochs in self.revoking.items():
            found.setdefault(topic, set()).update(epochs)
        return found

    def current_value(self) -> CurrentValue:
        """The member's partitions, as the log stores them."""
        return CurrentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned=self.assigned,
            revoking=self.revoking,
        )


def undated(assignment: DatedAssignment) -> Assignment:
    return {topic: frozenset(epochs) for topic, epochs in assignment.items()}

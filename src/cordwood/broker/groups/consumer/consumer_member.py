"""A member of a consumer group: who it is, what it subscribes to, what it has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final
from uuid import UUID

from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.format.groups.consumer_group_records import CurrentValue, MemberValue

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
AWAY_EPOCH: Final = -2  # a static member that left and means to be back

DatedAssignment = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic, each with the epoch at which its member got it."""


class MemberState(IntEnum):
    """How far a member is on its way to what it is to have. Numbered as in the log.

    STABLE                 it has all of it, and nothing else
    UNREVOKED_PARTITIONS   it has not yet said that it gave up what is not its own any more
    UNRELEASED_PARTITIONS  it waits for partitions that others have not yet given up
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """Replaced on every change, never edited.

    Invariant: `assigned` and `revoking` have no partition in common, and there is something to
    revoke in the state UNREVOKED_PARTITIONS only.

    epoch           what the member is expected to send; only goes up, but for `AWAY_EPOCH`
    previous_epoch  the one before, for a member that did not get our last answer
    assigned        what it may use
    revoking        what it must stop using before others may have it
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
        """The epoch at which the member got a partition it may still commit; None: not its own."""
        epoch = self.assigned.get(topic, {}).get(partition)
        return self.revoking.get(topic, {}).get(partition) if epoch is None else epoch

    def held(self) -> dict[UUID, set[int]]:
        """All that nobody else may have: what is assigned and what is being revoked."""
        found = {topic: set(epochs) for topic, epochs in self.assigned.items()}
        for topic, epochs in self.revoking.items():
            found.setdefault(topic, set()).update(epochs)
        return found

    def current_value(self) -> CurrentValue:
        """What the log says about what it has."""
        return CurrentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned=self.assigned,
            revoking=self.revoking,
        )


def undated(assignment: DatedAssignment) -> Assignment:
    return {topic: frozenset(epochs) for topic, epochs in assignment.items()}

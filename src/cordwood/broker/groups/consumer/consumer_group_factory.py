"""Makes consumer groups: new ones, and those that were saved before a restart."""

from collections.abc import Sequence

from cordwood.broker.groups.consumer.consumer_group import ConsumerGroup, GroupSurroundings
from cordwood.broker.groups.consumer.saved_consumer_group import (
    SavedConsumerGroup,
    saved_consumer_groups,
)
from cordwood.broker.groups.consumer.target_assignments import TargetAssignments
from cordwood.broker.groups.journal.group_journal import GroupJournal
from cordwood.broker.groups.journal.group_log import GroupLog


class ConsumerGroupFactory:
    """Makes groups that share their surroundings and the log of groups."""

    def __init__(self, surroundings: GroupSurroundings, group_log: GroupLog) -> None:
        self.config = surroundings.config
        self._surroundings = surroundings
        self._group_log = group_log

    def create(self, group_id: str) -> ConsumerGroup:
        """A group without members. For the control loop."""
        return ConsumerGroup(group_id, self._surroundings, GroupJournal(group_id, self._group_log))

    def restore(self, records: Sequence[tuple[bytes, bytes]]) -> list[ConsumerGroup]:
        """The groups of these records, the newest of each key. Keys of other kinds are skipped.

        Any thread may call it: the groups do nothing before `resume`.
        """
        return [self._restored(saved) for saved in saved_consumer_groups(records)]

    def _restored(self, saved: SavedConsumerGroup) -> ConsumerGroup:
        journal = GroupJournal(saved.group_id, self._group_log, saved.leftovers)
        group = ConsumerGroup(saved.group_id, self._surroundings, journal)
        group.epoch = saved.epoch
        group.metadata_hash = saved.metadata_hash
        group.targets = TargetAssignments(saved.assignment_epoch, saved.targets)
        group.other_keys = saved.other_keys
        for member in saved.members:
            group.roster.put(member)
        return group

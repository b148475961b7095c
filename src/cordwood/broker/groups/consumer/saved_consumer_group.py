"""Consumer groups, reconstructed from their records in the log. Pure.

Records may be missing because a disk failed, and another broker may have written them. So
records that do not fit together are left out, and their keys are kept for tombstones. A member
that is left out joins again.
"""

import logging
from collections.abc import Iterable, Mapping
from uuid import UUID

from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.broker.groups.consumer.consumer_member import (
    ConsumerMember,
    DatedAssignment,
    MemberState,
)
from cordwood.errors import FormatError
from cordwood.format.groups.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupRecordType,
    CurrentValue,
    MemberValue,
    decode_consumer_group_key,
    decode_current,
    decode_group_epoch,
    decode_member,
    decode_target,
    decode_target_epoch,
    encode_consumer_group_key,
)
from cordwood.value_class import dataclass, field, replace

logger = logging.getLogger(__name__)

_MEMBER_TYPES = (
    ConsumerGroupRecordType.MEMBER,
    ConsumerGroupRecordType.TARGET,
    ConsumerGroupRecordType.CURRENT,
)


@dataclass(slots=True, kw_only=True)
class SavedConsumerGroup:
    """One group. No partition has two members, and no epoch is above the group's.

    `leftovers` are keys of records that were left out, `other_keys` of records we do not use.
    """

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: list[ConsumerMember] = field(default_factory=list)
    targets: dict[str, Assignment] = field(default_factory=dict)
    leftovers: list[bytes] = field(default_factory=list)
    other_keys: list[bytes] = field(default_factory=list)


def saved_consumer_groups(records: Iterable[tuple[bytes, bytes]]) -> list[SavedConsumerGroup]:
    """The groups of these records, the newest of each key. Unknown keys are skipped."""
    found: dict[str, _Records] = {}
    for raw_key, value in records:
        try:
            key = decode_consumer_group_key(raw_key)
        except FormatError:
            continue  # another kind of group
        group = found.setdefault(key.group, _Records(SavedConsumerGroup(group_id=key.group)))
        try:
            group.add(key, raw_key, value)
        except FormatError as error:
            logger.warning("group %s: record left out, it cannot be decoded: %s", key.group, error)
            group.saved.leftovers.append(raw_key)
    return [group.put_together() for group in found.values() if group.is_there]


class _Records:
    """Collects the records of one group."""

    def __init__(self, saved: SavedConsumerGroup) -> None:
        self.saved = saved
        self.is_there = False
        self._about: dict[str, MemberValue] = {}
        self._current: dict[str, CurrentValue] = {}

    def add(self, key: ConsumerGroupKey, raw_key: bytes, value: bytes) -> None:
        saved = self.saved
        match key.type:
            case ConsumerGroupRecordType.GROUP_EPOCH:
                decoded = decode_group_epoch(value)
                saved.epoch, saved.metadata_hash = decoded.epoch, decoded.metadata_hash
                self.is_there = True
            case ConsumerGroupRecordType.TARGET_EPOCH:
                saved.assignment_epoch = decode_target_epoch(value).epoch
            case ConsumerGroupRecordType.MEMBER:
                self._about[key.detail] = decode_member(value)
                self.is_there = True
            case ConsumerGroupRecordType.TARGET:
                saved.targets[key.detail] = decode_target(value)
            case ConsumerGroupRecordType.CURRENT:
                self._current[key.detail] = decode_current(value)
            case _:
                saved.other_keys.append(raw_key)

    def put_together(self) -> SavedConsumerGroup:
        saved = self.saved
        members = {
            member_id: member
            for member_id, about in self._about.items()
            if (member := _member(member_id, about, self._current.get(member_id))) is not None
        }
        gone = {*self._about, *self._current, *saved.targets} - members.keys()
        for member_id in sorted(gone):
            logger.warning(
                "group %s: member %s left out, its records are incomplete or of another protocol",
                saved.group_id,
                member_id,
            )
            saved.targets.pop(member_id, None)
            saved.leftovers += (
                encode_consumer_group_key(
                    ConsumerGroupKey(type=record_type, group=saved.group_id, detail=member_id)
                )
                for record_type in _MEMBER_TYPES
            )
        saved.members = _without_overlaps(list(members.values()))
        saved.epoch = max(saved.epoch, saved.assignment_epoch, *(m.epoch for m in saved.members), 0)
        saved.assignment_epoch = max(
            saved.assignment_epoch, *(member.epoch for member in saved.members), 0
        )
        return saved


def _member(
    member_id: str, about: MemberValue, current: CurrentValue | None
) -> ConsumerMember | None:
    """The member; None if it is of the classic protocol or in an unknown state."""
    if about.is_classic:
        return None
    if current is None:
        return ConsumerMember(member_id=member_id, about=about)
    if current.state not in tuple(MemberState):
        return None
    state = MemberState.UNREVOKED_PARTITIONS if current.revoking else MemberState(current.state)
    return ConsumerMember(
        member_id=member_id,
        about=about,
        epoch=current.member_epoch,
        previous_epoch=current.previous_member_epoch,
        state=state,
        assigned=current.assigned,
        revoking=current.revoking,
    )


def _without_overlaps(members: list[ConsumerMember]) -> list[ConsumerMember]:
    """If several members claim a partition, the one that got it last keeps it."""
    owners: dict[tuple[UUID, int], tuple[int, str]] = {}
    for member in members:
        for dated in (member.revoking, member.assigned):
            for topic, epochs in dated.items():
                for partition, epoch in epochs.items():
                    claim = (epoch, member.member_id)
                    place = (topic, partition)
                    owners[place] = max(owners.get(place, claim), claim)
    return [
        replace(
            member,
            assigned=_owned(member, member.assigned, owners),
            revoking=_owned(member, member.revoking, owners, except_for=member.assigned),
        )
        for member in members
    ]


def _owned(
    member: ConsumerMember,
    dated: DatedAssignment,
    owners: Mapping[tuple[UUID, int], tuple[int, str]],
    except_for: DatedAssignment | None = None,
) -> dict[UUID, dict[int, int]]:
    kept: dict[UUID, dict[int, int]] = {}
    for topic, epochs in dated.items():
        for partition, epoch in epochs.items():
            is_elsewhere = except_for is not None and partition in except_for.get(topic, {})
            if owners[topic, partition][1] == member.member_id and not is_elsewhere:
                kept.setdefault(topic, {})[partition] = epoch
    return kept

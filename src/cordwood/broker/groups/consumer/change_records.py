"""The records that describe a change of a consumer group. Pure."""

from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.broker.groups.consumer.consumer_member import ConsumerMember
from cordwood.format.groups.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupRecordType,
    GroupEpochValue,
    TargetEpochValue,
    encode_consumer_group_key,
    encode_current,
    encode_group_epoch,
    encode_member,
    encode_target,
    encode_target_epoch,
)
from cordwood.log.topics.committed_offsets import GroupRecord
from cordwood.quantities import TimestampMs

_MEMBER_TYPES = (
    ConsumerGroupRecordType.CURRENT,
    ConsumerGroupRecordType.TARGET,
    ConsumerGroupRecordType.MEMBER,
)


class ChangeRecords:
    """Collects the records of one change of a group, in the order they are written."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.records: list[GroupRecord] = []

    def group_epoch(self, epoch: int, metadata_hash: int) -> None:
        value = GroupEpochValue(epoch=epoch, metadata_hash=metadata_hash)
        self._add(ConsumerGroupRecordType.GROUP_EPOCH, "", encode_group_epoch(value))

    def member(self, member: ConsumerMember) -> None:
        """The member's identity and subscription."""
        value = encode_member(member.about)
        self._add(ConsumerGroupRecordType.MEMBER, member.member_id, value)

    def member_gone(self, member_id: str) -> None:
        """Delete a member."""
        for record_type in _MEMBER_TYPES:
            self._add(record_type, member_id, None)

    def targets(self, partitions: dict[str, Assignment]) -> None:
        for member_id, assignment in partitions.items():
            value = encode_target({t: frozenset(numbers) for t, numbers in assignment.items()})
            self._add(ConsumerGroupRecordType.TARGET, member_id, value)

    def target_epoch(self, epoch: int, now_ms: TimestampMs) -> None:
        value = TargetEpochValue(epoch=epoch, timestamp_ms=now_ms)
        self._add(ConsumerGroupRecordType.TARGET_EPOCH, "", encode_target_epoch(value))

    def current(self, member: ConsumerMember) -> None:
        """The partitions that the member has now."""
        value = encode_current(member.current_value())
        self._add(ConsumerGroupRecordType.CURRENT, member.member_id, value)

    def group_gone(self) -> None:
        """Delete the group itself; `member_gone` deletes its members one by one."""
        self._add(ConsumerGroupRecordType.TARGET_EPOCH, "", None)
        self._add(ConsumerGroupRecordType.GROUP_EPOCH, "", None)

    def _add(self, record_type: ConsumerGroupRecordType, detail: str, value: bytes | None) -> None:
        key = ConsumerGroupKey(type=record_type, group=self._group_id, detail=detail)
        self.records.append((encode_consumer_group_key(key), value))

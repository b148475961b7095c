"""Which member of a consumer group holds which partition: at most one each."""

from uuid import UUID

from cordwood.broker.groups.consumer.consumer_member import ConsumerMember


class PartitionOwners:
    """The member that holds each partition, assigned or still to be revoked.

    Invariant: a partition has at most one owner. `put` is the only setter and asserts it.
    """

    def __init__(self) -> None:
        self._owners: dict[UUID, dict[int, str]] = {}

    def owner(self, topic: UUID, partition: int) -> str | None:
        return self._owners.get(topic, {}).get(partition)

    def put(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """A member changed, joined (`before` is None) or left (`after` is None)."""
        if before is not None:
            self._release(before)
        if after is not None:
            self._claim(after)

    def _release(self, member: ConsumerMember) -> None:
        for topic, partitions in member.held().items():
            owners = self._owners[topic]
            for partition in partitions:
                owner = owners.pop(partition)
                assert owner == member.member_id, (topic, partition, owner, member)
            if not owners:
                del self._owners[topic]

    def _claim(self, member: ConsumerMember) -> None:
        for topic, partitions in member.held().items():
            owners = self._owners.setdefault(topic, {})
            for partition in partitions:
                owner = owners.setdefault(partition, member.member_id)
                assert owner == member.member_id, (topic, partition, owner, member)

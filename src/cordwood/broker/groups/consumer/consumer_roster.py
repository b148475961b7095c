"""The members of a consumer group, with their instances, subscriptions and partitions."""

from collections.abc import Iterator

from cordwood.broker.groups.consumer.consumer_member import ConsumerMember
from cordwood.broker.groups.consumer.partition_owners import PartitionOwners
from cordwood.broker.groups.consumer.topic_subscriptions import TopicDirectory, TopicSubscriptions


class ConsumerRoster:
    """The members by id and by instance id. Owned by one group.

    Invariant: instances, subscriptions and owners match the members. `put` and `remove` are the
    only setters.
    """

    def __init__(self, topics: TopicDirectory) -> None:
        self._members: dict[str, ConsumerMember] = {}
        self._instances: dict[str, str] = {}
        self.subscriptions = TopicSubscriptions(topics)
        self.owners = PartitionOwners()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ConsumerMember]:
        return iter(self._members.values())

    def find(self, member_id: str) -> ConsumerMember | None:
        return self._members.get(member_id)

    def find_instance(self, instance_id: str | None) -> ConsumerMember | None:
        """The static member of that instance id; None if there is none or no id is given."""
        member_id = None if instance_id is None else self._instances.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or replace the member of the same id."""
        before = self._members.get(member.member_id)
        self.owners.put(before, member)
        self._members[member.member_id] = member
        if before is None or before.about != member.about:
            self._replace_about(before, member)

    def remove(self, member: ConsumerMember) -> None:
        self.owners.put(member, None)
        del self._members[member.member_id]
        self._replace_about(member, None)

    def _replace_about(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        if before is not None:
            self.subscriptions.remove(before.about)
            instance_id = before.about.instance_id
            if instance_id is not None and self._instances.get(instance_id) == before.member_id:
                del self._instances[instance_id]
        if after is not None:
            self.subscriptions.add(after.about)
            if after.about.instance_id is not None:
                self._instances[after.about.instance_id] = after.member_id

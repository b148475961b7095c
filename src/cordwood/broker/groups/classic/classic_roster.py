"""The members of a classic group, its leader, and the protocols that all members support."""

from collections import Counter
from collections.abc import Iterable, Iterator

from cordwood.broker.groups.classic.classic_member import ClassicMember, Protocols, metadata_size
from cordwood.broker.groups.classic.metadata_budget import MetadataBudget
from cordwood.protocol.error_code import ErrorCode


class ClassicRoster:
    """The members in the order they joined. Owned by one group.

    Invariants: `leader_id` is a member, or None if there are no members; `_static_ids` has
    exactly the members with an instance id.
    """

    def __init__(self, budget: MetadataBudget) -> None:
        self._budget = budget
        self._members: dict[str, ClassicMember] = {}
        self._static_ids: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()  # members by protocol
        self.leader_id: str | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(list(self._members.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._members[member_id]

    def get(self, member_id: str) -> ClassicMember | None:
        return self._members.get(member_id)

    def static_id(self, instance_id: str) -> str | None:
        """The present member id of an instance."""
        return self._static_ids.get(instance_id)

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether the sender of these ids is a member; an instance that was replaced is fenced."""
        if instance_id is not None:
            known = self._static_ids.get(instance_id)
            if known is None:
                return ErrorCode.unknown_member_id
            if known != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self._members else ErrorCode.unknown_member_id

    @property
    def awaiting_join_count(self) -> int:
        return sum(member.is_awaiting_join for member in self._members.values())

    @property
    def has_all_joined(self) -> bool:
        return all(m.is_awaiting_join for m in self._members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest time that a member asked the group to wait for it."""
        return max((m.rebalance_timeout_ms for m in self._members.values()), default=0)

    def add(self, member: ClassicMember) -> None:
        assert member.member_id not in self._members, member
        self._members[member.member_id] = member
        self._support(member)
        if member.group_instance_id is not None:
            self._static_ids[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: ClassicMember) -> None:
        del self._members[member.member_id]
        self._withdraw(member)
        if self._static_ids.get(member.group_instance_id or "") == member.member_id:
            del self._static_ids[member.group_instance_id or ""]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._members), None)

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """Put `new`, the same instance under another member id, in the place of `old`."""
        assert old.group_instance_id is not None, old
        assert old.group_instance_id == new.group_instance_id, (old, new)
        self._members = {
            (new.member_id if member is old else member_id): (new if member is old else member)
            for member_id, member in self._members.items()
        }
        self._withdraw(old)
        self._support(new)
        self._static_ids[old.group_instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id

    def elect_leader(self) -> bool:
        """Make sure that the leader has joined; False if no member has."""
        leader = self._members.get(self.leader_id or "")
        if leader is not None and leader.is_awaiting_join:
            return True
        present = next((m for m in self._members.values() if m.is_awaiting_join), None)
        if present is None:
            return False
        self.leader_id = present.member_id
        return True

    # --- protocols ---------------------------------------------------------------------------

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self._withdraw(member)
        member.protocols = protocols
        self._support(member)

    def _support(self, member: ClassicMember) -> None:
        self._budget.held_bytes += metadata_size(member.protocols)
        self._supporters.update({name for name, _ in member.protocols})

    def _withdraw(self, member: ClassicMember) -> None:
        self._budget.held_bytes -= metadata_size(member.protocols)
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def supports_any(self, names: Iterable[str]) -> bool:
        """Whether all members support one of `names`, so that a member with these can join."""
        return any(self._supporters[name] == len(self._members) for name in names)

    def select_protocol(self) -> str:
        """Each member votes for its first protocol that all support; most votes win."""
        count = len(self._members)
        candidates = {name for name, having in self._supporters.items() if having == count}
        votes = Counter(member.vote(candidates) for member in self)
        return votes.most_common(1)[0][0]

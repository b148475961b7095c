"""One generation of a classic group: the agreement that its members reached. A value."""

from collections.abc import Mapping
from typing import Final

from cordwood.broker.groups.classic.classic_roster import ClassicRoster
from cordwood.format.groups.consumer_subscription import subscribed_topics
from cordwood.format.groups.group_metadata import GroupMetadata
from cordwood.quantities import TimestampMs
from cordwood.value_class import dataclass

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A rebalance replaces it by the next one.

    `subscribed` has the topics that the members read, or None if the group does not know.
    """

    number: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    subscribed: frozenset[str] | None = None

    def topics_of(self, roster: ClassicRoster) -> frozenset[str] | None:
        """The topics that the members subscribe to; None if one of them cannot be parsed."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        found: frozenset[str] = frozenset()
        for member in roster:
            topics = subscribed_topics(member.metadata(self.protocol_name))
            if topics is None:
                return None
            found |= topics
        return found

    def saved(
        self, roster: ClassicRoster, assignments: Mapping[str, bytes], since_ms: TimestampMs
    ) -> GroupMetadata:
        """The record of this generation. `assignments` has one entry for each member."""
        return GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.number,
            protocol=self.protocol_name,
            leader=roster.leader_id,
            current_state_timestamp=since_ms,
            members=tuple(
                member.saved(self.protocol_name, assignments[member.member_id]) for member in roster
            ),
        )

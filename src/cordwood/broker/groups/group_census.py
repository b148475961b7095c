"""A list of all groups for threads that observe the broker.

Groups belong to the control loop, so the loop makes the list: a few groups at a time, so that a
broker with very many groups still answers heartbeats.
"""

import threading
from collections.abc import Sequence
from typing import Final

from cordwood.broker.groups.coordinator import CoordinatorState, GroupCoordinator
from cordwood.broker.observing.observed_broker import GroupFacts

_SLICE: Final = 200  # groups to list before the loop serves requests again
_TIMEOUT_S: Final = 10.0


class GroupCensus:
    """Lists the groups of a coordinator. For any thread except the control loop."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def is_loaded(self) -> bool:
        return self._coordinator.state is CoordinatorState.READY

    def take(self) -> list[GroupFacts]:
        """All groups, sorted by name. Raises `TimeoutError` if the loop does not answer."""
        found: list[GroupFacts] = []
        done = threading.Event()
        coordinator = self._coordinator

        def begin() -> None:
            look(list({*coordinator.groups, *coordinator.keeper.group_ids()}))

        def look(group_ids: Sequence[str]) -> None:
            found.extend(self._facts(group_id) for group_id in group_ids[:_SLICE])
            rest = group_ids[_SLICE:]
            if rest:
                coordinator.scheduler.call_soon(lambda: look(rest))
            else:
                done.set()

        coordinator.scheduler.call_soon(begin)
        if not done.wait(_TIMEOUT_S):
            raise TimeoutError(f"the control loop did not list the groups within {_TIMEOUT_S:g} s")
        return sorted(found, key=lambda facts: facts.group)

    def _facts(self, group_id: str) -> GroupFacts:
        group = self._coordinator.groups.get(group_id)
        committed = self._coordinator.offsets.known_of_group(group_id)
        return GroupFacts(
            group=group_id,
            kind="classic" if group is None else group.group_type,
            state="Empty" if group is None else group.state_name,
            member_count=0 if group is None else group.member_count,
            committed={
                place: offset.offset for place, offset in committed.items() if offset.is_position
            },
        )

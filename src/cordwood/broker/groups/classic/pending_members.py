"""Clients that were given a member id and have not come back with it yet (KIP-394)."""

from collections.abc import Callable

from cordwood.broker.net.scheduler import Scheduler, Timer


class PendingMembers:
    """The member ids given out, each with a timer. Owned by one group.

    `expired` is called after an id was dropped because its client did not come back in time.
    """

    def __init__(self, scheduler: Scheduler, expired: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._expired = expired
        self._timers: dict[str, Timer] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._timers

    def expect(self, member_id: str, timeout_ms: int) -> None:
        self._timers[member_id] = self._scheduler.call_later(
            timeout_ms / 1000, lambda: self._timer_fired(member_id)
        )

    def remove(self, member_id: str) -> None:
        """The client came back with its id, or gave it up."""
        self._timers.pop(member_id).cancel()

    def stop(self) -> None:
        for member_id in list(self._timers):
            self.remove(member_id)

    def _timer_fired(self, member_id: str) -> None:
        del self._timers[member_id]
        self._expired()

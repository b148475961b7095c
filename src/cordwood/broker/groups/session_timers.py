"""Timers for the ids of a group's members: an id that is silent for too long expires."""

from collections.abc import Callable
from typing import Final

from cordwood.broker.net.loop.scheduler import Scheduler, Timer
from cordwood.value_class import dataclass

_RESOLUTION_S: Final = 0.001  # a timer may fire this much before its deadline


@dataclass(slots=True)
class _Session:
    deadline_s: float
    timer_due_s: float
    timer: Timer


class SessionTimers:
    """One timer per member id. Owned by one group; for the control loop alone.

    A heartbeat only moves the deadline of its member. The timer compares the deadline when it
    fires and starts again if it is early. So a heartbeat costs no timer.

    `expired` is called with an id whose deadline passed. Its session has ended by then: `expired`
    either removes the member or calls `expect` again.
    """

    def __init__(self, scheduler: Scheduler, expired: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._expired = expired
        self._sessions: dict[str, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._sessions

    def expect(self, member_id: str, timeout_ms: int) -> None:
        """The member is alive now. It expires unless this is called again within the timeout."""
        deadline_s = self._scheduler.now_s() + timeout_ms / 1000
        session = self._sessions.get(member_id)
        if session is not None and session.timer_due_s <= deadline_s:
            session.deadline_s = deadline_s
            return
        self.forget(member_id)
        self._start(member_id, deadline_s)

    def forget(self, member_id: str) -> None:
        """End a session, if there is one."""
        session = self._sessions.pop(member_id, None)
        if session is not None:
            session.timer.cancel()

    def stop(self) -> None:
        for member_id in list(self._sessions):
            self.forget(member_id)

    def _start(self, member_id: str, deadline_s: float) -> None:
        delay_s = max(deadline_s - self._scheduler.now_s(), 0.0)
        timer = self._scheduler.call_later(delay_s, lambda: self._timer_fired(member_id))
        self._sessions[member_id] = _Session(deadline_s, deadline_s, timer)

    def _timer_fired(self, member_id: str) -> None:
        session = self._sessions.pop(member_id)
        if self._scheduler.now_s() + _RESOLUTION_S < session.deadline_s:
            self._start(member_id, session.deadline_s)
        else:
            self._expired(member_id)

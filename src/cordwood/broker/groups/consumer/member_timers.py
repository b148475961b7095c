"""When a member of a consumer group is given up: silent for too long, or too slow to let go."""

from collections.abc import Callable
from dataclasses import dataclass

from cordwood.broker.net.scheduler import Scheduler, Timer


@dataclass(slots=True)
class _Session:
    deadline_s: float
    timer: Timer


class MemberTimers:
    """The sessions and revocations of a group's members. `give_up` is told who, and why.

    A heartbeat only moves its member's deadline; the timer finds that out when it fires. So a
    member costs one timer however often it is heard of, and one more while it revokes.
    """

    def __init__(self, scheduler: Scheduler, give_up: Callable[[str, str], None]) -> None:
        self._scheduler = scheduler
        self._give_up = give_up
        self._sessions: dict[str, _Session] = {}
        self._revocations: dict[str, Timer] = {}

    def hear(self, member_id: str, timeout_ms: int) -> None:
        """The member is alive now, and must be heard of again within the timeout."""
        deadline_s = self._scheduler.now_s() + timeout_ms / 1000
        session = self._sessions.get(member_id)
        if session is not None:
            session.deadline_s = deadline_s
            return
        timer = self._scheduler.call_later(timeout_ms / 1000, lambda: self._look(member_id))
        self._sessions[member_id] = _Session(deadline_s, timer)

    def expect_revocation(self, member_id: str, timeout_ms: int) -> None:
        """The member must have given up what it was asked to within the timeout, from now."""
        self.revoked(member_id)
        self._revocations[member_id] = self._scheduler.call_later(
            timeout_ms / 1000, lambda: self._revoke_no_longer(member_id, timeout_ms)
        )

    def revoked(self, member_id: str) -> None:
        """Nothing is being revoked from the member."""
        timer = self._revocations.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def forget(self, member_id: str) -> None:
        self.revoked(member_id)
        session = self._sessions.pop(member_id, None)
        if session is not None:
            session.timer.cancel()

    def stop(self) -> None:
        for member_id in [*self._sessions, *self._revocations]:
            self.forget(member_id)

    def _look(self, member_id: str) -> None:
        session = self._sessions[member_id]
        left_s = session.deadline_s - self._scheduler.now_s()
        if left_s > 0:
            session.timer = self._scheduler.call_later(left_s, lambda: self._look(member_id))
            return
        self.forget(member_id)
        self._give_up(member_id, "its session expired")

    def _revoke_no_longer(self, member_id: str, timeout_ms: int) -> None:
        self.forget(member_id)
        self._give_up(member_id, f"it did not give up its partitions within {timeout_ms} ms")

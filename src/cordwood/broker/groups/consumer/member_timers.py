"""When a member of a consumer group is removed: no heartbeat, or partitions revoked too slowly."""

from collections.abc import Callable

from cordwood.broker.groups.session_timers import SessionTimers
from cordwood.broker.net.loop.scheduler import Scheduler, Timer


class MemberTimers:
    """The sessions and revocations of a group's members. Owned by one group.

    `remove` is called with the id of a member that must be removed, and the reason.
    """

    def __init__(self, scheduler: Scheduler, remove: Callable[[str, str], None]) -> None:
        self._scheduler = scheduler
        self._remove = remove
        self._sessions = SessionTimers(scheduler, self._session_expired)
        self._revocations: dict[str, Timer] = {}

    def expect_heartbeat(self, member_id: str, timeout_ms: int) -> None:
        """The member is alive now and must send its next heartbeat within the timeout."""
        self._sessions.expect(member_id, timeout_ms)

    def expect_revocation(self, member_id: str, timeout_ms: int) -> None:
        """From now on the member has `timeout_ms` to give up the partitions it must revoke."""
        self.revoked(member_id)
        self._revocations[member_id] = self._scheduler.call_later(
            timeout_ms / 1000, lambda: self._revocation_overdue(member_id, timeout_ms)
        )

    def revoked(self, member_id: str) -> None:
        """The member has no partitions to revoke any more."""
        timer = self._revocations.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def forget(self, member_id: str) -> None:
        self.revoked(member_id)
        self._sessions.forget(member_id)

    def stop(self) -> None:
        self._sessions.stop()
        for member_id in list(self._revocations):
            self.revoked(member_id)

    def _session_expired(self, member_id: str) -> None:
        self.forget(member_id)
        self._remove(member_id, "its session expired")

    def _revocation_overdue(self, member_id: str, timeout_ms: int) -> None:
        self.forget(member_id)
        self._remove(member_id, f"it did not revoke its partitions within {timeout_ms} ms")

"""The two waits of a rebalance: for all members to join, then for all members to sync."""

from collections.abc import Callable, Iterable

from cordwood.broker.groups.classic.classic_member import NO_GENERATION
from cordwood.broker.net.loop.scheduler import Scheduler, Timer


class JoinPhase:
    """How long the group waits for members to join. Owned by one group.

    The first rebalance of an empty group waits in short steps: if a member joined during a step,
    another step follows, because members tend to start together. `over` is called when the time
    is up.
    """

    def __init__(self, scheduler: Scheduler, over: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._over = over
        self._timer: Timer | None = None
        self._has_grown = False  # during the present step of the first rebalance
        self.is_first = False

    def begin_first(self, *, step_ms: int, timeout_ms: int) -> None:
        """Wait `step_ms`, and again while members join, up to about `timeout_ms`."""
        self.is_first = True
        self._begin_step(step_ms, step_ms, max(timeout_ms - step_ms, 0))

    def begin(self, timeout_ms: int) -> None:
        self.is_first = False
        self._start_timer(timeout_ms, self._over)

    def member_added(self) -> None:
        self._has_grown = True

    def end(self) -> None:
        self.is_first = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_step(self, delay_ms: int, step_ms: int, left_ms: int) -> None:
        self._has_grown = False
        self._start_timer(delay_ms, lambda: self._step_over(step_ms, left_ms))

    def _step_over(self, step_ms: int, left_ms: int) -> None:
        if self._has_grown and left_ms > 0:
            self._begin_step(min(step_ms, left_ms), step_ms, max(left_ms - step_ms, 0))
        else:
            self._over()

    def _start_timer(self, delay_ms: int, function: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.call_later(delay_ms / 1000, function)


class SyncPhase:
    """Which members of a generation have not synced yet. Owned by one group.

    `overdue` is called with their ids when the time is up. `saving` is the generation whose
    assignment is being written: only the first assignment of a generation counts.
    """

    def __init__(self, scheduler: Scheduler, overdue: Callable[[list[str]], None]) -> None:
        self._scheduler = scheduler
        self._overdue = overdue
        self._missing: dict[str, None] = {}  # in the order of the members
        self._timer: Timer | None = None
        self.saving = NO_GENERATION

    def begin(self, member_ids: Iterable[str], timeout_ms: int) -> None:
        self.end()
        self._missing = dict.fromkeys(member_ids)
        self._timer = self._scheduler.call_later(timeout_ms / 1000, self._timer_fired)

    def settle(self, member_id: str) -> None:
        """The member has synced, or is no longer in the group."""
        self._missing.pop(member_id, None)
        if not self._missing:
            self.end()

    def end(self) -> None:
        self._missing.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timer_fired(self) -> None:
        self._timer = None
        self._overdue(list(self._missing))

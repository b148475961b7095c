"""Changes of groups that arrive through the store's inbox, made as if a client had asked.

Without this, another process could move the offsets of a group while its members read.
"""

import threading
import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

from cordwood.broker.groups.coordinator import GroupCoordinator
from cordwood.broker.groups.journal.group_log import Done
from cordwood.errors import LogError
from cordwood.log.inbox.store_change import CommitGroup
from cordwood.log.inbox.topic_change import ForgetGroup
from cordwood.log.topics.committed_offsets import CommittedOffset
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import Offset

_ANSWER_S: Final = 30.0
_LOADING_PAUSE_S: Final = 0.1


class InboxGroupChanges:
    """Called by the thread that serves the inbox; the control loop makes the changes."""

    def __init__(
        self, coordinator: GroupCoordinator, topic_id: Callable[[str], UUID | None]
    ) -> None:
        self._coordinator = coordinator
        self._topic_id = topic_id

    def commit(self, change: CommitGroup) -> None:
        """Commit offsets. Refused while the group has members: they commit themselves."""
        now_ms = self._coordinator.clock.now_ms()
        offsets = {
            place: CommittedOffset(
                offset=Offset(offset),
                metadata=metadata,
                committed_ms=now_ms,
                topic_id=self._topic_id(place[0]),
            )
            for place, (offset, metadata) in change.offsets.items()
        }
        self._ask(
            change.group,
            lambda done: self._coordinator.keeper.commit(change.group, offsets, done),
        )

    def forget(self, change: ForgetGroup) -> None:
        """Delete some offsets, or the group and all its offsets. Refused while it has members."""
        if change.places is None:
            self._ask(change.group, lambda done: self._coordinator.delete(change.group, done))
            return
        places = change.places

        def act(done: Done) -> None:
            records = self._coordinator.keeper.tombstones(change.group, places)
            if records:
                self._coordinator.group_log.append(change.group, records, done)
            else:
                done(ErrorCode.none)

        self._ask(change.group, act)

    def _ask(self, group_id: str, act: Callable[[Done], None]) -> None:
        deadline_s = time.monotonic() + _ANSWER_S
        while True:
            code = self._attempt(group_id, act, deadline_s - time.monotonic())
            if code is ErrorCode.none:
                return
            is_loading = code is ErrorCode.coordinator_load_in_progress
            if not is_loading or time.monotonic() >= deadline_s:
                raise LogError(_reason(group_id, code))
            time.sleep(_LOADING_PAUSE_S)

    def _attempt(self, group_id: str, act: Callable[[Done], None], timeout_s: float) -> ErrorCode:
        answered = threading.Event()
        codes: list[ErrorCode] = []

        def done(code: ErrorCode) -> None:
            codes.append(code)
            answered.set()

        def begin() -> None:
            refusal = self._coordinator.refusal(group_id)
            group = None if refusal is not None else self._coordinator.find(group_id)
            if group is not None and not group.is_empty:
                refusal = ErrorCode.non_empty_group
            if refusal is not None:
                done(refusal)
            else:
                act(done)

        self._coordinator.scheduler.call_soon(begin)
        if not answered.wait(max(timeout_s, 0)):
            return ErrorCode.coordinator_not_available
        return codes[0]


def _reason(group_id: str, code: ErrorCode) -> str:
    if code is ErrorCode.non_empty_group:
        return f"group {group_id} has members: stop them first, nothing was changed"
    if code is ErrorCode.group_id_not_found:
        return f"no group named {group_id!r}"
    return f"group {group_id} cannot be changed now: {code.name}"

"""The requester's side of the inbox: have a store changed, whether or not it has an owner.

The request is put into the inbox. If a process holds the store, that owner serves the request,
and the requester waits for a bounded time. Otherwise the requester opens the store and serves
the request itself.
"""

import time
from collections.abc import Callable
from typing import Final, Protocol

from cordwood.clock import Clock
from cordwood.errors import ChangeRefusedError, ChangeTimeoutError, DirectoryLockedError
from cordwood.log.inbox.change_inbox import ChangeInbox
from cordwood.log.inbox.store_change import (
    CLAIMED_FACTOR,
    REFUSED,
    ChangeAnswer,
    ChangeRequest,
    StoreChange,
    kind_of,
)
from cordwood.log.rules.work_progress import WorkDone
from cordwood.quantities import TimestampMs
from cordwood.storage.files import FileSystem

CHANGE_TIMEOUT_S: Final = 60.0

_NO_BEAT: Final = -1

_ANSWER_PAUSE_S: Final = 0.02
_LOCK_PAUSE_S: Final = 0.25  # how often to check whether the owner released the lock


class InboxService(Protocol):
    """Makes the changes that wait in the inbox; see `ChangeService`."""

    def serve(self, *, meanwhile: Callable[[], None] | None = None) -> int: ...


class ServingStore(Protocol):
    """A store that was opened to serve its own inbox; see `Store`."""

    @property
    def changes(self) -> InboxService: ...
    def close(self) -> None: ...


class ChangeRequester:
    """Requests changes of the store whose first data directory is `path`."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        open_store: Callable[[], ServingStore],
        clock: Clock,
        *,
        pause: Callable[[float], None] = time.sleep,
        on_progress: Callable[[WorkDone], None] | None = None,
    ) -> None:
        """`on_progress` gets the progress of a long change."""
        self._inbox = ChangeInbox(fs, path)
        self._path = path
        self._open_store = open_store
        self._clock = clock
        self._pause = pause
        self._on_progress = on_progress
        self._beat = _NO_BEAT

    def ask(self, change: StoreChange, request_id: str, *, timeout_s: float) -> ChangeAnswer:
        """Have the change made. Its staged files are removed on return, whatever the outcome.

        Raises `ChangeRefusedError`, or `ChangeTimeoutError` if the owner does not answer. After
        `timeout_s` the request is withdrawn. If the owner has claimed it by then, we wait ten
        times as long. Each progress report of a long change restarts the time.
        """
        now_ms = self._clock.now_ms()
        request = ChangeRequest(
            change=change,
            submitted_ms=now_ms,
            deadline_ms=TimestampMs(now_ms + int(timeout_s * 1000)),
        )
        self._inbox.submit(request_id, request)
        try:
            answer, owner = self._wait(request_id, timeout_s)
            if answer is None and not self._inbox.withdraw(request_id):
                patience_s = CLAIMED_FACTOR * timeout_s
                answer, owner = self._wait(request_id, patience_s)
                if answer is None:
                    raise ChangeTimeoutError(
                        self._path, owner, waited_s=timeout_s + patience_s, is_in_doubt=True
                    )
        except BaseException:
            self._inbox.withdraw(request_id)
            raise
        if answer is None:
            raise ChangeTimeoutError(self._path, owner, waited_s=timeout_s, is_in_doubt=False)
        if answer.outcome == REFUSED:
            raise ChangeRefusedError(kind_of(change), answer.reason)
        return answer

    def _wait(self, request_id: str, timeout_s: float) -> tuple[ChangeAnswer | None, str]:
        """The answer, or None after the timeout; and the owner of the store."""
        deadline_s = self._clock.monotonic() + timeout_s
        owner, look_s = "another process", self._clock.monotonic()
        while True:
            if self._clock.monotonic() >= look_s:
                owner = self._serve(request_id) or owner
                look_s = self._clock.monotonic() + _LOCK_PAUSE_S
            if self._has_new_beat(request_id):
                deadline_s = max(deadline_s, self._clock.monotonic() + timeout_s)
            answer = self._inbox.take_answer(request_id)
            if answer is not None or self._clock.monotonic() >= deadline_s:
                return answer, owner
            self._pause(_ANSWER_PAUSE_S)

    def _look(self, request_id: str) -> None:
        self._has_new_beat(request_id)

    def _has_new_beat(self, request_id: str) -> bool:
        beat = self._inbox.progress(request_id)
        if beat is None or beat.number == self._beat:
            return False
        self._beat = beat.number
        if self._on_progress is not None:
            self._on_progress(beat.work)
        return True

    def _serve(self, request_id: str) -> str | None:
        """Open the store and serve the request. If it has an owner, return who that is."""
        try:
            store = self._open_store()
        except DirectoryLockedError as error:
            return error.owner
        try:
            store.changes.serve(meanwhile=lambda: self._look(request_id))
        finally:
            store.close()
        return None

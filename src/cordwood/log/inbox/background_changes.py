"""Changes that take long, each on a thread of its own, so that other requests need not wait."""

import contextlib
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from cordwood.clock import Clock
from cordwood.errors import CordwoodError, LogError
from cordwood.log.rules.work_progress import WorkDone, WorkProgress
from cordwood.value_class import dataclass, field

CHANGES_MAX: Final = 16  # under way at once; most of them wait for each other anyway
_PULSE_S: Final = 0.5

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Held:
    progress: WorkProgress = field(default_factory=WorkProgress)
    is_done: bool = False


class BackgroundChanges:
    """The long changes of one store that are under way. Any thread may call it."""

    def __init__(self, clock: Clock, note: Callable[[str, int, WorkDone], None]) -> None:
        """`note(request_id, beat, work)` reports the progress of a request now and then.

        The beat grows with each report, so that the requester sees that the owner is alive.
        """
        self._clock = clock
        self._note = note
        self._held: dict[str, _Held] = {}
        self._changed = threading.Condition()
        self._noting = threading.Lock()
        self._pulse_s = float("-inf")
        self._beat = 0

    def holds(self, request_id: str) -> bool:
        return request_id in self._held

    @property
    def is_busy(self) -> bool:
        return bool(self._held)

    @property
    def is_full(self) -> bool:
        return len(self._held) >= CHANGES_MAX

    def begin(
        self,
        request_id: str,
        work: Callable[[WorkProgress], Answer],
        finish: Callable[[Answer], None],
    ) -> None:
        """Run `work`, then `finish` with its result, on a new thread. Neither may raise.

        Raises `LogError` if too many changes are under way.
        """
        held = _Held()
        with self._changed:
            if self.is_full:
                raise LogError(f"{CHANGES_MAX} long changes are under way; try again later")
            self._held[request_id] = held

        def run() -> None:
            try:
                answer = work(held.progress)
                with self._noting:  # no progress is reported after the answer
                    held.is_done = True
                finish(answer)
            finally:
                with self._changed:
                    del self._held[request_id]
                    self._changed.notify_all()

        threading.Thread(target=run, name=f"cordwood-change {request_id[:8]}", daemon=True).start()

    def pulse(self) -> None:
        """Report the progress of each change, unless that happened just before."""
        now_s = self._clock.monotonic()
        if now_s - self._pulse_s < _PULSE_S:
            return
        self._pulse_s = now_s
        self._beat += 1
        with self._noting:
            for request_id, held in list(self._held.items()):
                if held.is_done:
                    continue
                with contextlib.suppress(CordwoodError, OSError):  # the store may be closing
                    self._note(request_id, self._beat, held.progress.so_far())

    def wait(self, timeout_s: float) -> None:
        """Wait until one of them is done, or for `timeout_s`."""
        with self._changed:
            if self._held:
                self._changed.wait(timeout_s)

    def join(self) -> None:
        """Wait until all are done. The caller has told them to end early."""
        with self._changed:
            while self._held:
                self._changed.wait()

"""Changes that take long: each on a thread of its own, so that the others need not wait."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from cordwood.clock import Clock
from cordwood.errors import CordwoodError, LogError
from cordwood.log.rules.work_progress import WorkDone, WorkProgress

LONG_CHANGES_MAX: Final = 16  # under way at once; most of them wait for each other anyway
_PULSE_S: Final = 0.5

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Held:
    progress: WorkProgress = field(default_factory=WorkProgress)
    is_done: bool = False


class LongChanges:
    """The long changes of one store that are under way. Any thread may call it."""

    def __init__(self, clock: Clock, note: Callable[[str, int, WorkDone], None]) -> None:
        """`note` is told, of each request and now and then, how far it is, and the how-manieth
        time that is said: who waits for it sees that we live.
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

    def begin(
        self,
        request_id: str,
        work: Callable[[WorkProgress], Answer],
        finish: Callable[[Answer], None],
    ) -> None:
        """Have `work` done, and `finish` with what it returns; neither may raise.

        Refused where too much is under way.
        """
        held = _Held()
        with self._changed:
            if len(self._held) >= LONG_CHANGES_MAX:
                raise LogError(
                    f"{LONG_CHANGES_MAX} changes that take long are under way: ask again later"
                )
            self._held[request_id] = held

        def run() -> None:
            try:
                answer = work(held.progress)
                with self._noting:  # nothing is said of it any more once it is answered
                    held.is_done = True
                finish(answer)
            finally:
                with self._changed:
                    del self._held[request_id]
                    self._changed.notify_all()

        threading.Thread(target=run, name=f"cordwood-change {request_id[:8]}", daemon=True).start()

    def pulse(self) -> None:
        """Say of each how far it is, unless that was said just before."""
        now_s = self._clock.monotonic()
        if now_s - self._pulse_s < _PULSE_S:
            return
        self._pulse_s = now_s
        self._beat += 1
        with self._noting:
            for request_id, held in list(self._held.items()):
                if held.is_done:
                    continue
                with contextlib.suppress(CordwoodError, OSError):  # what is looked at may just go
                    self._note(request_id, self._beat, held.progress.so_far())

    def wait(self, timeout_s: float) -> None:
        """Until one of them is done, or for so long."""
        with self._changed:
            if self._held:
                self._changed.wait(timeout_s)

    def join(self) -> None:
        """Until all are done: whoever calls this has told them to end soon."""
        with self._changed:
            while self._held:
                self._changed.wait()

"""Work on archives, in turns for each server: one that does not answer holds up no other."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


class ArchivePass:
    """Work that runs in a thread of its own. `error` is what ended it, if anything did."""

    def __init__(self) -> None:
        self.is_done = False
        self.error: BaseException | None = None


class ArchiveTurns:
    """Any thread may use it. Threads do not keep the process alive: a call may hang for good."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turns: dict[str, threading.Lock] = {}
        self._is_stopping = False

    def begin(
        self, place: str, function: Callable[[], None], *, skips_if_busy: bool
    ) -> ArchivePass:
        """Run `function` when it is its turn at `place`; or not at all if it would have to wait."""
        begun = ArchivePass()

        def run() -> None:
            lock = self._lock(place)
            has_turn = lock.acquire(blocking=not skips_if_busy)
            try:
                if has_turn and not self._is_stopping:
                    function()
            except BaseException as error:  # raised again by `wait`
                begun.error = error
            finally:
                if has_turn:
                    lock.release()
                with self._changed:
                    begun.is_done = True
                    self._changed.notify_all()

        threading.Thread(target=run, name="cordwood-archive", daemon=True).start()
        return begun

    def wait(self, passes: Sequence[ArchivePass], patience_s: float | None) -> None:
        """Wait for all of them, until `stop`, for at most `patience_s`; raise the first error."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_stopping or all(begun.is_done for begun in passes), patience_s
            )
        for begun in passes:
            if begun.error is not None:
                raise begun.error

    @contextmanager
    def turn(self, place: str) -> Iterator[None]:
        """Keep everybody else away from `place`, in this thread."""
        with self._lock(place):
            yield

    def stop(self, timeout_s: float) -> list[str]:
        """Begin nothing more; return the places at which work is still under way in the end."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
            turns = dict(self._turns)
        deadline_s = time.monotonic() + timeout_s
        late = []
        for place, lock in turns.items():
            if lock.acquire(timeout=max(deadline_s - time.monotonic(), 0)):
                lock.release()
            else:
                late.append(place)
        return late

    def _lock(self, place: str) -> threading.Lock:
        with self._changed:
            return self._turns.setdefault(place, threading.Lock())

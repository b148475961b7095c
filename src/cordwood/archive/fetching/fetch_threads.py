"""Threads that fetch parts of objects before somebody asks for them.

Each object store has a few threads of its own, so one that does not answer holds up no other. They
do not keep the process alive, because a call may hang, and they end when there is nothing to do.
Fetching ahead is an offer: a task that finds no place is refused, and a task that did not begin yet
can be done by whoever needs its result first.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Final, Protocol

from cordwood.archive.cache.held_pieces import PieceMemory
from cordwood.archive.objects.object_port import PIECE_BYTES, ObjectStore

logger = logging.getLogger(__name__)

# Pieces that are fetched at the same time from one store: together 32 MiB of memory.
THREADS_MAX: Final = 8
_QUEUED_MAX: Final = 64
_IDLE_S: Final = 5.0


class FetchTask(Protocol):
    """A piece to fetch."""

    def run(self) -> None:
        """In one of the threads. Must not raise."""
        ...

    def cancel(self) -> None:
        """It will not run."""
        ...


class _Place:
    """The work at one object store."""

    def __init__(self) -> None:
        self.queue: deque[FetchTask] = deque()
        self.threads: set[threading.Thread] = set()
        self.idle = 0


class FetchThreads:
    """Any thread may use it. Close it to end the threads.

    `memory` is where pieces wait that were fetched for a reader. When a thread ends because there
    is nothing to do, pieces that nobody came for are dropped.
    """

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self.memory = PieceMemory()
        self._threads_max = threads_max
        self._lock = threading.RLock()  # an interrupt in `with condition:` would leave it taken
        self._changed = threading.Condition(self._lock)
        self._places: dict[str, _Place] = {}
        self._is_closed = False

    def offer(self, objects: ObjectStore, task: FetchTask) -> bool:
        """Run `task` in one of the threads of this store.

        False if there is too much to do, or no thread to do it: then it does not run.
        """
        with self._lock:
            if self._is_closed:
                return False
            place = self._places.setdefault(objects.url, _Place())
            if len(place.queue) >= _QUEUED_MAX:
                return False
            if len(place.queue) >= place.idle and len(place.threads) < self._threads_max:
                self._start_thread(place)
            if not place.threads:
                return False
            place.queue.append(task)
            self._changed.notify_all()
            return True

    def _start_thread(self, place: _Place) -> None:
        thread = threading.Thread(
            target=self._work, args=(place,), name="cordwood-archive-ahead", daemon=True
        )
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:  # the next offer tries again
            logger.debug("no thread to fetch ahead: %s", error)
        else:
            place.threads.add(thread)

    def _work(self, place: _Place) -> None:
        while (task := self._next(place)) is not None:
            try:
                task.run()
            except Exception:
                logger.exception("fetching ahead failed")
        self.memory.drop_idle()

    def _next(self, place: _Place) -> FetchTask | None:
        """The next task; None if this thread shall end."""
        with self._lock:
            place.idle += 1
            self._changed.wait_for(lambda: place.queue or self._is_closed, _IDLE_S)
            place.idle -= 1
            if place.queue and not self._is_closed:
                return place.queue.popleft()
            place.threads.discard(threading.current_thread())
            return None

    def close(self, timeout_s: float = 0.0) -> None:
        """Cancel what did not begin; wait for at most `timeout_s` for what did."""
        with self._lock:
            self._is_closed = True
            cancelled = [task for place in self._places.values() for task in place.queue]
            threads = [thread for place in self._places.values() for thread in place.threads]
            for place in self._places.values():
                place.queue.clear()
            self._changed.notify_all()
        for task in cancelled:
            task.cancel()
        self.memory.close()
        deadline_s = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(deadline_s - time.monotonic(), 0))


class _Piece:
    """One piece of an object that is read in order. Taken by the first who begins it."""

    def __init__(
        self, objects: ObjectStore, key: str, position: int, size: int, whole: int
    ) -> None:
        self._objects = objects
        self._key = key
        self._position = position
        self._size = size
        self._whole = whole
        self._lock = threading.Lock()
        self._is_taken = False
        self._is_done = threading.Event()
        self._data = b""
        self._error: BaseException | None = None

    def run(self) -> None:
        if not self.take():
            return
        try:
            self._data = self._objects.get_range(
                self._key, self._position, self._size, whole=self._whole
            )
        except BaseException as error:  # raised by `result`
            self._error = error
        self._is_done.set()

    def take(self) -> bool:
        with self._lock:
            was_taken, self._is_taken = self._is_taken, True
        return not was_taken

    def cancel(self) -> None:
        """Nothing to do: `result` does it itself."""

    def result(self) -> bytes:
        self.run()
        self._is_done.wait()
        if self._error is not None:
            raise self._error
        return self._data


def read_ahead(threads: FetchThreads, objects: ObjectStore, key: str, size: int) -> Iterator[bytes]:
    """The bytes of an object of this size, in pieces, the next few of which are under way.

    Raises as `check_whole` does if it has another size.
    """
    pending: deque[_Piece] = deque()
    position = 0
    try:
        while pending or position < size:
            while position < size and len(pending) < THREADS_MAX:
                length = min(PIECE_BYTES, size - position)
                piece = _Piece(objects, key, position, length, size)
                if pending:
                    threads.offer(objects, piece)  # if refused, `result` fetches it
                pending.append(piece)
                position += length
            yield pending.popleft().result()
    finally:
        for piece in pending:
            piece.take()  # nobody wants the rest any more

"""The threads for requests that may wait for the disk.

A thread costs more than its stack: each that has appended something keeps a buffer, as large as
the most that it appended at once, up to 1.3 MB. So there are only as many as there are tasks at
once, and those that had nothing to do for a while end.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_IDLE_S: Final = 5.0  # then a thread ends, unless it is the last one


class _Task(NamedTuple):
    future: "Future[Any]"
    run: Callable[[], None]


class Workers(Executor):
    """A pool of threads whose size can change. Any thread may use it.

    Its threads do not keep the process alive: one may wait for an archive that never answers.

    Invariants, until `shutdown`: ``len(_threads) == _staying + (None in _tasks)``, and all of them
    were started; ``_staying >= min(_unfinished, _count)``, so no task waits for another while there
    may be more threads. If the system has no more threads, the second does not hold until a later
    `submit` gets one; but ``_staying >= 1`` if there is a task.
    """

    def __init__(self, count: int, *, idle_s: float = _IDLE_S) -> None:
        self._lock = threading.Lock()
        self._count = count
        self._idle_s = idle_s
        self._unfinished = 0  # tasks that wait or run
        self._staying = 0  # threads that were not told to end
        self._threads: set[threading.Thread] = set()
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()  # None ends one thread
        self._is_short = False  # the system refused a thread the last time
        self._is_shut_down = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As `Executor.submit`. Raises RuntimeError if the system refuses the only thread.

        Then `fn` does not run.
        """
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("the workers were shut down")
            task = _Task(future, run)
            is_missing = self._staying < min(self._unfinished + 1, self._count)
            if not (is_missing and self._start_thread(task)):
                self._tasks.put(task)
            self._unfinished += 1
            self._start_missing()
        return future

    def _start_missing(self) -> None:
        """Have enough threads for all tasks, unless the system refuses."""
        while self._staying < min(self._unfinished, self._count):
            if not self._start_thread(None):
                return

    def _start_thread(self, task: _Task | None) -> bool:
        """Start a thread, which begins with `task` at once. False if those that stay must suffice.

        Raises what the system says if there is no other thread.
        """
        thread = threading.Thread(
            target=self._run, args=([task],), name="cordwood-worker", daemon=True
        )
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            if not self._staying:
                raise
            self._note_shortage(error)
            return False
        self._staying += 1
        self._threads.add(thread)
        self._is_short = False
        return True

    def _note_shortage(self, error: Exception) -> None:
        if not self._is_short:
            self._is_short = True
            logger.warning(
                "no more threads for requests: %s; %d work on %d requests",
                error,
                self._staying,
                self._unfinished,
            )

    def resize(self, count: int) -> None:
        """Use so many threads, at least one, from the next request on."""
        assert count > 0, count
        with self._lock:
            self._count = count
            while self._staying > count:
                self._staying -= 1
                self._tasks.put(None)
            if not self._is_shut_down:
                self._start_missing()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._is_shut_down = True
            cancelled = self._take_all() if cancel_futures else []
            threads = list(self._threads)
            for _ in threads:
                self._tasks.put(None)
        for task in cancelled:  # without the lock: who waits for it is told here
            task.future.cancel()
        if wait:
            for thread in threads:
                thread.join()

    def _take_all(self) -> list[_Task]:
        """The tasks that did not begin. No thread will take them."""
        taken: list[_Task] = []
        try:
            while True:
                task = self._tasks.get_nowait()
                if task is not None:
                    taken.append(task)
        except Empty:
            return taken

    def _run(self, first: list[_Task | None]) -> None:
        task = first.pop()
        while True:
            if task is not None:
                task.run()
                del task  # what it refers to is not kept until the next one comes
                with self._lock:
                    self._unfinished -= 1
            try:
                task = self._tasks.get(timeout=self._idle_s)
            except Empty:
                if self._leave():
                    return
                task = None
                continue
            if task is None:
                break
        with self._lock:
            self._threads.discard(threading.current_thread())

    def _leave(self) -> bool:
        """Whether this thread may end: it had nothing to do, and the others suffice."""
        with self._lock:
            if self._is_shut_down or self._staying <= max(self._unfinished, 1):
                return False
            self._staying -= 1
            self._threads.discard(threading.current_thread())
            return True

"""The threads for requests that may wait for the disk."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Task(NamedTuple):
    future: "Future[Any]"
    run: Callable[[], None]


class Workers(Executor):
    """A pool of threads whose size can change. Any thread may use it.

    Its threads do not keep the process alive: one may wait for an archive that never answers.

    Invariant: ``len(_threads) == _staying + (None in _tasks)``, until `shutdown`. So there is a
    thread for every task.
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._count = count
        self._staying = 0  # threads that were not told to end
        self._threads: set[threading.Thread] = set()
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()  # None ends one thread
        self._is_shut_down = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
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
            self._tasks.put(_Task(future, run))
            if self._staying < self._count:
                self._staying += 1
                thread = threading.Thread(target=self._run, name="cordwood-worker", daemon=True)
                self._threads.add(thread)
                thread.start()
        return future

    def resize(self, count: int) -> None:
        """Use so many threads, at least one, from the next request on."""
        assert count > 0, count
        with self._lock:
            self._count = count
            while self._staying > count:
                self._staying -= 1
                self._tasks.put(None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._is_shut_down = True
            if cancel_futures:
                self._cancel_all()
            threads = list(self._threads)
            for _ in threads:
                self._tasks.put(None)
        if wait:
            for thread in threads:
                thread.join()

    def _cancel_all(self) -> None:
        try:
            while True:
                task = self._tasks.get_nowait()
                if task is not None:
                    task.future.cancel()
        except Empty:
            return

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task.run()
            del task  # what it refers to is not kept until the next one comes
        with self._lock:
            self._threads.discard(threading.current_thread())

"""The threads for requests that may wait for the disk."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Executor):
    """A pool of threads whose size can change. Any thread may use it."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._count = count
        self._pool = _pool(count)
        self._earlier: list[ThreadPoolExecutor] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with self._lock:
            return self._pool.submit(fn, *args, **kwargs)

    def resize(self, count: int) -> None:
        """Use so many threads from the next request on. Requests under way are finished."""
        with self._lock:
            if count != self._count:
                self._earlier.append(self._pool)
                self._pool.shutdown(wait=False)
                self._count, self._pool = count, _pool(count)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            pools = [*self._earlier, self._pool]
        for pool in pools:
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)


def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="cordwood-worker")

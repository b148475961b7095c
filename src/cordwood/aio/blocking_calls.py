"""Calls that wait for files, in the threads of a store, for tasks of a loop."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from cordwood.errors import LogClosedError
from cordwood.log.rules.fork_refusal import refuse_after_fork

_P = ParamSpec("_P")
_T = TypeVar("_T")


class BlockingCalls:
    """The threads of one store. At most `threads` of them, whatever the number of tasks.

    Tasks of any loop may use it. A forked child has none of the threads, and is refused.
    """

    def __init__(self, threads: int, name: str) -> None:
        """`name` is that of the store, for errors."""
        self.threads = threads
        self._name = name
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="cordwood-aio")
        refuse_after_fork(self, name)

    def submit(
        self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> "asyncio.Future[_T]":
        """Begin a call that may wait for files. Raises `LogClosedError` after `stop`."""
        try:
            running = self._pool.submit(function, *args, **kwargs)
        except RuntimeError as error:
            raise LogClosedError(self._name) from error
        return asyncio.wrap_future(running)

    async def call(self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function that may wait for files.

        If the task is cancelled before a thread takes the call, it is not made. After that it goes
        on, and its result is dropped.
        """
        return await self.submit(function, *args, **kwargs)

    async def stop(self) -> None:
        """Wait for the calls under way, and end the threads."""
        await settled(asyncio.to_thread(self._pool.shutdown))


async def settled(work: Awaitable[_T]) -> _T:
    """Wait for `work` to its end, also if the task is cancelled meanwhile.

    Then `CancelledError` is raised afterwards: what must be whole is whole.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled() and task.exception() is not None:
        cancelled.__cause__ = task.exception()
    raise cancelled

"""Calls that wait for files, in the threads of a store, for tasks of a loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Records that one visit of a thread brings: few at first, because a task may want one.
_FIRST_ITEMS: Final = 64
_ITEMS_MAX: Final = 4096


class BlockingCalls:
    """The threads of one store. At most `threads` of them, whatever the number of tasks."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="cordwood-aio")

    async def call(self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function that may wait for files.

        If the task is cancelled meanwhile, the call goes on, and its result is dropped.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pool, lambda: function(*args, **kwargs))

    async def iterate(self, begin: Callable[[], Iterator[_T]]) -> AsyncIterator[_T]:
        """The items of an iterator that reads files, a few thousand with each visit."""
        items = await self.call(begin)
        number = _FIRST_ITEMS
        while True:
            taken = await self.call(_take, items, number)
            for item in taken:
                yield item
            if len(taken) < number:
                return
            number = min(number * 4, _ITEMS_MAX)

    def stop(self) -> None:
        """Wait for the calls under way, and end the threads."""
        self.pool.shutdown(wait=True)


def _take(items: Iterator[_T], number: int) -> list[_T]:
    return list(islice(items, number))

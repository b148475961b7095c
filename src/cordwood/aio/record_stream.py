"""An async iterator over things that threads read from files, a chunk at a time.

It is no async generator: a generator is at its end once one of its awaits was cancelled. Here a
cancelled `anext` loses nothing, and the next one goes on. So a task may repeat
``asyncio.wait_for(anext(records), 1)``.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from cordwood.aio.blocking_calls import BlockingCalls

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

# What one visit of a thread brings: few items at first, because a task may want one; and no more
# bytes than this, by one item.
_FIRST_ITEMS: Final = 64
_ITEMS_MAX: Final = 4096
_CHUNK_BYTES: Final = 1024 * 1024
_RECORD_BYTES: Final = 100  # of a record besides its key and its value


class Feed(Protocol[_T_co]):
    """Says what a stream reads next. Called by one task at a time."""

    async def next_chunk(self) -> "Callable[[], Sequence[_T_co]] | None":
        """Wait for something to read; return the call that reads it. None at the end.

        The call is made in a thread, once, before the next question. Cancelling the wait has no
        effect on later ones.
        """
        ...

    def close(self) -> None:
        """Nothing is read any more. Safe to repeat. In the loop."""
        ...

    def abandon(self) -> None:
        """The same for a stream that nobody closed. Takes no lock: the collector calls it."""
        ...


class RecordStream(Generic[_T]):
    """Items of a feed, for one task at a time. `aclose` ends it early."""

    def __init__(self, calls: BlockingCalls, feed: Feed[_T]) -> None:
        self._calls = calls
        self._feed = feed
        self._chunk: Iterator[_T] = iter(())
        self._reading: asyncio.Future[Sequence[_T]] | None = None
        self._is_running = False
        self._is_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        for item in self._chunk:
            return item
        if self._is_running:
            raise RuntimeError("another task waits for the next record; give each its own iterator")
        self._is_running = True
        try:
            while not self._is_ended:
                taken = await self._next_chunk()
                if taken is None:
                    await self.aclose()
                    break
                self._chunk = iter(taken)
                for item in self._chunk:
                    return item
        except asyncio.CancelledError:
            raise
        except BaseException:
            await self.aclose()
            raise
        finally:
            self._is_running = False
        raise StopAsyncIteration

    async def _next_chunk(self) -> Sequence[_T] | None:
        if self._reading is None:
            call = await self._feed.next_chunk()
            if call is None:
                return None
            self._reading = self._calls.submit(call)
            self._reading.add_done_callback(notice)
        # A cancelled task leaves the call to the next `anext`.
        await asyncio.wait([self._reading])
        reading, self._reading = self._reading, None
        return reading.result()

    async def aclose(self) -> None:
        """End the iteration. Safe to repeat."""
        self._is_ended = True
        self._chunk = iter(())
        self._feed.close()

    def __del__(self) -> None:
        self._feed.abandon()


def notice(reading: "asyncio.Future[Any]") -> None:
    """For a call whose result may be dropped: without this, asyncio would log its failure."""
    if not reading.cancelled():
        reading.exception()


class IteratorFeed(Generic[_T]):
    """A feed over an iterator that reads files."""

    def __init__(self, begin: Callable[[], Iterator[_T]], weigh: Callable[[_T], int]) -> None:
        """`begin` makes the iterator, in a thread. `weigh` gives the bytes of an item."""
        self._begin = begin
        self._weigh = weigh
        self._items: Iterator[_T] | None = None
        self._number = _FIRST_ITEMS
        self._is_over = False

    async def next_chunk(self) -> Callable[[], Sequence[_T]] | None:
        return None if self._is_over else self._take

    def _take(self) -> Sequence[_T]:
        if self._items is None:
            self._items = self._begin()
        taken, self._is_over = take(self._items, self._number, self._weigh)
        self._number = min(self._number * 4, _ITEMS_MAX)
        return taken

    def close(self) -> None:
        self._is_over = True

    def abandon(self) -> None:
        self._is_over = True


def take(items: Iterator[_T], count_max: int, weigh: Callable[[_T], int]) -> tuple[list[_T], bool]:
    """The next items, as many as a task should hold in memory; and whether these were the last."""
    taken: list[_T] = []
    left = _CHUNK_BYTES
    for item in items:
        taken.append(item)
        left -= weigh(item)
        if left <= 0 or len(taken) >= count_max:
            return taken, False
    return taken, True


def record_bytes(record: Any) -> int:
    """About how much memory a record needs."""
    return len(record.value or b"") + len(record.key or b"") + _RECORD_BYTES

"""Waiting for logs to move, without a thread."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_reader import LogReader

# How often a log of another process is looked at: at first, and after a while without news.
_LOOK_S_MIN: Final = 0.005
_LOOK_S_MAX: Final = 0.05
# A log of this process tells its followers. They look by themselves as well, but rarely.
_LOOK_S_OF_OWNER: Final = 0.5


class LogNews:
    """Wakes a task when one of several logs moves. For one task at a time.

    Look at the logs between `begin` and `wait`: what moves after `begin` ends the wait.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Event()
        self._told_by: dict[int, PartitionLog] = {}
        self._is_told = True
        self._pause_s = _LOOK_S_MIN
        self._closers: list[Callable[[], None]] = []

    def add_closer(self, closer: Callable[[], None]) -> None:
        """Have it called at the end: it stops something else that calls `tell`."""
        self._closers.append(closer)

    def listen_to(self, logs: Sequence[LogReader]) -> None:
        """Listen to these logs, and to no others."""
        wanted = {log.partition: log for log in logs if isinstance(log, PartitionLog)}
        for number, log in list(self._told_by.items()):
            if wanted.get(number) is not log:
                log.promises.remove_listener(self.tell)
                del self._told_by[number]
        for number, log in wanted.items():
            if number not in self._told_by:
                log.promises.add_listener(self.tell)
                self._told_by[number] = log
        self._is_told = all(isinstance(log, PartitionLog) for log in logs)

    def tell(self) -> None:
        """Something moved. Called in any thread, also with locks of a log held."""
        with suppress(RuntimeError):  # the loop may be closed
            self._loop.call_soon_threadsafe(self._moved.set)

    def begin(self) -> None:
        """Forget the news so far: the task looks now."""
        self._moved.clear()

    def rest(self) -> None:
        """There was news: look often again."""
        self._pause_s = _LOOK_S_MIN

    async def wait(self, timeout_s: float) -> None:
        """Wait for news; at most that long, or until it is time to look without any."""
        pause_s = _LOOK_S_OF_OWNER if self._is_told else self._pause_s
        try:
            async with asyncio.timeout(min(pause_s, timeout_s)):
                await self._moved.wait()
        except TimeoutError:
            self._pause_s = min(self._pause_s * 2, _LOOK_S_MAX)

    def close(self) -> None:
        """Stop listening. Safe to repeat. In the loop."""
        self.listen_to(())
        while self._closers:
            self._closers.pop()()

    def abandon(self) -> None:
        """Have the loop close it. Takes no lock: the collector calls it, in any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.close)

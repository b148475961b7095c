"""What a follower of one or more logs reads next."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from cordwood.aio.log_news import LogNews
from cordwood.aio.record_stream import record_bytes, take
from cordwood.errors import LogClosedError
from cordwood.format.record import Record
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.merged_logs import MergedPositions, Turn
from cordwood.log.rules.isolation import Isolation
from cordwood.quantities import Offset

_T = TypeVar("_T")

# Offsets that one turn of a log covers, before the other logs are looked at.
_TURN_OFFSETS: Final = 4096


class FollowFeed(Generic[_T]):
    """The records of logs as they arrive, a turn of each log after the other."""

    def __init__(
        self,
        starts: Mapping[int, Offset],
        find_logs: Callable[[], Sequence[LogReader]],
        *,
        timeout_s: float | None,
        isolation: Isolation,
        labelled: Callable[[Record, int], _T],
    ) -> None:
        """`starts` has the first offset by partition. Other logs begin at their start."""
        self._find_logs = find_logs
        self._timeout_s = timeout_s
        self._isolation = isolation
        self._labelled = labelled
        self._positions = MergedPositions(starts, isolation)
        self._news: LogNews | None = None
        self._last_partition = -1
        self._quiet_since_s: float | None = None
        self._is_over = False

    async def next_chunk(self) -> Callable[[], Sequence[_T]] | None:
        loop = asyncio.get_running_loop()
        if self._news is None:
            self._news = LogNews()
        while not self._is_over:
            self._news.begin()
            logs = self._find_logs()
            self._news.listen_to(logs)
            turn = self._next_turn(logs)
            if turn is not None:
                self._quiet_since_s = None
                self._news.rest()
                return partial(self._read, *turn)
            if self._is_ended(logs):
                return None
            now_s = loop.time()
            if self._quiet_since_s is None:
                self._quiet_since_s = now_s
            left_s = float("inf")
            if self._timeout_s is not None:
                left_s = self._quiet_since_s + self._timeout_s - now_s
                if left_s <= 0:
                    return None
            await self._news.wait(left_s)
        return None

    def _is_ended(self, logs: Sequence[LogReader]) -> bool:
        return self._is_over or not logs  # other brokers may have all partitions

    def _next_turn(self, logs: Sequence[LogReader]) -> tuple[LogReader, Turn] | None:
        """The next log that has something to read, beginning after the one that was read last."""
        found: tuple[LogReader, Turn] | None = None
        for log in logs:
            turn = self._positions.turn(log, _TURN_OFFSETS)
            if turn is None:
                self._is_over = True
                return None
            if turn.start >= turn.stop:
                continue
            if turn.partition > self._last_partition:
                return log, turn
            found = found or (log, turn)
        return found

    def _read(self, log: LogReader, turn: Turn) -> Sequence[_T]:
        """Runs in a thread, one call at a time."""
        self._last_partition = turn.partition
        try:
            records = log.read(turn.start, stop=turn.stop, isolation=self._isolation)
            taken, is_all = take(records, _TURN_OFFSETS, record_bytes)
        except LogClosedError:
            self._is_over = True
            return ()
        stop = turn.stop if is_all else Offset(taken[-1].offset + 1)
        self._positions.finish(turn._replace(stop=stop))
        return [self._labelled(record, turn.partition) for record in taken]

    def close(self) -> None:
        self._is_over = True
        if self._news is not None:
            self._news.close()
            self._news = None

    def abandon(self) -> None:
        self._is_over = True
        if self._news is not None:
            self._news.abandon()

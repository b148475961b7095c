"""A reader of a group for a task. It holds no thread while it waits or while a record is handled.

The session (`log/topics/group_session.py`) belongs to one task at a time, and its calls that touch
the disk run in a thread one after the other. If a task is cancelled during such a call, the call
goes on; whoever uses the reader next waits for it first.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar

from cordwood.aio.blocking_calls import BlockingCalls, settled
from cordwood.aio.log_news import LogNews
from cordwood.aio.record_stream import notice, record_bytes, take
from cordwood.errors import LogClosedError, OffsetOutOfRangeError
from cordwood.log.reading.merged_logs import TopicRecord, labelled
from cordwood.log.topics.group import Group
from cordwood.log.topics.group_session import GroupSession, ReaderOptions, Unread
from cordwood.quantities import Offset

_T = TypeVar("_T")
_Chunk = tuple[list[TopicRecord], Offset]  # records, and where the read ended
_TURN_OFFSETS: Final = 4096


class AsyncGroupReader:
    """The records of a topic for one member of a group, as they arrive.

    Iterate it inside an ``async with`` block, in one task at a time. Open a reader for each task,
    and they share the partitions. It commits every `commit_interval_ms`, when it gives up a
    partition, and at the end of the block. If the block raises or the task is cancelled, it does
    not commit: the group gets the records since the last commit again.
    """

    def __init__(
        self, group: Group, topic: str, options: ReaderOptions, calls: BlockingCalls
    ) -> None:
        self.topic = topic
        self._group = group
        self._options = options
        self._calls = calls
        self._opened: GroupSession | None = None
        self._news: LogNews | None = None
        self._under_way: asyncio.Future[object] | None = None
        self._reading: tuple[int, asyncio.Future[_Chunk]] | None = None
        self._is_running = False
        # Records that were read and not given out, of the partition `_number`, up to `_stop`.
        self._chunk: deque[TopicRecord] = deque()
        self._number = -1
        self._stop = Offset(0)
        self._quiet_since_s: float | None = None

    def __repr__(self) -> str:
        session = self._opened
        if session is None:
            state = "not opened"
        else:
            state = "closed" if session.is_closed else f"partitions={session.partitions}"
        return f"AsyncGroupReader({self._group.name!r}, {self.topic!r}, {state})"

    @property
    def partitions(self) -> list[int]:
        """The partitions that this reader holds now. It takes them when it is iterated."""
        return [] if self._opened is None else self._opened.partitions

    @property
    def is_closed(self) -> bool:
        """Whether the reader has left the group."""
        return self._opened is not None and self._opened.is_closed

    # --- records -----------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TopicRecord:
        """The next record; says that the one before it was handled.

        Ends when the store is closed, after `stop`, or after `idle_timeout_ms` without a record.
        Raises `TopicDeletedError` when the topic is deleted. If it is cancelled, the next one goes
        on.
        """
        session = self._session()
        if session.is_closed:
            raise LogClosedError(repr(self))
        if self._is_running:
            raise RuntimeError(f"{self!r} is already being iterated; open a reader for each task")
        self._is_running = True
        try:
            await self._rest()
            session.mark_handled()
            record = await self._next(session)
        except LogClosedError:
            if session.is_live():
                raise
            record = None
        finally:
            self._is_running = False
        if record is None:
            raise StopAsyncIteration
        return record

    async def _next(self, session: GroupSession) -> TopicRecord | None:
        assert self._news is not None
        while session.is_live():
            self._news.begin()
            if session.is_commit_due:
                await self._call(session.commit_handled)
            if session.is_rebalance_due:
                self._drop_chunk()
                await self._call(session.rebalance)
            elif session.is_awaiting:
                await self._call(session.take_awaited)
            if self._chunk:
                return self._give_out(session)
            if not await self._read_turn(session) and not await self._wait(session):
                return None
        return None

    def _drop_chunk(self) -> None:
        """Forget records that were not given out: their partition may be another reader's soon."""
        self._chunk.clear()
        self._stop = Offset(0)
        self._reading = None

    def _give_out(self, session: GroupSession) -> TopicRecord:
        self._quiet_since_s = None
        record = self._chunk.popleft()
        session.give_out(self._number, record.offset)
        return record

    async def _read_turn(self, session: GroupSession) -> bool:
        """Read a turn of the next partition that has something; False if none has."""
        if self._stop:
            session.finish_turn(self._number, self._stop)
            self._stop = Offset(0)
        if self._reading is None:
            found = self._next_unread(session)
            if found is None:
                return False
            number, unread = found
            reading = self._calls.submit(self._read, number, unread)
            reading.add_done_callback(notice)
            self._reading = number, reading
        # A cancelled task leaves the call to the next `anext`.
        number, reading = self._reading
        await asyncio.wait([reading])
        self._reading = None
        try:
            records, stop = reading.result()
        except OffsetOutOfRangeError as error:
            session.step_over(number, error)
            return True
        self._chunk.extend(records)
        self._number, self._stop = number, stop
        return True

    def _next_unread(self, session: GroupSession) -> tuple[int, Unread] | None:
        """The next partition that has something, beginning after the one that was read last."""
        numbers = session.partitions
        later = [number for number in numbers if number > self._number]
        for number in later + numbers[: len(numbers) - len(later)]:
            unread = session.unread(number, _TURN_OFFSETS)
            if unread is not None:
                return number, unread
        return None

    def _read(self, number: int, unread: Unread) -> _Chunk:
        """Runs in a thread."""
        isolation = self._options.isolation
        records = unread.log.read(unread.start, stop=unread.stop, isolation=isolation)
        taken, is_all = take(records, _TURN_OFFSETS, record_bytes)
        stop = unread.stop if is_all else Offset(taken[-1].offset + 1)
        return [labelled(record, number) for record in taken], stop

    async def _wait(self, session: GroupSession) -> bool:
        """Wait for a record or for a partition. False when it was quiet for too long."""
        assert self._news is not None
        self._news.listen_to([session.log(number) for number in session.partitions])
        now_s = asyncio.get_running_loop().time()
        if self._quiet_since_s is None:
            self._quiet_since_s = now_s
        left_s = float("inf")
        if self._options.idle_timeout_ms is not None:
            left_s = self._quiet_since_s + self._options.idle_timeout_ms / 1000 - now_s
            if left_s <= 0:
                self._quiet_since_s = None
                return False
        await self._news.wait(left_s)
        return True

    # --- calls -------------------------------------------------------------------------------

    async def _call(self, function: Callable[[], _T]) -> _T:
        """Call a function of the session in a thread. It goes on if the task is cancelled."""
        running = self._calls.submit(function)
        self._under_way = running  # type: ignore[assignment]
        await asyncio.wait([running])
        self._under_way = None
        return running.result()

    async def _rest(self) -> None:
        """Wait for a call that a cancelled task left behind."""
        while self._under_way is not None:
            left = self._under_way
            await asyncio.wait([left])
            if self._under_way is left:
                self._under_way = None
            if not left.cancelled():
                left.exception()  # it was for the task that was cancelled

    def _session(self) -> GroupSession:
        if self._opened is None:
            raise RuntimeError(f"{self!r}: use it inside an `async with` block")
        return self._opened

    # --- committing and closing --------------------------------------------------------------

    async def commit(self) -> None:
        """Commit every record given out so far, also the one being handled. Durable on return."""
        session = self._session()
        await self._rest()
        await self._call(session.commit)

    def stop(self) -> None:
        """End the iteration after the record being handled. Any thread may call it."""
        self._session().stop()
        if self._news is not None:
            self._news.tell()

    async def close(self) -> None:
        """Commit every record given out, then leave the group. Safe to repeat.

        If the store was closed before, there is nothing to commit with: the records since the last
        commit come again.
        """
        await self._end(commits=True)

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise RuntimeError(f"{self!r} was opened before; open another reader")
        self._opened = await self._calls.call(self._group.session, self.topic, self._options)
        self._news = LogNews()
        self._news.add_closer(self._opened.listen(self._news.tell))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._end(commits=kind is None)

    async def _end(self, *, commits: bool) -> None:
        if self._opened is not None and self._news is not None:
            await settled(self._leave(self._opened, self._news, commits=commits))

    async def _leave(self, session: GroupSession, news: LogNews, *, commits: bool) -> None:
        await self._rest()
        self._drop_chunk()
        try:
            # Not in the threads of the store: they may have ended with it.
            await asyncio.to_thread(session.close if commits else session.leave)
        finally:
            news.close()

    def __del__(self) -> None:
        if self._news is not None:
            self._news.abandon()

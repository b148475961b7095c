"""One partition for tasks of a loop."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from cordwood.aio.append_dispatcher import AppendDispatcher
from cordwood.aio.blocking_calls import BlockingCalls
from cordwood.errors import LogClosedError, ReadOnlyError
from cordwood.format.record import Header, Record
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.log_source import open_view
from cordwood.log.rules.appended import Appended, AppendedRange
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation, is_committed_only
from cordwood.quantities import Offset

if TYPE_CHECKING:
    import pyarrow as pa

# How often a log of another process is looked at: at first, and after a while without news.
_LOOK_S_MIN: Final = 0.005
_LOOK_S_MAX: Final = 0.05
# A log of this process tells its followers. They look by themselves as well, but rarely.
_LOOK_S_OF_OWNER: Final = 5.0


class AsyncLog:
    """One partition. For the tasks of one loop."""

    def __init__(
        self, log: LogReader, calls: BlockingCalls, dispatcher: AppendDispatcher | None
    ) -> None:
        self.log = log
        self._calls = calls
        self._dispatcher = dispatcher

    def __repr__(self) -> str:
        return f"Async{self.log!r}"

    @property
    def partition(self) -> int:
        """The number of the partition."""
        return self.log.partition

    @property
    def start_offset(self) -> Offset:
        """The first offset that can be read."""
        return self.log.start_offset

    @property
    def high_watermark(self) -> Offset:
        """The first offset that cannot be read yet."""
        return self.log.high_watermark

    @property
    def end_offset(self) -> Offset:
        """The offset the next record will get."""
        return self.log.end_offset

    # --- appending ---------------------------------------------------------------------------

    async def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] | Mapping[str, bytes | None] = (),
        timestamp_ms: int | datetime | None = None,
        expected_offset: int | None = None,
    ) -> Appended:
        """Append one record; return its place once the topic's durability is reached.

        If the task is cancelled, the record may have been appended all the same, whole.
        """
        log, dispatcher = self._writable()
        item = log.appending.prepare(value, key, headers, timestamp_ms, expected_offset)
        return await dispatcher.append(log, item)

    async def append_many(
        self, records: Iterable[Any], *, expected_offset: int | None = None
    ) -> AppendedRange:
        """Append `Record`s or (key, value) pairs in order, all or none of them."""
        log, _ = self._writable()
        items = list(records)
        return await self._calls.call(log.append_many, items, expected_offset=expected_offset)

    def _writable(self) -> tuple[PartitionLog, AppendDispatcher]:
        if isinstance(self.log, PartitionLog) and self._dispatcher is not None:
            return self.log, self._dispatcher
        if self.log.is_closed:
            raise LogClosedError(self.log.name)
        raise ReadOnlyError(f"append to {self.log.name}")

    # --- reading -----------------------------------------------------------------------------

    async def get(self, offset: int) -> Record | None:
        """The record with that offset. See `LogReader.get`."""
        return await self._calls.call(self.log.get, offset)

    def read(
        self,
        start: int | None = None,
        *,
        stop: int | None = None,
        max_records: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> AsyncIterator[Record]:
        """Records from `start` (default: the first) up to `stop` or the high watermark."""
        return self._calls.iterate(
            lambda: self.log.read(start, stop=stop, max_records=max_records, isolation=isolation)
        )

    def __aiter__(self) -> AsyncIterator[Record]:
        return self.read()

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> AsyncIterator["pa.RecordBatch"]:
        """The same records as Arrow record batches."""
        return self._calls.iterate(
            lambda: self.log.scan(start, stop, columns=columns, isolation=isolation)
        )

    async def follow(
        self,
        start: int | None = None,
        *,
        idle_timeout_ms: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> AsyncIterator[Record]:
        """Records from `start` (default: the end) on, waiting for new ones as long as it takes.

        Ends when the store is closed, or after `idle_timeout_ms` without a new record.
        """
        view = open_view(self.log.source)
        offset, _ = view.readable(view.high_watermark if start is None else start, None)
        news = LogNews(self.log)
        timeout_s = None if idle_timeout_ms is None else idle_timeout_ms / 1000
        try:
            while True:
                end = await news.beyond(offset, timeout_s, isolation)
                if end is None:
                    return
                async for record in self.read(offset, stop=end, isolation=isolation):
                    yield record
                offset = end
        finally:
            news.close()

    async def offset_for_time(self, timestamp_ms: int | datetime) -> Offset | None:
        """The first offset at or after a time; None past the end."""
        return await self._calls.call(self.log.offset_for_time, timestamp_ms)

    async def find(self, key: bytes) -> Record | None:
        """The newest record with that key."""
        return await self._calls.call(self.log.find, key)


class LogNews:
    """Waits for the end of a log to move, without a thread. For one task at a time."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Event()
        self._is_told = isinstance(log, PartitionLog)
        self._is_closed = False
        if isinstance(log, PartitionLog):
            log.promises.add_listener(self._tell)

    def _tell(self) -> None:
        """Called in the thread that moved the log, with its locks held."""
        with suppress(RuntimeError):  # the loop may be closed
            self._loop.call_soon_threadsafe(self._moved.set)

    async def beyond(
        self, offset: Offset, timeout_s: float | None, isolation: Isolation
    ) -> Offset | None:
        """The end of what can be read, once it is past `offset`.

        None when the log is closed, or after `timeout_s`.
        """
        only_committed = is_committed_only(isolation)
        deadline_s = None if timeout_s is None else self._loop.time() + timeout_s
        pause_s = _LOOK_S_OF_OWNER if self._is_told else _LOOK_S_MIN
        while True:
            self._moved.clear()
            source = self._log.source
            if source.is_closed:
                return None
            try:
                end = source.last_stable_offset if only_committed else source.high_watermark
            except LogClosedError:
                return None
            if end > offset:
                return end
            left_s = pause_s
            if deadline_s is not None:
                left_s = min(pause_s, deadline_s - self._loop.time())
                if left_s <= 0:
                    return None
            try:
                async with asyncio.timeout(left_s):
                    await self._moved.wait()
            except TimeoutError:
                if not self._is_told:
                    pause_s = min(pause_s * 2, _LOOK_S_MAX)

    def close(self) -> None:
        """Stop listening. Safe to repeat."""
        if not self._is_closed and isinstance(self._log, PartitionLog):
            self._log.promises.remove_listener(self._tell)
        self._is_closed = True

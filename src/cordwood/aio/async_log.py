"""One partition for tasks of a loop."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cordwood.aio.append_dispatcher import AppendDispatcher
from cordwood.aio.blocking_calls import BlockingCalls
from cordwood.aio.follow_feed import FollowFeed
from cordwood.aio.record_stream import IteratorFeed, RecordStream, record_bytes
from cordwood.errors import LogClosedError, ReadOnlyError
from cordwood.format.record import Header, Record
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.log_source import open_view
from cordwood.log.rules.appended import Appended, AppendedRange
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation, is_committed_only
from cordwood.log.rules.topic_config import Durability
from cordwood.quantities import Offset

if TYPE_CHECKING:
    import pyarrow as pa


class AsyncLog:
    """One partition. Tasks of any loop may use it."""

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
        durability: Durability | None = None,
    ) -> Appended:
        """Append one record; return its place once its durability is reached.

        If the task is cancelled, the record may have been appended all the same, whole. For
        `durability` see `PartitionLog.append`.
        """
        log, dispatcher = self._writable()
        if durability is not None and durability != log.config.durability:
            return await self._calls.call(
                log.append,
                value,
                key=key,
                headers=headers,
                timestamp_ms=timestamp_ms,
                expected_offset=expected_offset,
                durability=durability,
            )
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
    ) -> RecordStream[Record]:
        """Records from `start` (default: the first) up to `stop` or the high watermark."""
        feed = IteratorFeed(
            lambda: self.log.read(start, stop=stop, max_records=max_records, isolation=isolation),
            record_bytes,
        )
        return RecordStream(self._calls, feed)

    def __aiter__(self) -> RecordStream[Record]:
        return self.read()

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> RecordStream["pa.RecordBatch"]:
        """The same records as Arrow record batches."""
        feed = IteratorFeed(
            lambda: self.log.scan(start, stop, columns=columns, isolation=isolation),
            lambda batch: batch.nbytes,
        )
        return RecordStream(self._calls, feed)

    def follow(
        self,
        start: int | None = None,
        *,
        idle_timeout_ms: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> RecordStream[Record]:
        """Records from `start` (default: the end) on, waiting for new ones as long as it takes.

        Ends when the store is closed or the topic is deleted, or after `idle_timeout_ms` without a
        new record. A cancelled `anext` loses nothing; the next one goes on.
        """
        is_committed_only(isolation)  # raises for an unknown one
        view = open_view(self.log.source)
        first, _ = view.readable(view.high_watermark if start is None else start, None)
        feed = FollowFeed(
            {self.partition: first},
            lambda: [self.log],
            timeout_s=None if idle_timeout_ms is None else idle_timeout_ms / 1000,
            isolation=isolation,
            labelled=lambda record, _: record,
        )
        return RecordStream(self._calls, feed)

    async def offset_for_time(self, timestamp_ms: int | datetime) -> Offset | None:
        """The first offset at or after a time; None past the end."""
        return await self._calls.call(self.log.offset_for_time, timestamp_ms)

    async def find(self, key: bytes) -> Record | None:
        """The newest record with that key."""
        return await self._calls.call(self.log.find, key)

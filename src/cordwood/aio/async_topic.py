"""One topic for tasks of a loop."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from cordwood.aio.append_dispatcher import AppendDispatcher
from cordwood.aio.async_log import AsyncLog
from cordwood.aio.blocking_calls import BlockingCalls
from cordwood.aio.follow_feed import FollowFeed
from cordwood.aio.record_stream import IteratorFeed, RecordStream, record_bytes
from cordwood.format.record import Header
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.merged_logs import ReadOrder, TopicRecord, labelled
from cordwood.log.rules.appended import Appended, AppendedMany
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation, is_committed_only
from cordwood.log.rules.topic_config import Durability, TopicConfig
from cordwood.log.topics.topic import Topic


class AsyncTopic:
    """The partitions of one topic. Tasks of any loop may use it."""

    def __init__(
        self, topic: Topic[Any], calls: BlockingCalls, dispatcher: AppendDispatcher | None
    ) -> None:
        self.topic = topic
        self._calls = calls
        self._dispatcher = dispatcher

    def __repr__(self) -> str:
        return f"Async{self.topic!r}"

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self.topic.name

    @property
    def config(self) -> TopicConfig:
        """The configuration of the topic, as it is now."""
        return self.topic.config

    @property
    def partition_count(self) -> int:
        """The number of partitions."""
        return self.topic.partition_count

    def partition(self, number: int) -> AsyncLog:
        """One partition. If it was never used, its files are opened here."""
        return AsyncLog(self.topic.partition(number), self._calls, self._dispatcher)

    def _opened(self, number: int) -> LogReader:
        log: LogReader = self.topic.partition(number)
        return log

    def __getitem__(self, number: int) -> AsyncLog:
        """``topic[0]``. A negative number counts from the last partition."""
        number = operator.index(number)
        return self.partition(number + self.partition_count if number < 0 else number)

    # --- appending ---------------------------------------------------------------------------

    async def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] | Mapping[str, bytes | None] = (),
        timestamp_ms: int | datetime | None = None,
        partition: int | None = None,
        expected_offset: int | None = None,
        durability: Durability | None = None,
    ) -> Appended:
        """Append one record. See `Topic.append`.

        If the task is cancelled, the record may have been appended all the same, whole.
        """
        number = self.topic.choose_partition(key) if partition is None else partition
        opened: LogReader | None = self.topic.opened(number)
        if opened is None:  # its files are opened, maybe made: not in the loop
            opened = await self._calls.call(self._opened, number)
        return await AsyncLog(opened, self._calls, self._dispatcher).append(
            value,
            key=key,
            headers=headers,
            timestamp_ms=timestamp_ms,
            expected_offset=expected_offset,
            durability=durability,
        )

    async def append_many(
        self, records: Iterable[Any], *, partition: int | None = None
    ) -> AppendedMany:
        """Append `Record`s or (key, value) pairs. See `Topic.append_many`."""
        items = list(records)
        return await self._calls.call(self.topic.append_many, items, partition=partition)

    # --- reading -----------------------------------------------------------------------------

    def read(
        self, *, order: ReadOrder = "time", isolation: Isolation = READ_UNCOMMITTED
    ) -> RecordStream[TopicRecord]:
        """All records of all partitions, oldest first. See `Topic.read`."""
        feed = IteratorFeed(lambda: self.topic.read(order=order, isolation=isolation), record_bytes)
        return RecordStream(self._calls, feed)

    def __aiter__(self) -> RecordStream[TopicRecord]:
        return self.read()

    def follow(
        self,
        start: Literal["start", "end"] | Mapping[int, int] = "end",
        *,
        idle_timeout_ms: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> RecordStream[TopicRecord]:
        """Records of all partitions as they arrive. See `Topic.follow`.

        A cancelled `anext` loses nothing; the next one goes on.
        """
        is_committed_only(isolation)  # raises for an unknown one
        feed = FollowFeed(
            self.topic.first_offsets(start, only_opened=True),
            lambda: self.topic.opened_partitions,
            timeout_s=None if idle_timeout_ms is None else idle_timeout_ms / 1000,
            isolation=isolation,
            labelled=labelled,
        )
        return RecordStream(self._calls, feed)

"""One topic for tasks of a loop."""

import asyncio
import operator
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

from cordwood.aio.append_dispatcher import AppendDispatcher
from cordwood.aio.async_log import AsyncLog
from cordwood.aio.blocking_calls import BlockingCalls
from cordwood.format.record import Header
from cordwood.log.reading.merged_logs import ReadOrder, TopicRecord, labelled
from cordwood.log.rules.appended import Appended, AppendedMany
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.topics.topic import Topic

# Records that a follower of a topic holds for a task that is slower than they arrive.
_HELD_MAX = 4096


class AsyncTopic:
    """The partitions of one topic. For the tasks of one loop."""

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
    ) -> Appended:
        """Append one record. See `Topic.append`.

        If the task is cancelled, the record may have been appended all the same, whole.
        """
        number = self.topic.choose_partition(key) if partition is None else partition
        return await self.partition(number).append(
            value,
            key=key,
            headers=headers,
            timestamp_ms=timestamp_ms,
            expected_offset=expected_offset,
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
    ) -> AsyncIterator[TopicRecord]:
        """All records of all partitions, oldest first. See `Topic.read`."""
        return self._calls.iterate(lambda: self.topic.read(order=order, isolation=isolation))

    def __aiter__(self) -> AsyncIterator[TopicRecord]:
        return self.read()

    async def follow(
        self,
        start: Literal["start", "end"] | Mapping[int, int] = "end",
        *,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> AsyncIterator[TopicRecord]:
        """Records of all partitions as they arrive. Ends when the store is closed.

        `start` is "start", "end", or the first offset by partition.
        """
        firsts = self.topic.first_offsets(start)
        held: asyncio.Queue[TopicRecord | BaseException | None] = asyncio.Queue(_HELD_MAX)

        async def follow_one(number: int, first: int) -> None:
            try:
                async for record in self.partition(number).follow(first, isolation=isolation):
                    await held.put(labelled(record, number))
                await held.put(None)
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # it is raised in the task that follows
                await held.put(error)

        tasks = [asyncio.create_task(follow_one(*each)) for each in firsts.items()]
        open_count = len(tasks)
        try:
            while open_count:
                item = await held.get()
                if item is None:
                    open_count -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

"""A consumer group for tasks of a loop."""

from collections.abc import Mapping

from cordwood.aio.async_group_reader import AsyncGroupReader
from cordwood.aio.blocking_calls import BlockingCalls
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation
from cordwood.log.topics.committed_offsets import TopicPartition
from cordwood.log.topics.group import Group
from cordwood.log.topics.group_session import COMMIT_INTERVAL_MS, FirstPosition, ReaderOptions
from cordwood.quantities import Offset


class AsyncGroup:
    """One consumer group: its committed offsets, and readers that commit by themselves."""

    def __init__(self, group: Group, calls: BlockingCalls) -> None:
        self.group = group
        self._calls = calls

    def __repr__(self) -> str:
        return f"Async{self.group!r}"

    def reader(
        self,
        topic: str,
        *,
        start: FirstPosition = "start",
        commit_interval_ms: int = COMMIT_INTERVAL_MS,
        idle_timeout_ms: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> AsyncGroupReader:
        """A reader over all partitions of a topic that resumes where the group stopped.

            async with store.group("billing").reader("orders") as reader:
                async for record in reader:
                    await handle(record)

        The options and the promises are those of `Group.reader`. Readers of tasks and of threads
        share the partitions.
        """
        options = ReaderOptions(
            start=start,
            commit_interval_ms=commit_interval_ms,
            idle_timeout_ms=idle_timeout_ms,
            isolation=isolation,
        )
        return AsyncGroupReader(self.group, topic, options, self._calls)

    async def commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str]]) -> None:
        """Commit the next offset to read of each partition. See `Group.commit`."""
        await self._calls.call(self.group.commit, offsets)

    async def committed(self) -> dict[TopicPartition, Offset]:
        """All offsets that the group has committed."""
        return await self._calls.call(self._committed)

    def _committed(self) -> dict[TopicPartition, Offset]:
        return self.group.committed()

    async def forget(self, *partitions: TopicPartition) -> None:
        """Remove committed offsets. See `Group.forget`."""
        await self._calls.call(self.group.forget, *partitions)

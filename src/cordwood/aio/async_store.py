"""A store for tasks of a loop: the same store, with its waiting done elsewhere."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from cordwood.aio.append_dispatcher import AppendDispatcher
from cordwood.aio.async_group import AsyncGroup
from cordwood.aio.async_topic import AsyncTopic
from cordwood.aio.blocking_calls import BlockingCalls, settled
from cordwood.library import open_store
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import Store
from cordwood.log.topics.committed_offsets import TopicPartition
from cordwood.quantities import Offset

_THREADS: Final = 4
_OPENED_MAX: Final = 64  # partitions of a new topic


class AsyncStore:
    """Topics and groups, for tasks of any loop. `store` is the store itself."""

    def __init__(self, store: Store | ReadOnlyStore, calls: BlockingCalls) -> None:
        self.store: Any = store
        self._calls = calls
        self._dispatcher = (
            AppendDispatcher(calls.threads, repr(store)) if isinstance(store, Store) else None
        )

    def __repr__(self) -> str:
        return f"Async{self.store!r}"

    # --- topics ------------------------------------------------------------------------------

    def topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, in order."""
        names: list[str] = self.store.topics(include_internal=include_internal)
        return names

    def topic(self, name: str) -> AsyncTopic:
        """The topic of that name. Raises `UnknownTopicError`."""
        return AsyncTopic(self.store.topic(name), self._calls, self._dispatcher)

    def __getitem__(self, name: str) -> AsyncTopic:
        return self.topic(name)

    def __contains__(self, name: object) -> bool:
        return name in self.store

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        exist_ok: bool = False,
    ) -> AsyncTopic:
        """Create a topic. See `Store.create_topic`."""

        def create() -> None:
            topic = self.store.create_topic(
                name, partitions=partitions, config=config, exist_ok=exist_ok
            )
            if topic.partition_count <= _OPENED_MAX:
                topic.partitions  # noqa: B018 (opens them here, so that no append has to)

        await self._calls.call(create)
        return self.topic(name)

    async def alter_topic(
        self,
        name: str,
        *,
        config: Mapping[str, object | None] | None = None,
        partitions: int | None = None,
    ) -> AsyncTopic:
        """Set configuration keys (None: back to the default), or add partitions."""
        await self._calls.call(self.store.alter_topic, name, config=config, partitions=partitions)
        return self.topic(name)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and the offsets that groups committed for it."""
        await self._calls.call(self.store.delete_topic, name)

    # --- groups ------------------------------------------------------------------------------

    def group(self, name: str) -> AsyncGroup:
        """A consumer group: its committed offsets, and readers that commit by themselves."""
        return AsyncGroup(self.store.group(name), self._calls)

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int | tuple[int, str]]
    ) -> None:
        """The same as ``group(name).commit(offsets)``."""
        await self.group(group).commit(offsets)

    async def committed(self, group: str) -> dict[TopicPartition, Offset]:
        """The same as ``group(name).committed()``."""
        return await self.group(group).committed()

    # --- transactions ------------------------------------------------------------------------

    async def in_transaction(
        self, transactional_id: str, appends: Callable[[Any], None], **options: int
    ) -> None:
        """Call `appends` with a transaction, in a thread, and commit it. See `Store.transaction`.

        If `appends` raises, the transaction is aborted.
        """

        def run() -> None:
            with self.store.transaction(transactional_id, **options) as transaction:
                appends(transaction)

        await self._calls.call(run)

    # --- anything else -----------------------------------------------------------------------

    async def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of `store`, or anything else that waits for files, in a thread."""
        return await self._calls.call(function, *args, **kwargs)

    async def close(self) -> None:
        """Finish the appends that were queued, sync everything and close. Safe to repeat.

        Later appends raise `LogClosedError`. If the task is cancelled, the store is closed first.
        """
        await settled(asyncio.to_thread(self._close))

    def _close(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.stop()
        self.store.close()


@asynccontextmanager
async def open_async(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    data_dirs: Sequence[str | os.PathLike[str]] = (),
    config: Mapping[str, object] | None = None,
    threads: int = _THREADS,
    **options: Any,
) -> AsyncIterator[AsyncStore]:
    """Open the store in `path` for tasks. See `cordwood.open` for the options.

    `threads` is the number of threads that wait for files on behalf of all tasks.
    """
    calls = BlockingCalls(threads, f"the store in {os.fspath(path)}")
    opening: Callable[..., Store | ReadOnlyStore] = open_store
    begun = calls.submit(
        opening, path, read_only=read_only, data_dirs=data_dirs, config=config, **options
    )
    try:
        try:
            store = await settled(begun)
        except asyncio.CancelledError:
            if begun.exception() is None:  # it was opened all the same, and nobody will close it
                await settled(asyncio.to_thread(begun.result().close))
            raise
        opened = AsyncStore(store, calls)
        try:
            yield opened
        finally:
            await opened.close()
    finally:
        await calls.stop()

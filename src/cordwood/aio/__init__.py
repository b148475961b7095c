"""A store for programs with asyncio.

    async with cordwood.aio.open("data") as store:
        orders = await store.create_topic("orders", exist_ok=True)
        await orders.append(b"paid", key=b"user:42")
        async for record in orders[0].follow(0):
            print(record.offset, record.value)

        async with store.group("billing").reader("orders") as reader:
            async for record in reader:
                await handle(record)

The promises are those of `cordwood.open`. Nothing blocks the loop: files are read and written by a
few threads of the store. Appends of any number of tasks share their syncs.
"""

from cordwood.aio.async_group import AsyncGroup
from cordwood.aio.async_group_reader import AsyncGroupReader
from cordwood.aio.async_log import AsyncLog
from cordwood.aio.async_store import AsyncStore, open_async
from cordwood.aio.async_topic import AsyncTopic
from cordwood.aio.record_stream import RecordStream

open = open_async

__all__ = [
    "AsyncGroup",
    "AsyncGroupReader",
    "AsyncLog",
    "AsyncStore",
    "AsyncTopic",
    "RecordStream",
    "open",
]

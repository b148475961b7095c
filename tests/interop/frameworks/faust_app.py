"""Faust: an agent that counts the records of each key in a table, with its changelog topic."""

import asyncio
import sys

import faust

count = int(sys.argv[2])
app = faust.App(
    "faust",
    broker=f"kafka://{sys.argv[1]}",
    store="memory://",
    datadir=sys.argv[3],
    topic_partitions=2,
    value_serializer="json",
    web_enabled=False,
)
orders = app.topic("orders", key_type=str, value_type=dict)
totals = app.Table("totals", default=int, partitions=2)
seen = []


@app.agent(orders)
async def tally(stream: faust.Stream) -> None:
    async for key, _ in stream.items():
        totals[key] += 1
        seen.append(totals[key])
        if len(seen) == count:
            print(sorted(seen), flush=True)


@app.task
async def send() -> None:
    for n in range(count):
        await orders.send(key=f"user:{n % 2}", value={"amount": n})


async def main() -> None:
    async with asyncio.timeout(90):
        await app.start()
        while len(seen) < count:
            await asyncio.sleep(0.1)
    await app.stop()


asyncio.get_event_loop_policy().get_event_loop().run_until_complete(main())

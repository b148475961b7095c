"""FastStream: a subscriber that publishes what it got, upper case, to another topic."""

import asyncio
import sys

from faststream import FastStream
from faststream.confluent import KafkaBroker

broker = KafkaBroker(sys.argv[1])
app = FastStream(broker)
seen: set[str] = set()
done = asyncio.Event()


@broker.subscriber("orders", group_id="faststream", auto_offset_reset="earliest")
@broker.publisher("shouted")
async def shout(body: str) -> str:
    return body.upper()


@broker.subscriber("shouted", group_id="faststream-check", auto_offset_reset="earliest")
async def collect(body: str) -> None:
    seen.add(body)
    if len(seen) == int(sys.argv[2]):
        done.set()


async def main() -> None:
    async with broker:
        await broker.start()
        for n in range(int(sys.argv[2])):
            await broker.publish(f"order {n}", "orders")
        async with asyncio.timeout(60):
            await done.wait()
    print(sorted(seen))


asyncio.run(main())

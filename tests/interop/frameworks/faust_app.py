"""Faust: an agent that counts the records of each key in a table, with its changelog topic."""

import os
import signal
import sys

import faust

servers, count, state = sys.argv[1], int(sys.argv[2]), sys.argv[3]
app = faust.App(
    "faust",
    broker=f"kafka://{servers}",
    store="memory://",
    datadir=state,
    topic_partitions=2,
    topic_replication_factor=1,
    web_enabled=False,
)
orders = app.topic("orders", key_type=str, key_serializer="raw", value_serializer="json")
totals = app.Table("totals", default=int, partitions=2)
seen = []


@app.agent(orders)
async def tally(stream: faust.Stream) -> None:
    async for key, _ in stream.items():
        totals[key] += 1
        seen.append(totals[key])
        if len(seen) == count:
            print(sorted(seen), flush=True)
            os.kill(os.getpid(), signal.SIGTERM)  # the worker ends as an operator ends it


@app.task
async def send() -> None:
    for n in range(count):
        await orders.send(key=f"user:{n % 2}", value={"amount": n})


faust.Worker(app, loglevel="WARNING", redirect_stdouts=False).execute_from_commandline()

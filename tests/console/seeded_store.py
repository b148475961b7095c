"""A store with something of everything the console shows, also of what tries to harm it."""

import json
from pathlib import Path

import cordwood
from cordwood.format.record import Record
from fakes.hostile_texts import HOSTILE

DAY_MS = 86_400_000


def seed(path: Path, now_ms: int) -> None:
    """orders: nine days, of which some are due; accounts: compacted; hostile: as the name says."""
    with cordwood.open(path, config={"durability": "os"}) as store:
        orders = store.create_topic(
            "orders", partitions=2, config={"segment.records": "50", "retention.ms": "5d"}
        )
        records = [
            Record(
                key=f"user-{n % 20}".encode(),
                value=json.dumps({"id": n, "status": "paid", "amount": n * 1.5}).encode(),
                headers=[("trace", f"t-{n}".encode())],
                timestamp_ms=now_ms - 9 * DAY_MS + n * DAY_MS // 45,
            )
            for n in range(400)
        ]
        for first in range(0, 400, 50):  # a segment each
            for partition in range(2):
                orders.append_many(records[first : first + 50], partition=partition)
        accounts = store.create_topic(
            "accounts", config={"cleanup.policy": "compact", "segment.records": "50"}
        )
        for _ in range(2):
            for _ in range(4):
                accounts.append_many([(f"a-{n % 9}".encode(), b"%d" % n) for n in range(50)])
            store.compact("accounts", force=True)
        accounts.append_many([(f"a-{n % 9}".encode(), b"%d" % n) for n in range(120)])
        store.create_topic("empty")
        hostile = store.create_topic("hostile")
        for text in HOSTILE:
            data = text.encode()
            hostile.append(data, key=data, headers=[(text[:100], data)])
            hostile.append(json.dumps({text[:200]: text}).encode(), key=data)
            store.group(text[:200]).commit({("hostile", 0): (1, text[:200])})
        store.group("billing").commit({("orders", 0): 150, ("orders", 1): 399})
        with store.transaction("seed-transaction") as transaction:
            transaction.append("orders", b'{"id": 1000}', key=b"tx", partition=0)

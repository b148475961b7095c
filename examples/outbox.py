"""An outbox: a database transaction and its events, which reach the log exactly once.

    python examples/outbox.py [DIRECTORY]

A shop writes an order and its event in one SQLite transaction. A relay moves events from the
table to the log. It may crash at any moment: an event is published once, and none is lost.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import cordwood

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, cents INTEGER);
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY, batch INTEGER, key TEXT, value TEXT);
CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY AUTOINCREMENT);
"""


def place_order(database: sqlite3.Connection, customer: str, cents: int) -> None:
    """The order and its event are committed together, or neither is."""
    with database:
        database.execute("INSERT INTO orders (customer, cents) VALUES (?, ?)", (customer, cents))
        event = f'{{"customer": "{customer}", "cents": {cents}}}'
        database.execute("INSERT INTO outbox (key, value) VALUES (?, ?)", (customer, event))


def number_new_events(database: sqlite3.Connection) -> None:
    """Put all new events into one batch. Its number is durable before it is published."""
    with database:
        if database.execute("SELECT 1 FROM outbox WHERE batch IS NULL").fetchone():
            number = database.execute("INSERT INTO batches DEFAULT VALUES").lastrowid
            database.execute("UPDATE outbox SET batch = ? WHERE batch IS NULL", (number,))


def relay(database: sqlite3.Connection, store: cordwood.Store, *, crashes: bool = False) -> int:
    """Publish what is in the outbox. Returns how many events were new to the log."""
    number_new_events(database)
    topic, count = store["orders"], 0
    numbers = database.execute("SELECT DISTINCT batch FROM outbox ORDER BY batch").fetchall()
    for (number,) in numbers:
        records: dict[tuple[str, int], list[tuple[bytes, bytes]]] = {}
        rows = database.execute(
            "SELECT key, value FROM outbox WHERE batch = ? ORDER BY id", (number,)
        )
        for key, value in rows:
            place = ("orders", topic.choose_partition(key.encode()))
            records.setdefault(place, []).append((key.encode(), value.encode()))
        # The store remembers the last number: a batch that is published again changes nothing.
        published = store.publish("shop-outbox", number, records)
        count += 0 if published.is_repeated else sum(map(len, records.values()))
        if crashes:
            raise SystemError("the relay crashed after it had published")
        with database:
            database.execute("DELETE FROM outbox WHERE batch = ?", (number,))
    return count


def main(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    with (
        closing(sqlite3.connect(directory / "shop.db")) as database,
        cordwood.open(directory / "data") as store,
    ):
        database.executescript(SCHEMA)
        store.create_topic("orders", partitions=2, exist_ok=True)
        place_order(database, "anna", 250)
        place_order(database, "ben", 90)
        print("relayed", relay(database, store))

        place_order(database, "anna", 60)
        try:
            relay(database, store, crashes=True)
        except SystemError as error:
            print(error)
        place_order(database, "cleo", 15)
        print("relayed", relay(database, store), "after the crash")
        print("in the log:", sorted((r.value or b"").decode() for r in store["orders"]))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))

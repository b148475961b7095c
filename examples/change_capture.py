"""Change data capture: a SQLite table becomes a topic, and the topic becomes a view elsewhere.

    python examples/change_capture.py [DIRECTORY]

Triggers note every change of the table `customers`. A capture moves the changes to a compacted
topic: the key is the row's id, the value is the row, and a deleted row is a tombstone. A reader
keeps a view of it. A new view can be built at any time, because the topic keeps every row.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import cordwood

ROW = "json_object('id', {0}.id, 'name', {0}.name, 'city', {0}.city)"
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
CREATE TABLE IF NOT EXISTS changes (number INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER, row TEXT);
CREATE TRIGGER IF NOT EXISTS inserted AFTER INSERT ON customers BEGIN
    INSERT INTO changes (id, row) VALUES (NEW.id, {ROW.format("NEW")}); END;
CREATE TRIGGER IF NOT EXISTS updated AFTER UPDATE ON customers BEGIN
    INSERT INTO changes (id, row) VALUES (NEW.id, {ROW.format("NEW")}); END;
CREATE TRIGGER IF NOT EXISTS deleted AFTER DELETE ON customers BEGIN
    INSERT INTO changes (id, row) VALUES (OLD.id, NULL); END;
"""


def capture(database: sqlite3.Connection, topic: cordwood.Topic) -> int:
    """Append the changes since the last one in the log. The log itself remembers which it was."""
    log = topic[0]
    newest = next(reversed(log), None)
    last = 0 if newest is None else int(dict(newest.headers)["change"] or b"0")
    rows = database.execute(
        "SELECT number, id, row FROM changes WHERE number > ? ORDER BY number", (last,)
    ).fetchall()
    log.append_many(
        cordwood.Record(
            None if row is None else row.encode(),
            key=b"%d" % identity,
            headers=[("change", b"%d" % number)],
        )
        for number, identity, row in rows
    )
    with database:  # they are durable in the log now
        database.execute("DELETE FROM changes WHERE number <= ?", (rows[-1][0] if rows else last,))
    return len(rows)


class View:
    """The rows as of `next_offset`. Kept in memory here; any table would do."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.next_offset = 0

    def catch_up(self, log: cordwood.LogReader) -> None:
        for record in log.read(self.next_offset):
            assert record.key is not None
            if record.value is None:
                self.rows.pop(record.key, None)
            else:
                self.rows[record.key] = record.value
            self.next_offset = record.offset + 1


def main(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    with (
        closing(sqlite3.connect(directory / "shop.db")) as database,
        cordwood.open(directory / "data") as store,
    ):
        database.executescript(SCHEMA)
        compacted = {"cleanup.policy": "compact"}
        topic = store.create_topic("customers", config=compacted, exist_ok=True)
        view = View()
        with database:
            database.execute("INSERT INTO customers (name, city) VALUES ('anna', 'Bergen')")
            database.execute("INSERT INTO customers (name, city) VALUES ('ben', 'Turin')")
        print("captured", capture(database, topic))
        view.catch_up(topic[0])

        with database:
            database.execute("UPDATE customers SET city = 'Oslo' WHERE name = 'anna'")
            database.execute("DELETE FROM customers WHERE name = 'ben'")
        print("captured", capture(database, topic))
        view.catch_up(topic[0])
        print("view:", [row.decode() for row in view.rows.values()])

        store.compact("customers", force=True)  # happens by itself in a running store
        late = View()
        late.catch_up(topic[0])
        assert late.rows == view.rows
        print("a new view reads", sum(1 for _ in topic[0]), "records and has the same rows")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))

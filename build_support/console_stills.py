"""Take docs/images/console-overview.png and console-messages.png from the real pages.

``python build_support/console_stills.py``            writes the pictures
``python build_support/console_stills.py DIRECTORY``  writes them elsewhere

Needs what `console_picture.py` needs.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path
from typing import Final

from console_picture import ROOT, browser_page, served_console
from playwright.sync_api import Page

import cordwood
from cordwood.console.console_server import ConsoleServer
from cordwood.format.record import Record
from cordwood.log.store.store import Store

DIRECTORY: Final = ROOT / "docs" / "images"
SIZE: Final = (1180, 860)
LOOKS: Final = 40
LOOK_S: Final = 0.25
TOPICS: Final = {"orders": 3, "payments": 2, "sensor-readings": 4}
CITIES: Final = ("Ghent", "Porto", "Turku", "Graz", "Lyon")
STATES: Final = ("created", "paid", "packed", "sent")


def order(chance: random.Random, number: int) -> Record:
    value = {
        "id": number,
        "status": chance.choice(STATES),
        "amount": chance.randrange(500, 20_000) / 100,
        "customer": {"name": f"customer {chance.randrange(900)}", "city": chance.choice(CITIES)},
    }
    return Record(key=b"customer-%d" % chance.randrange(900), value=json.dumps(value).encode())


def grow(store: Store, chance: random.Random, look: int) -> None:
    """What happens between two looks: appends to all topics, and groups that read them."""
    for name in TOPICS:
        count = chance.randrange(150, 350) + (400 if 18 <= look < 25 else 0)
        first = look * 1_000
        store.topic(name).append_many([order(chance, first + n) for n in range(count)])
    for group, share in (("billing", 0.995), ("mailer", 0.9)):
        ends = {log.partition: log.end_offset for log in store.topic("orders").partitions}
        store.group(group).commit({("orders", n): int(end * share) for n, end in ends.items()})


def take(page: Page, server: ConsoleServer, store: Store, directory: Path) -> None:
    console = server._console
    assert console is not None
    chance = random.Random(7)
    for look in range(LOOKS):
        grow(store, chance, look)
        time.sleep(LOOK_S)  # rates need time
        console.keeper.take_now(after_change=True)
    page.goto(f"{server.address}/")
    page.screenshot(path=directory / "console-overview.png")
    page.goto(
        f"{server.address}/topics/orders?q=value.status+%3D+paid+value.customer.city+%3D+Porto"
    )
    page.wait_for_timeout(3_000)  # until the search has read everything
    page.screenshot(path=directory / "console-messages.png")


def main(directory: Path) -> None:
    directory = directory.resolve()
    data = "data"  # this is shown in the pictures
    with (
        tempfile.TemporaryDirectory() as scratch,
        chdir(scratch),
        cordwood.open(data, config={"durability": "os", "segment.records": "2000"}) as store,
        browser_page(*SIZE) as page,
        served_console(data) as server,
    ):
        for name, partitions in TOPICS.items():
            store.create_topic(name, partitions=partitions)
        take(page, server, store, directory)
    sys.stdout.write(f"wrote console-overview.png and console-messages.png to {directory}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY)

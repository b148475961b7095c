"""What is done to a store before the power goes. To add one, write a function below.

A script gets a client and uses it. It may take any decision from `client.rng`, and needs no
checks of its own: the history that the client keeps is checked after the cut.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Final
from unittest.mock import patch

from cordwood.log.rules import ahead_policy
from crash.client import DATA, Client

Script = Callable[[Client], None]
SCRIPTS: Final[dict[str, Script]] = {}

# Scripts whose store spreads over several data directories; all others have one.
_DIRECTORIES: Final[dict[str, tuple[str, ...]]] = {"two-directories": ("/data", "/more/data")}

# Small segments and dense indexes: in a few dozen appends everything happens.
SMALL: Final = {"internal.segment.bytes": 1200, "index.interval.bytes": 200}


# Each script has a twin with this ending: the same with zeros ahead of the logs.
AHEAD: Final = "-ahead"


def directories_of(script: str) -> tuple[str, ...]:
    return _DIRECTORIES.get(script.removesuffix(AHEAD), (DATA,))


def script(function: Script) -> Script:
    SCRIPTS[function.__name__.replace("_", "-")] = function
    return function


@script
def append(client: Client) -> None:
    """Single records and many at once, to one growing segment."""
    client.create_topic("orders", config={"index.interval.bytes": 300})
    for _ in range(client.rng.randint(3, 12)):
        if client.rng.random() < 0.6:
            client.append("orders", size_max=1500)
        else:
            client.append_many("orders", count=client.rng.randint(1, 8))
        if client.rng.random() < 0.2:
            client.read_beside()


@script
def roll(client: Client) -> None:
    """Segments that fill up, and segments that are sealed by request."""
    client.create_topic("orders", config=SMALL)
    for _ in range(client.rng.randint(6, 16)):
        client.append("orders", size_max=600)
        if client.rng.random() < 0.2:
            client.roll("orders")
        if client.rng.random() < 0.1:
            client.read_beside()


@script
def group_commit(client: Client) -> None:
    """Several appends per sync, over segment boundaries."""
    client.create_topic("orders", config=SMALL)
    for _ in range(client.rng.randint(2, 6)):
        client.append_group("orders", batches=client.rng.randint(1, 6))
        if client.rng.random() < 0.3:
            client.append("orders")


@script
def joined_appends(client: Client) -> None:
    """Batches of several clients in one write, as the broker has them, over segment boundaries."""
    client.create_topic("orders", config=SMALL)
    for _ in range(client.rng.randint(2, 6)):
        client.append_joined("orders", batches=client.rng.randint(1, 6))
        if client.rng.random() < 0.3:
            client.append("orders")
        if client.rng.random() < 0.2:
            client.maintain()


@script
def large_appends(client: Client) -> None:
    """Batches of many sectors, of which a power cut keeps any."""
    client.create_topic("orders", config={"internal.segment.bytes": 60_000})
    for _ in range(client.rng.randint(2, 6)):
        client.append_many("orders", count=client.rng.randint(1, 30), size_max=1500)


@script
def checkpoint(client: Client) -> None:
    """Recovery points that move while appends go on; stores that are closed and opened."""
    client.create_topic("orders", config=SMALL)
    for _ in range(client.rng.randint(4, 12)):
        client.append("orders")
        chance = client.rng.random()
        if chance < 0.35:
            client.maintain()
        elif chance < 0.5:
            client.reopen()
        client.advance(client.rng.choice((0, 1000, 120_000)))


@script
def truncate(client: Client) -> None:
    client.create_topic("orders", config=SMALL)
    for _ in range(client.rng.randint(2, 5)):
        for _ in range(client.rng.randint(1, 6)):
            client.append("orders")
        if client.rng.random() < 0.3:
            client.append_group("orders", batches=2)
        if client.rng.random() < 0.3:
            client.maintain()
        log = client.log("orders")
        client.truncate_to("orders", client.rng.randint(log.start_offset, log.end_offset))
        if client.rng.random() < 0.3:
            client.read_beside()
    client.append("orders")


@script
def delete_before(client: Client) -> None:
    client.create_topic("orders", config={**SMALL, "file.delete.delay.ms": 1000})
    for _ in range(client.rng.randint(2, 5)):
        for _ in range(client.rng.randint(2, 6)):
            client.append("orders")
        log = client.log("orders")
        client.delete_before("orders", client.rng.randint(log.start_offset, log.high_watermark))
        if client.rng.random() < 0.3:
            client.truncate_to("orders", client.rng.randint(log.start_offset, log.end_offset))
        if client.rng.random() < 0.5:
            client.advance(2000)
            client.maintain()


@script
def retention(client: Client) -> None:
    """Segments that go for their age, size or number, the active one among them."""
    limit = client.rng.choice(
        (
            {"retention.ms": 100_000},
            {"retention.bytes": 2000, "retention.ms": -1},
            {"retention.segments": 2, "retention.ms": -1},
            {"retention.bytes": 0, "retention.ms": -1},
        )
    )
    delay_ms = client.rng.choice((0, 1000))
    client.create_topic("orders", config={**SMALL, **limit, "file.delete.delay.ms": delay_ms})
    for _ in range(client.rng.randint(2, 6)):
        for _ in range(client.rng.randint(1, 6)):
            client.append("orders")
            client.advance(client.rng.choice((0, 20_000)))
        if client.rng.random() < 0.2:
            client.roll("orders")
        client.maintain()
        if client.rng.random() < 0.2:
            client.reopen()
        if client.rng.random() < 0.2:
            client.read_beside()


@script
def compaction(client: Client) -> None:
    """Records that newer ones supersede; the topic is compacted now and then, and not in between.

    So records without a key come in too, and gaps are met in a topic that allows none by its
    policy.
    """
    client.create_topic("orders", config={**SMALL, "file.delete.delay.ms": 0})
    for _ in range(client.rng.randint(1, 4)):
        for _ in range(client.rng.randint(2, 7)):
            client.append("orders")
        if client.rng.random() < 0.3:
            client.append_many("orders", count=client.rng.randint(1, 12))
        if client.rng.random() < 0.3:
            client.produce("orders", producer=client.rng.randrange(10**6))
        if client.rng.random() < 0.2:
            client.maintain()
        client.alter_topic("orders", {"cleanup.policy": "compact"})
        client.compact("orders")
        client.alter_topic("orders", {"cleanup.policy": "delete"})
        if client.rng.random() < 0.3:
            log = client.log("orders")
            client.delete_before("orders", client.rng.randint(log.start_offset, log.high_watermark))
        if client.rng.random() < 0.3:
            client.reopen()
        if client.rng.random() < 0.3:
            client.read_beside()


@script
def key_index(client: Client) -> None:
    """Indexes of keys that are made, lost and made again beside all the rest."""
    client.create_topic("orders", config={**SMALL, "key.index": True})
    for _ in range(client.rng.randint(2, 5)):
        for _ in range(client.rng.randint(2, 6)):
            client.append("orders")
        client.maintain()
        if client.rng.random() < 0.3:
            log = client.log("orders")
            client.truncate_to("orders", client.rng.randint(log.start_offset, log.end_offset))
        if client.rng.random() < 0.3:
            client.reopen()


@script
def topics(client: Client) -> None:
    """Topics that come, change, go, and come again under the same name."""
    names = ["orders", "payments"]
    for _ in range(client.rng.randint(3, 9)):
        name = client.rng.choice(names)
        chance = client.rng.random()
        if not client.has_topic(name):
            config = {**SMALL, "file.delete.delay.ms": 0}
            client.create_topic(name, partitions=client.rng.randint(1, 3), config=config)
        elif chance < 0.25:
            client.delete_topic(name)
        elif chance < 0.4:
            client.alter_topic(name, {"retention.ms": client.rng.randint(1000, 10**9)})
        elif chance < 0.5:
            client.add_partitions(name, client.store.topic(name).partition_count + 1)
        else:
            count = client.store.topic(name).partition_count
            for _ in range(3):
                client.append(name, client.rng.randrange(count))
        if client.rng.random() < 0.15:
            client.maintain()
        if client.rng.random() < 0.1:
            client.reopen()


@script
def topic_requests(client: Client) -> None:
    """Requests that create and delete several topics, some of which had records."""
    names = ["a", "b", "c", "d", "e"]
    for _ in range(client.rng.randint(2, 6)):
        chosen = client.rng.sample(names, client.rng.randint(1, 4))
        known = [name for name in chosen if client.has_topic(name)]
        missing = [name for name in chosen if name not in known]
        if missing:
            config = {**SMALL, "durability": client.rng.choice(("disk", "os"))}
            client.create_topics(missing, config={**config, "file.delete.delay.ms": 0})
        for name in known[1:]:
            client.append(name, client.rng.randrange(2))
        if known:
            client.delete_topics(known[:1] if client.rng.random() < 0.5 else known)
        if client.rng.random() < 0.2:
            client.maintain()
        if client.rng.random() < 0.2:
            client.reopen()


@script
def os_durability(client: Client) -> None:
    """A topic that acknowledges what the kernel has, beside one that waits for the disk."""
    client.create_topic("fast", config={**SMALL, "durability": "os"})
    client.create_topic("safe", config=SMALL)
    for _ in range(client.rng.randint(4, 14)):
        client.append("fast", size_max=800)
        chance = client.rng.random()
        if chance < 0.2:
            client.sync("fast")
        elif chance < 0.4:
            client.append("safe")
        elif chance < 0.5:
            client.maintain()


@script
def change_durability(client: Client) -> None:
    """From one promise to the other and back, with records on both sides."""
    client.create_topic("orders", config=SMALL)
    durability = "disk"
    for _ in range(client.rng.randint(3, 8)):
        for _ in range(client.rng.randint(1, 3)):
            client.append("orders")
        if client.rng.random() < 0.4:
            durability = "os" if durability == "disk" else "disk"
            client.alter_topic("orders", {"durability": durability})
        if client.rng.random() < 0.2:
            client.reopen()


@script
def idempotent_producers(client: Client) -> None:
    """Batches that are sent twice; producer snapshots taken and lost."""
    client.create_topic("orders", config=SMALL)
    for _ in range(client.rng.randint(3, 10)):
        client.produce("orders", client.rng.randint(1, 3))
        chance = client.rng.random()
        if chance < 0.2:
            client.maintain()
        elif chance < 0.3:
            client.roll("orders")


@script
def group_offsets(client: Client) -> None:
    """Committed offsets, in the topic that holds them."""
    client.create_topic("orders", config=SMALL)
    for _ in range(client.rng.randint(2, 6)):
        client.append("orders")
        client.commit(client.rng.choice(("billing", "audit")), "orders", client.rng.randint(0, 99))
        if client.rng.random() < 0.2:
            client.reopen()


@script
def publications(client: Client) -> None:
    """Batches for several partitions that come in whole, beside appends to the same ones."""
    client.create_topic("orders", partitions=2, config=SMALL)
    client.create_topic("audit", config=SMALL)
    places = [("orders", 0), ("orders", 1), ("audit", 0)]
    for _ in range(client.rng.randint(2, 7)):
        chosen = client.rng.sample(places, client.rng.randint(1, 3))
        client.publish(
            client.rng.choice(("etl", "cdc")),
            {place: client.rng.choice((1, 4, 15)) for place in chosen},
        )
        chance = client.rng.random()
        if chance < 0.4:
            client.append(*client.rng.choice(places))
        elif chance < 0.5:
            client.maintain()
        elif chance < 0.65:
            client.publish_again()
        elif chance < 0.75:
            client.reopen()
        elif chance < 0.85:
            client.read_beside()


@script
def transactions(client: Client) -> None:
    """Transactions over partitions, beside appends, over segment boundaries and restarts."""
    client.create_topic("orders", partitions=2, config=SMALL)
    client.create_topic("paid", config=SMALL)
    places = [("orders", 0), ("orders", 1), ("paid", 0)]
    for _ in range(client.rng.randint(2, 6)):
        client.transaction(
            client.rng.choice(("one", "two")),
            client.rng.sample(places, client.rng.randint(1, 3)),
            commits=client.rng.random() < 0.7,
        )
        chance = client.rng.random()
        if chance < 0.2:
            client.roll("orders")
        elif chance < 0.3:
            client.reopen()
        elif chance < 0.4:
            client.maintain()


@script
def lone_transactions(client: Client) -> None:
    """Transactions of one partition each, which their marker decides, and some of two."""
    client.create_topic("orders", partitions=2, config=SMALL)
    places = [("orders", 0), ("orders", 1)]
    for _ in range(client.rng.randint(3, 8)):
        client.transaction(
            client.rng.choice(("one", "two")),
            places if client.rng.random() < 0.15 else [client.rng.choice(places)],
            commits=client.rng.random() < 0.85,
        )
        chance = client.rng.random()
        if chance < 0.2:
            client.roll("orders")
        elif chance < 0.35:
            client.reopen()
        elif chance < 0.45:
            client.maintain()


@script
def two_directories(client: Client) -> None:
    """Partitions and topics spread over two disks, whose states a power cut chooses apart."""
    client.create_topic("orders", partitions=3, config={**SMALL, "file.delete.delay.ms": 0})
    for _ in range(client.rng.randint(3, 9)):
        chance = client.rng.random()
        partition = client.rng.randrange(client.store.topic("orders").partition_count)
        if chance < 0.6:
            client.append("orders", partition)
        elif chance < 0.7:
            client.maintain()
        elif chance < 0.8:
            client.add_partitions("orders", client.store.topic("orders").partition_count + 1)
        elif not client.has_topic("payments"):
            client.create_topic("payments", partitions=2, config=SMALL)
        elif chance < 0.9:
            client.delete_topic("payments")
        else:
            client.reopen()


@script
def everything(client: Client) -> None:
    """All of it at once, on two partitions."""
    client.create_topic("orders", partitions=2, config=SMALL)
    for _ in range(client.rng.randint(5, 20)):
        partition = client.rng.randrange(2)
        log = client.log("orders", partition)
        match client.rng.choice(("one", "many", "group", "roll", "cut", "drop", "keep", "again")):
            case "one":
                client.append("orders", partition)
            case "many":
                client.append_many("orders", partition, count=client.rng.randint(1, 6))
            case "group":
                client.append_group("orders", partition, batches=3)
            case "roll":
                client.roll("orders", partition)
            case "cut":
                at = client.rng.randint(log.start_offset, log.end_offset)
                client.truncate_to("orders", at, partition)
            case "drop":
                at = client.rng.randint(log.start_offset, log.high_watermark)
                client.delete_before("orders", at, partition)
            case "keep":
                client.maintain()
            case "again":
                client.reopen()
        client.advance(client.rng.choice((0, 10, 70_000)))
        if client.rng.random() < 0.1:
            client.read_beside()


# For files of a few hundred bytes: zeros end with such a page. A decorator of what runs a script.
small_pages = patch.object(ahead_policy, "PAGE_BYTES", 64)


def with_zeros_ahead(function: Script) -> Script:
    """The script with zeros from the first sync on, or soon, in steps that suit small segments."""

    def run(client: Client) -> None:
        chance = copy(client.rng)
        step = chance.choice((64, 512, 4096))
        client.preallocates = chance.choice((True, "auto"))
        with (
            patch.object(ahead_policy, "SMALL_SYNCS_MIN", chance.randint(1, 4)),
            patch.object(ahead_policy, "AHEAD_BYTES_MIN", step),
        ):
            function(client)

    return run


SCRIPTS.update({f"{name}{AHEAD}": with_zeros_ahead(run) for name, run in list(SCRIPTS.items())})

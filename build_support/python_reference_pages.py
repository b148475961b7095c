"""The pages of the Python reference: which name is on which page, and examples that run.

The blocks of a page run in order, in one namespace, in a directory that is empty at first.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A public name. `shown` is how a program writes it, `home` the module that defines it."""

    name: str
    home: str
    shown: str
    example: str = ""
    has_constructor: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    name: str
    title: str
    intro: str
    entries: tuple[Entry, ...]
    example: str = ""


def _of(home: str, *names: str, prefix: str = "cordwood", example: str = "") -> tuple[Entry, ...]:
    """Entries of one module; the example belongs to the last one."""
    return tuple(
        Entry(
            name=name,
            home=home,
            shown=f"{prefix}.{name}",
            example=example if name == names[-1] else "",
            has_constructor=name in _CONSTRUCTED,
        )
        for name in names
    )


_CONSTRUCTED = {"Broker"}  # programs make these themselves; the others come from a method

# Values whose fields are listed.
FIELDS = {"Appended", "AppendedRange", "Record", "SegmentInfo", "TopicRecord"}

# For other parts of Cordwood, although their names have no underscore.
INTERNAL = {
    ("Store", "open_security"),
    ("Store", "abandon"),
    ("ReadOnlyStore", "forecast_compaction"),
    ("Topic", "opened"),
    ("Topic", "opened_partitions"),
    ("Topic", "has_partition"),
    ("Topic", "add_log"),
    ("Topic", "add_partitions"),
    ("Topic", "end"),
    ("Topic", "reconfigure"),
    ("LogReader", "view"),
    ("PartitionLog", "state"),
    ("PartitionLog", "close"),
    ("TopicConfig", "segment_bytes_effective"),
    ("TopicConfig", "segment_ms_effective"),
    ("CordwoodDataSource", "name"),
    ("CordwoodDataSource", "schema"),
    ("CordwoodDataSource", "reader"),
    ("CordwoodDataSource", "streamReader"),
    ("CordwoodDataSource", "writer"),
    ("CordwoodDataSource", "streamWriter"),
}


def _errors() -> tuple[Entry, ...]:
    source = (ROOT / "src/cordwood/errors.py").read_text(encoding="utf-8")
    classes = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return _of("cordwood.errors", *classes, prefix="cordwood.errors")


PAGES = (
    Page(
        name="store",
        title="Opening a store",
        intro="A store is a directory with topics. One process at a time opens it for writing; any number of processes read it.",  # noqa: E501 (one line of the page)
        example="""
import cordwood

with cordwood.open("data") as store:
    store.create_topic("orders", partitions=3, config={"retention.ms": "7d"})
    store["orders"].append(b"created", key=b"user:42")
    assert "orders" in store
    assert store.topics() == ["orders"]

with cordwood.open("data", read_only=True) as beside:  # in this process or any other
    assert [record.value for record in beside["orders"]] == [b"created"]
""",
        entries=(
            Entry(name="open_store", home="cordwood.library", shown="cordwood.open"),
            *_of(
                "cordwood.log.store.store",
                "Store",
                example="""
with cordwood.open("data") as store:
    store.alter_topic("orders", config={"retention.ms": "30d"})
    for plan in store.explain_retention("orders"):
        print([(segment.base_offset, segment.verdict) for segment in plan.segments])
    store.snapshot("backup")  # a copy that opens at once
    store.delete_topic("orders")
""",
            ),
            *_of("cordwood.log.store.read_only_store", "ReadOnlyStore"),
            *_of(
                "cordwood.log.transactions.store_transaction",
                "Transaction",
                example="""
with cordwood.open("data") as store:
    store.create_topic("accounts", partitions=2)
    with store.transaction("transfer-1") as transaction:
        transaction.append("accounts", b"-5", key=b"anna")
        transaction.append("accounts", b"+5", key=b"ben")
    amounts = [r.value for r in store["accounts"].read(isolation="read_committed")]
    assert sorted(amounts) == [b"+5", b"-5"]
""",
            ),
            *_of("cordwood.archive.opened_archive", "open_archive"),
        ),
    ),
    Page(
        name="topics",
        title="Topics and appending",
        intro="A topic is a name for one or several partitions. The key of a record chooses its partition.",  # noqa: E501 (one line of the page)
        example="""
import cordwood

with cordwood.open("data") as store:
    orders = store.create_topic("orders", partitions=2)
    placed = orders.append(b"created", key=b"user:42", headers={"source": b"web"})
    many = orders.append_many([(b"user:42", b"paid"), (b"user:7", b"created")])
    assert many[0].partition == placed.partition  # the same key
    assert [r.value for r in orders][0] == b"created"
    for record in orders.follow("start", idle_timeout_ms=0):  # without a timeout it waits
        print(record.partition, record.offset, record.time, record.value)
""",
        entries=(
            *_of("cordwood.log.topics.topic", "Topic"),
            *_of("cordwood.log.reading.merged_logs", "TopicRecord"),
            *_of("cordwood.log.rules.appended", "Appended", "AppendedMany", "AppendedRange"),
            *_of(
                "cordwood.log.rules.topic_config",
                "TopicConfig",
                example="""
config = cordwood.TopicConfig.parse({"segment.bytes": "64MiB", "cleanup.policy": "compact"})
assert config.segment_bytes == 64 * 1024 * 1024
assert config.is_compacted
""",
            ),
        ),
    ),
    Page(
        name="logs",
        title="Logs and records",
        intro="A log is one partition: a sequence of records by offset. `topic[0]` gives the first one.",  # noqa: E501 (one line of the page)
        example="""
import cordwood

with cordwood.open("data") as store:
    log = store.create_topic("readings")[0]
    for degrees in (21, 22, 24, 23):
        log.append(b"%d" % degrees, key=b"kitchen")

    assert log[2].value == b"24"
    assert log[-1].value == b"23"
    assert [r.value for r in log[1:3]] == [b"22", b"24"]
    assert [r.offset for r in log.read(2)] == [2, 3]
    assert next(reversed(log)).offset == 3
    newest = log.find(b"kitchen")
    assert newest is not None and newest.offset == 3
    print(log.to_arrow(columns=["offset", "value"]).num_rows)
    print([(s.base_offset, s.state, s.size_bytes) for s in log.segments()])
""",
        entries=(
            *_of("cordwood.log.reading.log_reader", "LogReader"),
            *_of("cordwood.log.partition.partition_log", "PartitionLog"),
            *_of("cordwood.log.reading.log_range", "LogRange"),
            *_of("cordwood.format.record", "Record"),
            *_of("cordwood.log.reading.segment_info", "SegmentInfo"),
        ),
    ),
    Page(
        name="groups",
        title="Groups and their readers",
        intro="A group remembers how far it has read. The library and the clients of a broker share the committed offsets.",  # noqa: E501 (one line of the page)
        example="""
import cordwood

with cordwood.open("data") as store:
    orders = store.create_topic("orders", partitions=2)
    orders.append_many([(b"anna", b"250"), (b"ben", b"90"), (b"anna", b"60")])

    billing = store.group("billing")
    with billing.reader("orders", idle_timeout_ms=0) as reader:  # without a timeout it waits
        total = sum(int(record.value) for record in reader)
    assert total == 400

    orders.append(b"15", key=b"ben")
    with billing.reader("orders", idle_timeout_ms=0) as reader:  # resumes
        assert [record.value for record in reader] == [b"15"]
    print(billing.committed())
""",
        entries=(
            *_of("cordwood.log.topics.group", "Group"),
            *_of("cordwood.log.topics.group_reader", "GroupReader"),
        ),
    ),
    Page(
        name="broker",
        title="A broker inside a program or a test",
        intro="`cordwood serve` runs a broker as a process of its own. These names run one inside your process.",  # noqa: E501 (one line of the page)
        example="""
import cordwood

with cordwood.Broker(topics={"payments": 3}) as broker:
    print(broker.bootstrap_servers)  # for any Kafka client
    broker.store["payments"].append(b"250", key=b"anna")
""",
        entries=_of("cordwood.testing", "Broker"),
    ),
    Page(
        name="aio",
        title="asyncio",
        intro="The same store for programs with asyncio. Nothing here blocks the loop.",
        example="""
import asyncio

import cordwood


async def main():
    async with cordwood.aio.open("data") as store:
        orders = await store.create_topic("orders", exist_ok=True)
        await asyncio.gather(*(orders.append(b"%d" % n) for n in range(100)))
        assert len([record async for record in orders.read()]) == 100


asyncio.run(main())
""",
        entries=(
            Entry(name="open_async", home="cordwood.aio.async_store", shown="cordwood.aio.open"),
            *_of("cordwood.aio.async_store", "AsyncStore", prefix="cordwood.aio"),
            *_of("cordwood.aio.async_topic", "AsyncTopic", prefix="cordwood.aio"),
            *_of("cordwood.aio.async_log", "AsyncLog", prefix="cordwood.aio"),
            *_of("cordwood.aio.async_group", "AsyncGroup", prefix="cordwood.aio"),
            *_of("cordwood.aio.async_group_reader", "AsyncGroupReader", prefix="cordwood.aio"),
            *_of("cordwood.aio.record_stream", "RecordStream", prefix="cordwood.aio"),
        ),
    ),
    Page(
        name="spark",
        title="Spark",
        intro='The functions of `cordwood.spark`. The [Spark guide](../spark.md) has the options of `format("cordwood")` and examples that run.',  # noqa: E501 (one line of the page)
        entries=(
            *_of("cordwood.spark.spark_session", "session", prefix="cordwood.spark"),
            *_of("cordwood.spark.decoded_frame", "decode", prefix="cordwood.spark"),
            *_of("cordwood.spark.data_source", "register", prefix="cordwood.spark"),
            *_of("cordwood.spark.log_table", "table", "LogTable", prefix="cordwood.spark"),
            *_of("cordwood.spark.error_lines", "explain", prefix="cordwood.spark"),
            *_of("cordwood.spark.data_source", "CordwoodDataSource", prefix="cordwood.spark"),
        ),
    ),
    Page(
        name="errors",
        title="Errors",
        intro="Every exception that Cordwood raises on purpose. Facts are attributes, so a program need not parse a message. [Troubleshooting](../troubleshooting.md) says what to do about each.",  # noqa: E501 (one line of the page)
        example="""
import cordwood
from cordwood.errors import CordwoodError, OffsetOutOfRangeError

with cordwood.open("data") as store:
    log = store.create_topic("orders")[0]
    try:
        log.read(7)
    except OffsetOutOfRangeError as error:
        assert (error.requested, error.start, error.end) == (7, 0, 0)
        assert isinstance(error, CordwoodError) and isinstance(error, IndexError)
""",
        entries=_errors(),
    ),
)

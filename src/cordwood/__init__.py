"""Cordwood: a segmented commit log for Python and Spark.

    with cordwood.open("data") as store:
        orders = store.create_topic("orders", partitions=3)
        orders.append(b"paid", key=b"user:42")

Names are loaded when first used, so importing the package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cordwood import aio, errors
    from cordwood.archive.opened_archive import open_archive
    from cordwood.format.record import Record
    from cordwood.library import open_store as open
    from cordwood.log.partition.partition_log import PartitionLog
    from cordwood.log.reading.log_range import LogRange
    from cordwood.log.reading.log_reader import LogReader
    from cordwood.log.reading.merged_logs import TopicRecord
    from cordwood.log.reading.segment_info import SegmentInfo
    from cordwood.log.rules.appended import Appended, AppendedMany, AppendedRange
    from cordwood.log.rules.topic_config import TopicConfig
    from cordwood.log.store.read_only_store import ReadOnlyStore
    from cordwood.log.store.store import Store
    from cordwood.log.topics.group import Group
    from cordwood.log.topics.group_reader import GroupReader
    from cordwood.log.topics.topic import Topic
    from cordwood.log.transactions.store_transaction import Transaction
    from cordwood.testing import Broker

__version__ = "0.1.0"

_HOMES = {
    "Appended": "cordwood.log.rules.appended",
    "AppendedMany": "cordwood.log.rules.appended",
    "AppendedRange": "cordwood.log.rules.appended",
    "Broker": "cordwood.testing",
    "Group": "cordwood.log.topics.group",
    "GroupReader": "cordwood.log.topics.group_reader",
    "LogRange": "cordwood.log.reading.log_range",
    "LogReader": "cordwood.log.reading.log_reader",
    "PartitionLog": "cordwood.log.partition.partition_log",
    "ReadOnlyStore": "cordwood.log.store.read_only_store",
    "Record": "cordwood.format.record",
    "SegmentInfo": "cordwood.log.reading.segment_info",
    "Store": "cordwood.log.store.store",
    "Topic": "cordwood.log.topics.topic",
    "TopicRecord": "cordwood.log.reading.merged_logs",
    "TopicConfig": "cordwood.log.rules.topic_config",
    "Transaction": "cordwood.log.transactions.store_transaction",
    "open_archive": "cordwood.archive.opened_archive",
}

__all__ = [
    "Appended",
    "AppendedMany",
    "AppendedRange",
    "Broker",
    "Group",
    "GroupReader",
    "LogRange",
    "LogReader",
    "PartitionLog",
    "ReadOnlyStore",
    "Record",
    "SegmentInfo",
    "Store",
    "Topic",
    "TopicConfig",
    "TopicRecord",
    "Transaction",
    "__version__",
    "aio",
    "errors",
    "open",
    "open_archive",
]


def __getattr__(name: str) -> object:
    if name == "open":
        value: object = import_module("cordwood.library").open_store
    elif name in ("aio", "errors"):
        value = import_module(f"cordwood.{name}")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'cordwood' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

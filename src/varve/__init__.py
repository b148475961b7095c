"""Varve: a segmented commit log for Python and Spark.

    with varve.open("data") as store:
        orders = store.create_topic("orders", partitions=3)
        orders.append(b"paid", key=b"user:42")

Names are loaded when first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from varve import errors
    from varve.archive.archive_store import open_archive
    from varve.format.record import Record
    from varve.library import open_store as open
    from varve.log.appended import Appended, AppendedMany, AppendedRange
    from varve.log.log_reader import LogReader, SegmentInfo
    from varve.log.partition_log import PartitionLog
    from varve.log.read_only_store import ReadOnlyStore
    from varve.log.store import Store
    from varve.log.topic import Topic
    from varve.log.topic_config import TopicConfig
    from varve.testing import Broker

__version__ = "0.1.0"

_HOMES = {
    "Appended": "varve.log.appended",
    "AppendedMany": "varve.log.appended",
    "AppendedRange": "varve.log.appended",
    "Broker": "varve.testing",
    "LogReader": "varve.log.log_reader",
    "PartitionLog": "varve.log.partition_log",
    "ReadOnlyStore": "varve.log.read_only_store",
    "Record": "varve.format.record",
    "SegmentInfo": "varve.log.log_reader",
    "Store": "varve.log.store",
    "Topic": "varve.log.topic",
    "TopicConfig": "varve.log.topic_config",
    "open_archive": "varve.archive.archive_store",
}

__all__ = [
    "Appended",
    "AppendedMany",
    "AppendedRange",
    "Broker",
    "LogReader",
    "PartitionLog",
    "ReadOnlyStore",
    "Record",
    "SegmentInfo",
    "Store",
    "Topic",
    "TopicConfig",
    "__version__",
    "errors",
    "open",
    "open_archive",
]


def __getattr__(name: str) -> object:
    if name == "open":
        value: object = import_module("varve.library").open_store
    elif name == "errors":
        value = import_module("varve.errors")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'varve' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""Spark over the log: `format("cordwood")` for reading and writing, and jobs on top of it.

    spark = cordwood.spark.session()
    spark.read.format("cordwood").option("subscribe", "orders").load("data").show()

Names are loaded when first used: pyspark takes a while to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cordwood.spark.data_source import CordwoodDataSource, register
    from cordwood.spark.decoded_frame import decode
    from cordwood.spark.error_lines import explain
    from cordwood.spark.log_table import LogTable, table
    from cordwood.spark.spark_session import session

_HOMES = {
    "CordwoodDataSource": "cordwood.spark.data_source",
    "LogTable": "cordwood.spark.log_table",
    "decode": "cordwood.spark.decoded_frame",
    "explain": "cordwood.spark.error_lines",
    "register": "cordwood.spark.data_source",
    "session": "cordwood.spark.spark_session",
    "table": "cordwood.spark.log_table",
}

__all__ = ["CordwoodDataSource", "LogTable", "decode", "explain", "register", "session", "table"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'cordwood.spark' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

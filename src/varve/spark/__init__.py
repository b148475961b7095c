"""Spark over the log: `format("varve")` for reading and writing, and jobs on top of it.

    spark = varve.spark.session()
    spark.read.format("varve").option("subscribe", "orders").load("data").show()

Names are loaded when first used: pyspark takes a while to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from varve.spark.source import VarveDataSource, register
    from varve.spark.spark_session import session

_HOMES = {
    "VarveDataSource": "varve.spark.source",
    "register": "varve.spark.source",
    "session": "varve.spark.spark_session",
}

__all__ = ["VarveDataSource", "register", "session"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'varve.spark' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

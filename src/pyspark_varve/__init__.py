"""Lets Spark find `format("varve")` by itself: it imports every top-level `pyspark_*` package."""

from varve.spark.source import VarveDataSource as DefaultSource

__all__ = ["DefaultSource"]

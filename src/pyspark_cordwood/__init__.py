"""Lets Spark find `format("cordwood")` by itself: it imports every `pyspark_*` package."""

from cordwood.spark.data_source import CordwoodDataSource as DefaultSource

__all__ = ["DefaultSource"]

"""Rows of a DataFrame, and records as rows, in a form that tests compare."""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame

from cordwood.format.record import Record

Row = tuple[Any, ...]  # topic, partition, offset, timestamp in ms, key, value


def rows(frame: DataFrame) -> list[Row]:
    """The rows of a frame with the default columns, in order of topic, partition and offset."""
    chosen = frame.selectExpr(
        "topic", "partition", "offset", "unix_millis(timestamp)", "key", "value"
    )
    return sorted(tuple(_plain(value) for value in row) for row in chosen.collect())


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, bytearray) else value


def expected(records: Iterable[Record], topic: str, partition: int = 0) -> list[Row]:
    """The rows that records of one partition must become."""
    return [(topic, partition, r.offset, r.timestamp_ms, r.key, r.value) for r in records]


def offsets(frame: DataFrame) -> list[int]:
    """The offsets of all rows, in order."""
    return sorted(row[0] for row in frame.select("offset").collect())

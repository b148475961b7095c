"""How many rows a task would read, without making them."""

from cordwood.errors import (
    CorruptSegmentError,
    FormatError,
    OffsetOutOfRangeError,
    TopicDeletedError,
)
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.record_count import count_records
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.source.range_reader import RangeReader
from cordwood.spark.where.condition import spans_suffice, within_partition


def counts_by_headers(reader: RangeReader, partition: int) -> bool:
    """Whether the rows of this partition can be counted without parsing records."""
    return reader.key is None and spans_suffice(within_partition(reader.where, partition))


def count_range(reader: RangeReader, task: OffsetRange) -> int:
    """The number of rows that `reader.read(task)` returns; reports loss as it does."""
    place = task.place
    with place.open() as log:
        if log is None:
            reader.report(place, "was deleted or recreated since the query was planned")
            return 0
        count: int | None = None
        if counts_by_headers(reader, place.partition):
            count = _by_headers(reader, log, task)
        if count is None:
            count = sum(len(run) for run in reader.runs(log, task))
        reader.check_unchanged(log, task)
        return count


def _by_headers(reader: RangeReader, log: LogReader, task: OffsetRange) -> int | None:
    """None if something is wrong: reading the records finds out what, and reports it."""
    view = log.view()
    if task.start < view.start or view.high_watermark < task.stop:
        return None
    try:
        return count_records(log.source, task.start, task.stop, isolation=reader.isolation)
    except (
        CorruptSegmentError,
        FileNotFoundError,
        FormatError,
        OffsetOutOfRangeError,
        TopicDeletedError,
    ):
        return None

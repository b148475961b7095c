"""What a scan with the option `where` has to read of a partition, by its indexes."""

from cordwood.errors import CorruptSegmentError
from cordwood.log.reading.log_reader import LogReader
from cordwood.spark.where.condition import (
    ALWAYS,
    Condition,
    OffsetSpan,
    earliest_us,
    fewer_spans,
    offset_spans,
    within_partition,
)


def spans_where(log: LogReader, condition: Condition, start: int, stop: int) -> list[OffsetSpan]:
    """The parts of [start, stop) that may hold matching records, in order.

    An upper bound for timestamps leaves out nothing: a late record may come at any offset.
    """
    if condition == ALWAYS:
        return [(start, stop)]
    left = within_partition(condition, log.partition)
    found = fewer_spans(
        [
            (max(begin, start), min(end, stop))
            for begin, end in offset_spans(left)
            if max(begin, start) < min(end, stop)
        ]
    )
    if not found:
        return []
    earliest = earliest_us(left)
    if earliest is not None and earliest > 0:
        first = _first_at(log, -(-earliest // 1000), default=start)
        found = [(max(begin, first), end) for begin, end in found if first < end]
    return found


def _first_at(log: LogReader, timestamp_ms: int, *, default: int) -> int:
    """The first offset at that time or later; past every offset if there is none."""
    try:
        found = log.offset_for_time(timestamp_ms)
    except CorruptSegmentError:
        return default  # the scan reports it, if it concerns the scan
    return log.high_watermark if found is None else found

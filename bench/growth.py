"""What it costs to be large: the same work on a log of 1, 10 and 100 times the size.

Each row is one line of the plot. Its figure is how many times more a unit of work costs at the
largest size than at the smallest, its target 3: that is what a search in a sorted list takes more
among 1,000 than among 10, so that a cost which stays below it is flat or logarithmic. Work that
looked at all of the log each time would show 100.

The unit of append, random read and scan is a record; of opening and of recovery a segment or a
partition, where those grow, and else the whole of it. Values are of 1 KiB, in batches of 64.
"""

from bench.growth_rows import byte_rows, partition_rows, segment_rows
from bench.growth_value_rows import value_rows
from bench.measure import RowMaker


def row_makers() -> dict[str, RowMaker]:
    """Each makes the rows of one thing that grows."""
    return {
        "bytes": byte_rows,
        "segments": segment_rows,
        "partitions": partition_rows,
        "values": value_rows,
    }

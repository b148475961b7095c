"""The cost of growth: the same work on a log of 1, 10 and 100 times the size.

Each row is one line of the plot. Its figure tells how many times more a unit of work costs at the
largest size than at the smallest. The target is 3: a search in a sorted list takes 3 times longer
among 1,000 than among 10, so a cost below it is flat or logarithmic. Work that read the whole log
each time would show 100.

The unit of append, random read and scan is a record. The unit of opening and recovery is a segment
or a partition if those grow, otherwise the whole operation. Values have 1 KiB, in batches of 64.

The rows of many partitions and of topics beside Kafka are not about growth: 10,000 partitions must
cost at most 1 ms each, and 100 topics in one request at most three times what they cost in Kafka.
"""

from bench.growth_rows import byte_rows, partition_rows, segment_rows
from bench.growth_value_rows import value_rows
from bench.measure import RowMaker
from bench.topic_request_rows import topic_request_rows
from bench.topic_rows import many_partition_rows


def row_makers() -> dict[str, RowMaker]:
    """Each makes the rows of one dimension of growth."""
    return {
        "bytes": byte_rows,
        "segments": segment_rows,
        "partitions": partition_rows,
        "values": value_rows,
        "many partitions": many_partition_rows,
        "topics beside Kafka": topic_request_rows,
    }

"""What transactions cost: commits beside Kafka, committed readers, plain produce before and after.

Servers run on one core and clients on another, as in the suite `broker`. Here the durability of a
row is that of everything in it, also of the servers' own records about transactions.
"""

from functools import partial

from bench.awake import kept_awake
from bench.broker_servers import DISK, OS
from bench.broker_stage import Stage
from bench.measure import RowMaker
from bench.security_before_rows import before_rows
from bench.transaction_consume_rows import committed_rows
from bench.transaction_library_rows import library_rows
from bench.transaction_rows import java_rows, librdkafka_rows
from cordwood.quantities import KIB


def row_makers() -> dict[str, RowMaker]:
    """The servers keep running between rows of the same durability."""
    at_os, at_disk, plain = Stage(durability=OS), Stage(durability=DISK), Stage()
    return {
        "library os": kept_awake(partial(library_rows, durability=OS)),
        "library disk": partial(library_rows, durability=DISK),
        "librdkafka os": kept_awake(partial(librdkafka_rows, stage=at_os, durability=OS)),
        "Java os": kept_awake(partial(java_rows, stage=at_os, durability=OS)),
        "consume": kept_awake(partial(committed_rows, stage=at_os, aborted_percent=0)),
        "consume with aborts": kept_awake(partial(committed_rows, stage=at_os, aborted_percent=10)),
        "librdkafka disk": partial(librdkafka_rows, stage=at_disk, durability=DISK),
        "Java disk": partial(java_rows, stage=at_disk, durability=DISK),
        "before and after 1 KiB": kept_awake(partial(before_rows, stage=plain, value_size=KIB)),
        "before and after 100 B": kept_awake(partial(before_rows, stage=plain, value_size=100)),
    }

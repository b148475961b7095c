"""A cluster: three brokers of ours and three of Kafka's, with the same controllers, in one run.

Topics have three replicas, on the brokers of one kind. Brokers and clients share all cores, because
three brokers do not fit on one. So processor time per record says more than the rate: it is the sum
of the three brokers. All processes listen on free loopback ports and are killed at the end.
"""

from functools import partial

from bench.broker_servers import DISK, OS
from bench.cluster_catch_up_rows import catch_up_rows
from bench.cluster_failover_rows import failover_rows
from bench.cluster_memory_rows import memory_rows
from bench.cluster_produce_rows import connection_rows, produce_rows
from bench.cluster_stage import ClusterStage
from bench.measure import RowMaker


def row_makers() -> dict[str, RowMaker]:
    """The cluster keeps running between rows. Brokers that a row stops, it starts again."""
    stage = ClusterStage()
    return {
        "idle": partial(memory_rows, stage=stage, is_idle=True),
        "produce os": partial(produce_rows, stage=stage, durability=OS),
        "produce disk": partial(produce_rows, stage=stage, durability=DISK),
        "connections disk": partial(connection_rows, stage=stage),
        "after load": partial(memory_rows, stage=stage, is_idle=False),
        "catch-up": partial(catch_up_rows, stage=stage),
        "failover": partial(failover_rows, stage=stage),
    }

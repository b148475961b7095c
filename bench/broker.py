"""The server compared with Apache Kafka, NATS, Redis and RabbitMQ: same settings, equal durability.

Servers run on one core and clients on another. A client on the wire sends prebuilt requests and
is far from its own limit; librdkafka and Java show what an application sees. All servers listen on
free loopback ports and are stopped at the end.
"""

from functools import partial

from bench.awake import kept_awake
from bench.broker_consume_rows import consume_rows
from bench.broker_durable_rows import durable_rows
from bench.broker_latency_rows import latency_rows
from bench.broker_process_rows import memory_after_load_rows, start_rows
from bench.broker_produce_rows import (
    java_produce_rows,
    librdkafka_produce_rows,
    wire_produce_rows,
)
from bench.broker_servers import DISK, OS
from bench.broker_stage import Stage
from bench.broker_stream_rows import stream_rows
from bench.measure import RowMaker
from cordwood.quantities import KIB


def row_makers() -> dict[str, RowMaker]:
    """Each makes the rows of one kind of load. The servers keep running between them.

    Cores are kept awake for rows that do not wait for the disk: see `awake`.
    """
    stage = Stage()
    return {
        "start": partial(start_rows, stage=stage),
        "produce 1 KiB, wire": kept_awake(partial(wire_produce_rows, stage=stage, value_size=KIB)),
        "produce 100 B, wire": kept_awake(partial(wire_produce_rows, stage=stage, value_size=100)),
        "produce 1 KiB, librdkafka": kept_awake(
            partial(librdkafka_produce_rows, stage=stage, value_size=KIB)
        ),
        "produce 100 B, librdkafka": kept_awake(
            partial(librdkafka_produce_rows, stage=stage, value_size=100)
        ),
        "produce 1 KiB, Java": kept_awake(partial(java_produce_rows, stage=stage, value_size=KIB)),
        "produce 100 B, Java": kept_awake(partial(java_produce_rows, stage=stage, value_size=100)),
        "consume 1 KiB": kept_awake(partial(consume_rows, stage=stage, value_size=KIB)),
        "consume 100 B": kept_awake(partial(consume_rows, stage=stage, value_size=100)),
        "latency os": kept_awake(partial(latency_rows, stage=stage, durability=OS, is_judged=True)),
        "latency disk": partial(latency_rows, stage=stage, durability=DISK, is_judged=False),
        "streams 1 KiB": kept_awake(
            partial(stream_rows, stage=stage, value_size=KIB, durability=OS)
        ),
        "streams 100 B": kept_awake(
            partial(stream_rows, stage=stage, value_size=100, durability=OS)
        ),
        "streams disk 1 KiB": partial(stream_rows, stage=stage, value_size=KIB, durability=DISK),
        "streams disk 100 B": partial(stream_rows, stage=stage, value_size=100, durability=DISK),
        "50 connections": partial(durable_rows, stage=stage),
        "memory after load": partial(memory_after_load_rows, stage=stage),
    }

"""What security costs: TLS beside Kafka, access rules beside none, and before and after it.

Servers run on one core and clients on another, as in the suite `broker`.
"""

from functools import partial

from bench.awake import kept_awake
from bench.broker_stage import Stage
from bench.measure import RowMaker
from bench.reconnect_rows import reconnect_rows
from bench.security_access_rows import access_produce_rows, decision_rows
from bench.security_before_rows import before_rows
from bench.security_tls_rows import (
    tls_consume_rows,
    tls_librdkafka_produce_rows,
    tls_produce_rows,
)
from cordwood.quantities import KIB


def row_makers() -> dict[str, RowMaker]:
    """The servers with TLS keep running between the rows; each other row has its own."""
    stage, plain = Stage(has_tls=True), Stage()
    sizes = {"1 KiB": KIB, "100 B": 100}
    makers: dict[str, RowMaker] = {}
    for size, value_size in sizes.items():
        makers[f"TLS produce {size}, wire"] = partial(
            tls_produce_rows, stage=stage, value_size=value_size
        )
    for size, value_size in sizes.items():
        makers[f"TLS produce {size}, librdkafka"] = partial(
            tls_librdkafka_produce_rows, stage=stage, value_size=value_size
        )
    for size, value_size in sizes.items():
        makers[f"TLS consume {size}"] = partial(
            tls_consume_rows, stage=stage, value_size=value_size
        )
    makers["TLS reconnects"] = partial(reconnect_rows, stage=stage)
    makers["access decisions"] = decision_rows
    for size, value_size in sizes.items():
        makers[f"access rules {size}"] = partial(
            access_produce_rows, stage=plain, value_size=value_size
        )
    for size, value_size in sizes.items():
        makers[f"before and after {size}"] = partial(
            before_rows, stage=plain, value_size=value_size
        )
    return {name: kept_awake(make) for name, make in makers.items()}

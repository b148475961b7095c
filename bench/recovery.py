"""After a kill: the library in bytes per second, and servers in seconds until they answer.

A server is killed with SIGKILL during writes and restarted. The time ends when a record that was
acknowledged before the kill was read and a new one was acknowledged. The data is still in the page
cache, as after the death of a process, not of a machine.
"""

from functools import partial

from bench.broker_stage import Stage
from bench.measure import RowMaker
from bench.opening_rows import recover_rows
from bench.restart_rows import restart_many_rows, restart_rows


def row_makers() -> dict[str, RowMaker]:
    stage = Stage()
    return {
        "library": recover_rows,
        "restart": partial(restart_rows, stage=stage),
        "restart, many partitions": partial(restart_many_rows, stage=stage),
    }

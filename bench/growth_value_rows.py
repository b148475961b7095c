"""Growth of the values, from 16 B to 1 MiB: the cost of a byte from 1 KiB on.

Below 1 KiB the cost of a record hardly depends on its size, so the cost per byte is high. From
1 KiB on the bytes dominate, and the cost per byte must not grow.
"""

import random
import shutil
import time
from functools import partial
from statistics import median
from typing import Final

from bench.growth_rows import growth_row
from bench.measure import Context, Row, measure_in_turns, seconds_of
from bench.workload import OS, Values, make_values, new_log, opened, prepare_log
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import KIB, MIB

_SIZES: Final = (16, 128, KIB, 8 * KIB, 64 * KIB, 512 * KIB, MIB)
_CONFIG: Final = {
    **OS,
    "max.message.bytes": 2 * MIB,
}  # the default limit is a little below the largest value
_READS: Final = 50


def value_rows(context: Context) -> list[Row]:
    total_bytes = context.pick(64, 16) * MIB
    values = {size: make_values(size, pool_bytes=8 * MIB) for size in _SIZES}
    paths = {
        size: prepare_log(context.directory, each, total_bytes // size, _CONFIG)
        for size, each in values.items()
    }
    append = measure_in_turns(
        {str(n): partial(_append_ns, context, each, total_bytes) for n, each in values.items()},
        runs=context.runs,
    )
    scan, read = {}, {}
    for size, path in paths.items():
        with opened(path) as log:
            found = measure_in_turns(
                {"scan": partial(_scan_ns, log, size), "read": partial(_read_ns, log, size)},
                runs=context.runs,
            )
        scan[size], read[size] = found["scan"], found["read"]
        shutil.rmtree(path)
    appended = {int(size): costs for size, costs in append.items()}
    name, unit = "bytes of a value", "ns a byte"
    return [
        growth_row("append_many, by value size", name, unit, appended, durability="os", first=KIB),
        growth_row("scan, by value size", name, unit, scan, first=KIB),
        growth_row("random read, by value size", name, unit, read, first=KIB),
    ]


def _append_ns(context: Context, values: Values, total_bytes: int) -> float:
    calls = list(values.calls(total_bytes // values.size))
    with new_log(context.directory, _CONFIG) as log:
        started = time.perf_counter()
        for pairs in calls:
            log.append_many(pairs)
        taken_s = time.perf_counter() - started
        return taken_s / (log.end_offset * values.size) * 1e9


def _scan_ns(log: PartitionLog, size: int) -> float:
    taken_s = seconds_of(lambda: sum(batch.num_rows for batch in log.scan()))
    return taken_s / (log.end_offset * size) * 1e9


def _read_ns(log: PartitionLog, size: int) -> float:
    rng = random.Random(size)
    offsets = [rng.randrange(log.end_offset) for _ in range(_READS)]
    taken = [seconds_of(partial(_read_one, log, offset)) for offset in offsets]
    return median(taken) / size * 1e9


def _read_one(log: PartitionLog, offset: int) -> None:
    record = next(log.read(offset, max_records=1))
    assert record.offset == offset, (record.offset, offset)

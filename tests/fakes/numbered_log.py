"""A small log of numbered records, several segments long."""

from cordwood.log.partition.partition_log import PartitionLog
from fakes.client_batches import NOW, client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import new_log

SIZE = len(client_batch(b"v00"))  # of the batch of one record


def value(number: int) -> bytes:
    return b"v%02d" % number


def make(
    *, per_segment: int = 4, config: dict[str, object] | None = None
) -> tuple[SimulatedFileSystem, PartitionLog]:
    clock = ManualClock(NOW)
    fs = SimulatedFileSystem(clock=clock)
    settings: dict[str, object] = {
        "internal.segment.bytes": per_segment * SIZE,
        "index.interval.bytes": SIZE,
    }
    return fs, new_log(fs, settings | (config or {}), clock=clock)[1]


def fill(log: PartitionLog, count: int) -> PartitionLog:
    for number in range(log.end_offset, log.end_offset + count):
        log.append(value(number))
    return log

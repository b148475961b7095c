"""A change of a replica that is interrupted anywhere is done, undone, or the log has failed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cordwood.errors import NotLeaderError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.quantities import LeaderEpoch, Offset
from fakes.client_batches import NOW, client_batch
from fakes.interrupter import interrupt, places
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, new_log, open_store

STEP = 40  # not every place: a change has thousands

Change = Callable[[PartitionLog], object]


def placed(base: int, value: bytes, *, in_epoch: int = 1) -> bytes:
    data = bytearray(client_batch(value, producer_id=9, sequence=base))
    data[0:8], data[12:16] = base.to_bytes(8, "big"), in_epoch.to_bytes(4, "big")
    return bytes(data)


def prepared() -> tuple[SimulatedFileSystem, PartitionLog]:
    """A follower with four batches, three of them committed."""
    clock = ManualClock(NOW)
    fs = SimulatedFileSystem(clock=clock)
    _, log = new_log(fs, {"internal.segment.bytes": 300}, clock=clock, role=AMONG_OTHERS)
    log.replica.follow(LeaderEpoch(2))
    for number in range(4):
        log.replica.append(placed(number, b"v%d" % number), leader_epoch=LeaderEpoch(2))
    log.sync()
    log.replica.raise_high_watermark(Offset(3))
    return fs, log


def append(log: PartitionLog) -> object:
    data = placed(4, b"v4") + placed(5, b"v5", in_epoch=2)
    return log.replica.append(data, leader_epoch=LeaderEpoch(2))


def lead(log: PartitionLog) -> object:
    return log.replica.lead(LeaderEpoch(3))


def truncate(log: PartitionLog) -> object:
    return log.replica.truncate(Offset(3), leader_epoch=LeaderEpoch(2))


def commit(log: PartitionLog) -> object:
    return log.replica.raise_high_watermark(Offset(4))


CHANGES: dict[str, tuple[Change, set[int]]] = {
    "append": (append, {4, 5, 6}),
    "lead": (lead, {4}),
    "truncate": (truncate, {3, 4}),
    "commit": (commit, {4}),
}


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.read(stop=3)]


@pytest.mark.parametrize("name", list(CHANGES))
def test_a_change_that_is_interrupted_leaves_a_whole_log(name: str) -> None:
    change, ends = CHANGES[name]
    _, log = prepared()
    count = places(lambda: change(log))

    for place in range(random.Random(name).randrange(STEP), count, STEP):
        fs, log = prepared()
        interrupt(lambda log=log: change(log), place)  # type: ignore[misc]

        assert log.end_offset in ends
        assert values(log) == [b"v0", b"v1", b"v2"]
        if log.state.failure is None:
            try:
                log.batches.append_batch(client_batch(b"x"), wait=False)
            except NotLeaderError:
                end = log.end_offset
                data = placed(end, b"v%d" % end, in_epoch=log.replica.last_epoch)
                log.replica.follow(LeaderEpoch(4))
                assert log.replica.append(data, leader_epoch=LeaderEpoch(4)) == end + 1
        for after in (fs.kill(), fs.crash(random.Random(place))):
            again = log_of(open_store(after, clock=ManualClock(NOW), role=AMONG_OTHERS))
            assert again.end_offset >= min(ends)
            assert again.high_watermark <= again.end_offset
            assert again.damages == []

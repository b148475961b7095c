"""Power cuts while a replica takes batches with gaps: a batch is at its own offset, or missing.

No checksum covers the offset of a batch. Batches are sized so that offsets lie in two sectors, and
gaps are chosen so that an offset without its first bytes would not go back.
"""

from __future__ import annotations

import random

import pytest

from cordwood.errors import CorruptSegmentError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.quantities import FilePosition, LeaderEpoch
from fakes.client_batches import NOW, client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, TOPIC, IdleFlusher, log_of, new_log, open_store

EPOCH = LeaderEpoch(1)
SECTOR = 512
CONFIG: dict[str, object] = {"cleanup.policy": "compact", "durability": "os"}
CRASHES = 40
FAILED_ONCE = 33  # a batch at offset 286 was found at offset 30


def batch_at(base: int, *, size: int) -> bytes:
    """A batch of one record, which names its offset, with `size` bytes if that is possible."""
    text = b"%d " % base
    data = bytearray(client_batch(text, keys=[b"k"]))
    for padding in (size - len(data), size - len(data) - 1, size - len(data) - 2):
        if padding > 0 and len(data) < size:
            padded = bytearray(client_batch(text.ljust(len(text) + padding, b"."), keys=[b"k"]))
            if len(padded) <= size:
                data = padded
                break
    data[0:8] = base.to_bytes(8, "big")
    data[12:16] = EPOCH.to_bytes(4, "big")
    return bytes(data)


def replica(flusher: IdleFlusher | None = None) -> tuple[SimulatedFileSystem, PartitionLog]:
    clock = ManualClock(NOW)
    fs = SimulatedFileSystem(clock=clock)
    _, log = new_log(fs, CONFIG, clock=clock, role=AMONG_OTHERS, flusher=flusher)
    log.replica.follow(EPOCH)
    return fs, log


def reopened(fs: SimulatedFileSystem) -> PartitionLog:
    return log_of(open_store(fs, clock=ManualClock(NOW), role=AMONG_OTHERS))


def found(log: PartitionLog) -> dict[int, int]:
    """What each offset of the log has: the offset that its record was written at."""
    values: dict[int, int] = {}
    for segment in log.state.segments:
        reader = segment.reader()
        position, offset = FilePosition(0), segment.base_offset
        while True:
            try:
                for first, end in reader.chunks(position, offset):
                    for run in reader.decoder.runs(first, end):
                        for record in run.records():
                            values[record.offset] = int((record.value or b"").split()[0])
                break
            except CorruptSegmentError as error:
                following = reader.resume_after(error.position + 1, error.first_offset)
                if following is None:
                    break
                position, offset = FilePosition(following.position), following.base_offset
    return values


@pytest.mark.parametrize(("in_first_sector", "base"), [(7, 263), (6, 65_599), (5, (1 << 24) + 90)])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_batch_behind_a_gap_that_lost_its_first_sector_is_not_at_a_lower_offset(
    in_first_sector: int, base: int, at_once: bool
) -> None:
    fs, log = replica(IdleFlusher())
    before = batch_at(0, size=SECTOR - in_first_sector)
    gappy = [batch_at(base, size=300), batch_at(base + 1, size=300)]
    log.replica.append(before, leader_epoch=EPOCH)
    log.replica.append(batch_at(3, size=SECTOR), leader_epoch=EPOCH)  # the first gap
    assert log.state.segments.active.size == 2 * SECTOR - in_first_sector

    data = b"".join(gappy)
    if at_once:
        data = data[log.replica.append_at_once(data, leader_epoch=EPOCH) :]
    log.replica.append(data, leader_epoch=EPOCH)

    assert log.end_offset == base + 2
    killed, cut = fs.kill(), fs.kill()
    assert found(reopened(killed)) == {offset: offset for offset in (0, 3, base, base + 1)}
    file = cut.open_write(f"{DATA}/{TOPIC}-0/{0:020}.log")
    if file.size() > 2 * SECTOR:  # the end of the second batch was written before, and stays
        file.write_at(2 * SECTOR - in_first_sector, bytes(in_first_sector))
    after = found(reopened(cut))
    assert all(offset == written for offset, written in after.items()), after


@pytest.mark.parametrize("seed", [*range(12), FAILED_ONCE])
def test_whatever_a_power_cut_leaves_of_a_log_with_gaps_each_record_is_at_its_own_offset(
    seed: int,
) -> None:
    rng = random.Random(seed)
    fs, log = replica(IdleFlusher())
    written: set[int] = set()
    offset = rng.choice((0, 3, 20, 30, 200, 60_000, (1 << 24) - 5_000))
    for _ in range(rng.randrange(4, 9)):
        lost = rng.choice((5, 6, 7, 7, 8, 9, 11, 60))
        size = -(log.state.segments.active.size + lost) % SECTOR + SECTOR * rng.choice((0, 1, 1, 3))
        log.replica.append(batch_at(offset, size=max(size, 90)), leader_epoch=EPOCH)
        written.add(offset)
        for crash in range(CRASHES):
            after = found(reopened(fs.crash(random.Random(seed * CRASHES + crash))))
            assert all(offset == value for offset, value in after.items()), (crash, after)
            assert written.issuperset(after)
        if rng.random() < 0.7:
            log.sync()
        offset += rng.choice((1, 2, 250, 256, 257, 65_536, 1 << 24))

    assert found(reopened(fs.kill())) == {offset: offset for offset in written}


def test_at_most_three_segments_of_a_log_begin_because_of_gaps() -> None:
    _, log = replica()
    offset = 0
    for number in range(300):
        lost = 5 + number % 3
        size = -(log.state.segments.active.size + lost) % SECTOR + SECTOR
        log.replica.append(batch_at(offset, size=size), leader_epoch=EPOCH)
        offset += 1 + 7 * number**2

    assert offset > 1 << 24
    assert len(log.state.segments) <= 4

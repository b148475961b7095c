"""The log as one replica of many: roles, batches of a leader, the high watermark from outside."""

from __future__ import annotations

import random

import pytest

from cordwood.errors import (
    ChecksumMismatchError,
    NotLeaderError,
    OffsetOutOfRangeError,
    ReplicaMismatchError,
    ReplicatedLogError,
    RoleChangedError,
)
from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.storage.small_files.checkpoint_file import write_epoch_checkpoint
from fakes.client_batches import NOW, client_batch, marker_batch, raw_batch, raw_record
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, new_log, open_store


def replica(
    config: dict[str, object] | None = None, *, fs: SimulatedFileSystem | None = None
) -> tuple[SimulatedFileSystem, PartitionLog]:
    clock = ManualClock(NOW)
    fs = fs or SimulatedFileSystem(clock=clock)
    return fs, new_log(fs, config, clock=clock, role=AMONG_OTHERS)[1]


def reopened(fs: SimulatedFileSystem) -> PartitionLog:
    return log_of(open_store(fs, clock=ManualClock(NOW), role=AMONG_OTHERS))


def epoch(number: int) -> LeaderEpoch:
    return LeaderEpoch(number)


def placed(base: int, *values: bytes, in_epoch: int = 1, **fields: object) -> bytes:
    """A batch as a leader has it, with its offset and its epoch."""
    data = bytearray(client_batch(*values, **fields))  # type: ignore[arg-type]
    data[0:8] = base.to_bytes(8, "big")
    data[12:16] = in_epoch.to_bytes(4, "big")
    return bytes(data)


def filled_leader(count: int = 4, *, in_epoch: int = 1) -> PartitionLog:
    _, log = replica()
    log.replica.lead(epoch(in_epoch))
    for number in range(count):
        log.batches.append_batch(client_batch(b"v%02d" % number), wait=False)
    return log


def all_bytes(log: PartitionLog) -> bytes:
    """Every batch of the log, whatever is committed."""
    data, offset = b"", log.state.start
    while True:
        found = log.replica.read(offset, max_bytes=1 << 20)
        if found is None:
            return data
        piece = found.file.read_at(found.position, found.length)
        data += piece
        at = 0
        while at < len(piece):
            size = int.from_bytes(piece[at + 8 : at + 12], "big") + 12
            delta = int.from_bytes(piece[at + 23 : at + 27], "big")
            offset = Offset(int.from_bytes(piece[at : at + 8], "big") + delta + 1)
            at += size


# --- roles -------------------------------------------------------------------------------------


def test_a_replica_opens_without_an_epoch_and_takes_no_appends() -> None:
    _, log = replica()

    with pytest.raises(NotLeaderError, match="does not lead events-0"):
        log.append(b"v")

    assert log.replica.last_epoch == -1
    assert log.end_offset == 0


def test_a_leader_stamps_its_epoch_and_does_not_move_the_high_watermark() -> None:
    log = filled_leader(2, in_epoch=7)

    log.sync()

    assert (log.high_watermark, log.state.durable, log.end_offset) == (0, 2, 2)
    assert log.replica.end_of(epoch(7)) == (7, 2)
    assert all_bytes(log)[12:16] == (7).to_bytes(4, "big")


def test_an_epoch_without_records_survives_a_power_cut() -> None:
    fs, log = replica()
    log.replica.follow(epoch(1))
    log.replica.append(placed(0, b"a", b"b"), leader_epoch=epoch(1))
    log.sync()
    log.replica.lead(epoch(5))

    again = reopened(fs.crash(random.Random(3)))

    assert again.replica.last_epoch == 5
    assert again.replica.end_of(epoch(1)) == (1, 2)


def test_the_epochs_of_a_checkpoint_give_way_to_those_of_batches() -> None:
    """A cut and the batches behind it were lost; batches from before the cut are back."""
    fs, log = replica({"durability": "os"})
    log.replica.follow(epoch(1))
    log.replica.append(placed(0, b"a", b"b", b"c", b"d"), leader_epoch=epoch(1))
    entries = [EpochEntry(epoch=epoch(e), start_offset=Offset(o)) for e, o in ((1, 0), (2, 2))]
    write_epoch_checkpoint(fs, log.directory, entries)

    once = fs.kill()
    for again in (reopened(once), reopened(once.kill())):
        assert again.end_offset == 4
        assert again.replica.last_epoch == 1
        assert again.replica.end_of(epoch(2)) == (-1, -1)


def test_a_replica_shows_only_what_its_disk_has_until_its_leader_tells_more() -> None:
    fs, log = replica({"durability": "os"})
    log.replica.follow(epoch(1))
    log.replica.append(placed(0, b"a", b"b"), leader_epoch=epoch(1))
    log.sync()
    log.replica.append(placed(2, b"c"), leader_epoch=epoch(1))
    log.replica.raise_high_watermark(Offset(3))

    again = reopened(fs.kill())

    assert (again.high_watermark, again.end_offset) == (2, 3)


def test_an_epoch_that_the_disk_does_not_take_is_not_led() -> None:
    fs, log = replica()
    log.replica.follow(epoch(1))
    fs.fail_next("sync", OSError(5, "broken"), path_ends="leader-epoch-checkpoint.tmp")

    with pytest.raises(OSError, match="broken"):
        log.replica.lead(epoch(2))

    assert log.replica.last_epoch == -1
    with pytest.raises(NotLeaderError):
        log.append(b"v")
    assert log.replica.lead(epoch(2)) == 0


def test_a_late_job_of_an_earlier_role_is_refused() -> None:
    _, log = replica()
    log.replica.follow(epoch(4))

    with pytest.raises(RoleChangedError):
        log.replica.lead(epoch(3))
    with pytest.raises(RoleChangedError):
        log.replica.append(placed(0, b"a"), leader_epoch=epoch(3))
    with pytest.raises(RoleChangedError):
        log.replica.truncate(Offset(0), leader_epoch=epoch(3))
    with pytest.raises(RoleChangedError):
        log.replica.restart_at(Offset(9), leader_epoch=epoch(3))

    assert (log.replica.last_epoch, log.end_offset) == (-1, 0)


def test_a_batch_is_refused_if_the_leadership_it_was_meant_for_is_over() -> None:
    log = filled_leader(1, in_epoch=1)
    log.replica.lead(epoch(3))
    data = client_batch(b"late")

    with pytest.raises(NotLeaderError):
        log.batches.append_batch(data, wait=False, led_in=epoch(1))

    assert log.batches.append_batch(data, wait=False, led_in=epoch(3)).base_offset == 1


def test_a_log_with_other_replicas_is_not_truncated_by_hand() -> None:
    log = filled_leader()

    with pytest.raises(ReplicatedLogError, match="cannot truncate events-0"):
        log.truncation.truncate_to(1)


# --- the high watermark ------------------------------------------------------------------------


def test_the_high_watermark_moves_when_it_is_told_and_never_back() -> None:
    log = filled_leader(4)

    assert log.replica.raise_high_watermark(Offset(3)) == 3
    assert log.replica.raise_high_watermark(Offset(1)) == 3
    assert log.replica.raise_high_watermark(Offset(99)) == 4


def test_a_replica_opens_with_the_high_watermark_it_had() -> None:
    fs, log = replica()
    log.replica.lead(epoch(1))
    for _ in range(4):
        log.batches.append_batch(client_batch(b"v"), wait=False)
    log.sync()
    log.replica.raise_high_watermark(Offset(3))

    again = reopened(fs.kill())

    assert (again.high_watermark, again.end_offset) == (3, 4)


def test_readers_see_up_to_the_high_watermark_and_replicas_up_to_the_end() -> None:
    log = filled_leader(4)
    log.replica.raise_high_watermark(Offset(2))

    assert [record.value for record in log.read()] == [b"v00", b"v01"]
    found = log.replica.read(Offset(3), max_bytes=100)
    assert found is not None
    assert found.base_offset == 3
    assert log.replica.read(Offset(4), max_bytes=100) is None
    with pytest.raises(OffsetOutOfRangeError):
        log.replica.read(Offset(5), max_bytes=100)


def test_a_watcher_is_called_at_the_append_before_the_sync() -> None:
    _, log = replica()
    log.replica.lead(epoch(1))
    seen: list[int] = []
    log.promises.watch(lambda: seen.append(log.state.end))

    log.batches.append_batch(client_batch(b"v"), wait=False)

    assert seen == [1]
    assert log.state.durable == 0


# --- batches of a leader -----------------------------------------------------------------------


@pytest.mark.parametrize("piece_size", [1 << 20, 200])
def test_batches_are_appended_verbatim(piece_size: int) -> None:
    leader = filled_leader(9, in_epoch=2)
    _, log = replica({"internal.segment.bytes": 250, "index.interval.bytes": 50})
    log.replica.follow(epoch(2))

    while (found := leader.replica.read(log.end_offset, max_bytes=piece_size)) is not None:
        data = found.file.read_at(found.position, found.length)
        log.replica.append(data, leader_epoch=epoch(2))

    assert all_bytes(log) == all_bytes(leader)
    assert len(log.segments()) > 2
    assert (log.high_watermark, log.replica.last_epoch) == (0, 2)
    log.replica.raise_high_watermark(Offset(9))
    assert [record.value for record in log.read(5)] == [b"v%02d" % n for n in range(5, 9)]


def test_a_batch_that_is_cut_short_waits_for_the_next_fetch() -> None:
    _, log = replica()
    log.replica.follow(epoch(1))
    first, second = placed(0, b"a"), placed(1, b"b")

    end = log.replica.append(first + second[:30], leader_epoch=epoch(1))

    assert end == 1
    assert log.replica.append(second, leader_epoch=epoch(1)) == 2


def test_epochs_are_taken_from_the_batches() -> None:
    fs, log = replica()
    log.replica.follow(epoch(6))

    log.replica.append(
        placed(0, b"a", in_epoch=2) + placed(1, b"b", in_epoch=4) + placed(2, b"c", in_epoch=4),
        leader_epoch=epoch(6),
    )
    log.sync()

    assert log.replica.end_of(epoch(2)) == (2, 1)
    assert log.replica.end_of(epoch(3)) == (2, 1)
    assert log.replica.end_of(epoch(4)) == (4, 3)
    assert reopened(fs.crash(random.Random(1))).replica.last_epoch == 4


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (placed(5, b"x"), "begins at offset 5, and the log ends at 1"),
        (placed(0, b"x"), "begins at offset 0, and the log ends at 1"),
        (placed(1, b"x", in_epoch=1), "epoch 1 follows one of epoch 2"),
        (placed(1, b"x", in_epoch=9), "epoch 9 follows one of epoch 2"),
    ],
)
def test_batches_that_do_not_continue_the_log_are_refused(data: bytes, reason: str) -> None:
    _, log = replica()
    log.replica.follow(epoch(3))
    log.replica.append(placed(0, b"a", in_epoch=2), leader_epoch=epoch(3))

    with pytest.raises(ReplicaMismatchError, match=reason):
        log.replica.append(data, leader_epoch=epoch(3))

    assert log.end_offset == 1


def test_a_damaged_batch_is_refused_and_those_before_it_are_kept() -> None:
    _, log = replica()
    log.replica.follow(epoch(1))
    bad = bytearray(placed(1, b"b"))
    bad[-1] ^= 1

    with pytest.raises(ChecksumMismatchError):
        log.replica.append(placed(0, b"a") + bytes(bad), leader_epoch=epoch(1))

    assert log.end_offset == 1


def test_a_compacted_replica_takes_batches_with_gaps() -> None:
    _, log = replica({"cleanup.policy": "compact"})
    log.replica.follow(epoch(1))
    gappy = raw_batch(
        raw_record(b"x", key=b"k", offset_delta=3),
        base_offset=10,
        last_offset_delta=5,
        leader_epoch=1,
    )

    log.replica.append(bytes(gappy), leader_epoch=epoch(1))
    log.replica.raise_high_watermark(Offset(16))

    assert log.end_offset == 16
    assert [record.offset for record in log.read()] == [13]


def test_a_replica_knows_producers_and_transactions_as_its_leader_does() -> None:
    _, log = replica()
    log.replica.follow(epoch(1))
    log.replica.append(
        placed(0, b"a", producer_id=7, sequence=0, transactional=True),
        leader_epoch=epoch(1),
    )
    log.replica.raise_high_watermark(Offset(1))
    assert log.last_stable_offset == 0
    marker = bytearray(marker_batch(7, is_abort=True))
    marker[0:8], marker[12:16] = (1).to_bytes(8, "big"), (1).to_bytes(4, "big")

    log.replica.append(bytes(marker), leader_epoch=epoch(1))
    log.replica.raise_high_watermark(Offset(2))

    assert log.last_stable_offset == 2
    assert list(log.read(isolation="read_committed")) == []


# --- without waiting ---------------------------------------------------------------------------


def synced_files(fs: SimulatedFileSystem) -> list[str]:
    """The files that are synced from now on."""
    found: list[str] = []

    def note(operation: str, path: str) -> None:
        if "sync" in operation:
            found.append(path)

    fs.watch = note
    return found


def test_what_need_not_wait_is_appended_at_once_and_without_a_sync() -> None:
    fs, log = replica()
    log.replica.follow(epoch(1))
    log.replica.append(placed(0, b"a"), leader_epoch=epoch(1))
    synced = synced_files(fs)
    second, third, fourth = (placed(number, b"b") for number in (1, 2, 3))

    data = second + third + fourth[:40]
    taken = log.replica.append_at_once(data, leader_epoch=epoch(1))

    assert taken == len(data)  # what is cut short is whole in the next fetch
    assert (log.end_offset, log.state.durable, synced) == (3, 0, [])
    assert all_bytes(log) == placed(0, b"a") + second + third


def test_a_new_epoch_is_not_begun_at_once() -> None:
    fs, log = replica()
    log.replica.follow(epoch(2))
    log.replica.append(placed(0, b"a", in_epoch=1), leader_epoch=epoch(2))
    synced = synced_files(fs)

    taken = log.replica.append_at_once(placed(1, b"b", in_epoch=2), leader_epoch=epoch(2))

    assert (taken, log.end_offset, log.replica.last_epoch, synced) == (0, 1, 1, [])


def test_a_full_segment_is_left_to_the_append_that_may_wait() -> None:
    _, log = replica({"internal.segment.bytes": 250})
    log.replica.follow(epoch(1))
    batches = [placed(number, b"v%02d" % number) for number in range(6)]
    log.replica.append(batches[0], leader_epoch=epoch(1))
    data = memoryview(b"".join(batches[1:]))

    taken = log.replica.append_at_once(data, leader_epoch=epoch(1))
    assert (taken, len(log.state.segments)) == (0, 1)
    log.replica.append(data[taken:], leader_epoch=epoch(1))

    assert all_bytes(log) == b"".join(batches)
    assert len(log.state.segments) > 1


def test_the_first_gap_is_not_written_at_once() -> None:
    _, log = replica({"cleanup.policy": "compact"})
    log.replica.follow(epoch(1))
    log.replica.append(placed(0, b"a"), leader_epoch=epoch(1))
    gappy = placed(7, b"b")

    assert log.replica.append_at_once(gappy, leader_epoch=epoch(1)) == 0
    log.replica.append(gappy, leader_epoch=epoch(1))

    assert log.replica.append_at_once(placed(9, b"c"), leader_epoch=epoch(1)) == len(gappy)
    assert log.end_offset == 10


def test_a_log_that_starts_inside_of_a_batch_does_not_start_again_at_once() -> None:
    _, log = replica()
    log.replica.follow(epoch(1))
    log.replica.restart_at(Offset(9), leader_epoch=epoch(1))

    taken = log.replica.append_at_once(placed(8, b"a", b"b"), leader_epoch=epoch(1))

    assert (taken, log.state.start) == (0, 9)


def test_at_once_too_a_damaged_batch_and_an_earlier_leader_are_refused() -> None:
    _, log = replica()
    log.replica.follow(epoch(1))
    log.replica.append(placed(0, b"a"), leader_epoch=epoch(1))
    bad = bytearray(placed(2, b"b"))
    bad[-1] ^= 1

    with pytest.raises(ChecksumMismatchError):
        log.replica.append_at_once(placed(1, b"b") + bytes(bad), leader_epoch=epoch(1))
    log.replica.follow(epoch(2))
    with pytest.raises(RoleChangedError):
        log.replica.append_at_once(placed(2, b"c"), leader_epoch=epoch(1))

    assert log.end_offset == 2


# --- cutting and restarting --------------------------------------------------------------------


def test_a_truncation_takes_epochs_without_records_with_it() -> None:
    log = filled_leader(3, in_epoch=1)
    log.replica.lead(epoch(4))
    log.replica.follow(epoch(5))

    end = log.replica.truncate(Offset(3), leader_epoch=epoch(5))

    assert (end, log.replica.last_epoch) == (3, 1)


def test_a_replica_that_is_out_of_range_starts_again_where_the_leader_starts() -> None:
    fs, log = replica()
    log.replica.follow(epoch(1))
    log.replica.append(placed(0, b"a"), leader_epoch=epoch(1))

    log.replica.restart_at(Offset(40), leader_epoch=epoch(1))
    log.replica.append(placed(40, b"z", in_epoch=1), leader_epoch=epoch(1))
    log.sync()

    again = reopened(fs.crash(random.Random(2)))
    assert (again.state.start, again.end_offset, again.replica.last_epoch) == (40, 41, 1)


def test_a_replica_that_starts_inside_of_a_batch_starts_with_that_batch() -> None:
    _, log = replica()
    log.replica.follow(epoch(1))
    log.replica.restart_at(Offset(9), leader_epoch=epoch(1))

    log.replica.append(placed(8, b"a", b"b"), leader_epoch=epoch(1))
    log.replica.raise_high_watermark(Offset(10))

    assert (log.state.start, log.end_offset) == (8, 10)
    assert log.replica.adopt_start(Offset(9), leader_epoch=epoch(1)) == 9


def test_a_start_that_a_replica_adopts_takes_the_high_watermark_with_it() -> None:
    _, log = replica()
    log.replica.follow(epoch(1))
    for offset in range(4):
        log.replica.append(placed(offset, b"a"), leader_epoch=epoch(1))
    log.replica.raise_high_watermark(Offset(1))

    start = log.replica.adopt_start(Offset(3), leader_epoch=epoch(1))

    assert (start, log.state.start, log.high_watermark) == (3, 3, 3)


def test_a_replica_adopts_no_start_of_an_earlier_leader() -> None:
    _, log = replica()
    log.replica.follow(epoch(1))
    log.replica.append(placed(0, b"a"), leader_epoch=epoch(1))
    log.replica.follow(epoch(2))

    with pytest.raises(RoleChangedError):
        log.replica.adopt_start(Offset(1), leader_epoch=epoch(1))

    assert (log.state.start, log.high_watermark) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_synced_of_a_replica_survives_a_power_cut(seed: int) -> None:
    fs, log = replica({"internal.segment.bytes": 250})
    log.replica.follow(epoch(1))
    for number in range(6):
        log.replica.append(placed(number, b"v%02d" % number), leader_epoch=epoch(1))
    log.sync()
    log.replica.raise_high_watermark(Offset(5))
    log.replica.append(placed(6, b"v06"), leader_epoch=epoch(1))

    again = reopened(fs.crash(random.Random(seed)))

    assert again.end_offset in (6, 7)
    assert again.high_watermark <= 5
    assert all_bytes(again)[: 6 * len(placed(0, b"v00"))] == b"".join(
        placed(n, b"v%02d" % n) for n in range(6)
    )


def test_an_interrupted_append_leaves_nothing_behind() -> None:
    fs, log = replica()
    log.replica.follow(epoch(1))
    log.replica.append(placed(0, b"a"), leader_epoch=epoch(1))
    interrupts = [KeyboardInterrupt()]

    def interrupt(operation: str, path: str) -> None:
        if operation == "write_at" and path.endswith(".log") and interrupts:
            raise interrupts.pop()

    fs.watch = interrupt

    with pytest.raises(KeyboardInterrupt):
        log.replica.append(placed(1, b"b"), leader_epoch=epoch(1))

    assert log.end_offset == 1
    assert log.replica.append(placed(1, b"b"), leader_epoch=epoch(1)) == 2

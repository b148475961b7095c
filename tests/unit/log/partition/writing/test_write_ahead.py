"""`preallocate`: zeros ahead of the end of a log, which nobody reads and nothing counts."""

import errno
import logging
import os
from pathlib import Path
from random import Random

import pytest

import cordwood
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.ahead_policy import (
    AHEAD_BYTES_MIN,
    FREE_BYTES_MIN,
    GROWTH_BYTES_MAX,
    PAUSE_S_MAX,
    SMALL_SYNCS_MIN,
)
from cordwood.log.store.store import Store
from cordwood.storage.files import read_whole, write_all
from cordwood.storage.segment_parts.segment_writer import SegmentWriter
from fakes.client_batches import NOW, client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import IdleFlusher, log_of, new_log, open_store

FIRST = "/data/events-0/00000000000000000000.log"
AHEAD: dict[str, object] = {"preallocate": True}
SIZE = len(client_batch(b"v00"))


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=ManualClock(NOW))


@pytest.fixture
def log(fs: SimulatedFileSystem) -> PartitionLog:
    return new_log(fs, AHEAD, clock=ManualClock(NOW))[1]


def value(number: int) -> bytes:
    return b"v%02d" % number


def fill(log: PartitionLog, count: int) -> None:
    for number in range(log.end_offset, log.end_offset + count):
        log.append(value(number))


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.read()]


def reopened(fs: SimulatedFileSystem) -> tuple[Store, PartitionLog]:
    store = open_store(fs, clock=ManualClock(NOW))
    return store, log_of(store)


def content(fs: SimulatedFileSystem, path: str = FIRST) -> bytes:
    return read_whole(fs, path, limit=10**8)


def syncs_that_grew(fs: SimulatedFileSystem, log: PartitionLog, count: int) -> int:
    """Append records one by one; return how many of the syncs met a larger file."""
    grew = 0
    for number in range(count):
        before = fs.size(FIRST)
        log.append(value(number % 100))
        grew += fs.size(FIRST) > before
    return grew


# --- writing ---------------------------------------------------------------------------------


def test_the_file_of_the_active_segment_ends_with_zeros(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    fill(log, 3)

    found = content(fs)
    end = log.state.segments.active.size
    assert end == 3 * SIZE
    assert len(found) > end + AHEAD_BYTES_MIN // 2
    assert found[end:] == bytes(len(found) - end)
    assert values(log) == [value(0), value(1), value(2)]


def test_few_syncs_make_the_file_larger(fs: SimulatedFileSystem, log: PartitionLog) -> None:
    grew = syncs_that_grew(fs, log, 1000)

    assert grew < 10  # it doubles


def test_a_log_with_many_small_syncs_gets_zeros_if_its_topic_says_nothing(
    fs: SimulatedFileSystem,
) -> None:
    _, log = new_log(fs, clock=ManualClock(NOW))

    alone = syncs_that_grew(fs, log, SMALL_SYNCS_MIN)
    size = fs.size(FIRST)
    grew = syncs_that_grew(fs, log, 1000)

    assert alone == SMALL_SYNCS_MIN
    assert size == SMALL_SYNCS_MIN * SIZE
    assert grew < 10


def test_a_log_that_is_seldom_appended_to_gets_none(fs: SimulatedFileSystem) -> None:
    clock = ManualClock(NOW)
    _, log = new_log(fs, clock=clock)

    for number in range(3 * SMALL_SYNCS_MIN):
        clock.advance(int(PAUSE_S_MAX * 1000) + 1)
        log.append(value(number))

    assert fs.size(FIRST) == 3 * SMALL_SYNCS_MIN * SIZE


def test_zeros_follow_each_other_without_another_wait(fs: SimulatedFileSystem) -> None:
    """Also after a time in which every sync stayed inside the file."""
    clock = ManualClock(NOW)
    _, log = new_log(fs, clock=clock)
    syncs_that_grew(fs, log, SMALL_SYNCS_MIN + 1)

    grew = 0
    for number in range(500):
        clock.advance(int(PAUSE_S_MAX * 1000) - 1)
        before = fs.size(FIRST)
        log.append(value(number % 100))
        grew += fs.size(FIRST) > before

    assert 0 < grew < 10


def test_without_zeros_the_file_ends_with_its_last_batch(fs: SimulatedFileSystem) -> None:
    _, log = new_log(fs, {"preallocate": False}, clock=ManualClock(NOW))

    grew = syncs_that_grew(fs, log, 20)

    assert grew == 20
    assert fs.size(FIRST) == 20 * SIZE


def test_with_durability_os_nothing_is_written_ahead(fs: SimulatedFileSystem) -> None:
    _, log = new_log(fs, AHEAD | {"durability": "os"}, clock=ManualClock(NOW))

    fill(log, 3)
    log.sync()

    assert fs.size(FIRST) == 3 * SIZE


def test_zeros_are_synced_with_the_batches_before_them(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    log.append(value(0))
    calls = [operation for operation, path in fs.call_log if path == FIRST]

    assert calls[-3:] == ["write_at", "write_at", "sync"]


def test_a_sync_that_brings_much_writes_no_zeros(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    log.append(bytes(GROWTH_BYTES_MAX))

    assert fs.size(FIRST) == log.state.segments.active.size


def test_a_file_grows_no_further_than_its_segment_may(fs: SimulatedFileSystem) -> None:
    _, log = new_log(fs, AHEAD | {"internal.segment.bytes": 7000}, clock=ManualClock(NOW))

    log.append(value(0))

    assert fs.size(FIRST) == 4096  # it ends with a page


def test_what_must_stay_free_is_not_filled_with_zeros() -> None:
    capacity = FREE_BYTES_MIN + 10_000_000
    fs = SimulatedFileSystem(clock=ManualClock(NOW), capacity_bytes=capacity)
    store, log = new_log(fs, AHEAD, clock=ManualClock(NOW))
    (directory,) = store.directories
    directory.check_room(20_000_000)

    fill(log, 3)

    assert fs.size(FIRST) == 3 * SIZE


@pytest.mark.parametrize(
    ("config", "is_trimmed"), [({}, True), (AHEAD, False), ({"preallocate": "auto"}, True)]
)
def test_a_log_that_is_idle_gives_its_zeros_back(
    fs: SimulatedFileSystem, config: dict[str, object], is_trimmed: bool
) -> None:
    clock = ManualClock(NOW)
    _, log = new_log(fs, config, clock=clock)
    fill(log, SMALL_SYNCS_MIN + 1)
    end = log.state.segments.active.size
    size = fs.size(FIRST)

    log.syncing.trim_if_idle()
    at_once = fs.size(FIRST)
    clock.advance(61_000)
    log.syncing.trim_if_idle()
    later = fs.size(FIRST)
    fill(log, 2)

    assert size > end
    assert at_once == size
    assert later == (end if is_trimmed else size)
    assert len(values(log)) == SMALL_SYNCS_MIN + 3


def test_zeros_that_come_back_behind_a_rolled_segment_are_cut_off_again(
    fs: SimulatedFileSystem,
) -> None:
    """A power cut undid the trimming, and the recovery point lies behind that segment."""
    clock = ManualClock(NOW)
    store, log = new_log(fs, AHEAD, clock=clock)
    fill(log, 3)
    end, size = log.state.segments.active.size, fs.size(FIRST)
    store.maintain()
    log.roll()
    fill(log, 1)
    write_all(fs.open_write(FIRST), end, bytes(size - end))
    left = fs.kill()

    _, log = reopened(left)

    assert left.size(FIRST) == end
    assert log.damages == []
    assert values(log) == [value(number) for number in range(4)]
    assert log.state.segments[0].size == end


def test_a_disk_with_little_room_gets_no_zeros() -> None:
    fs = SimulatedFileSystem(clock=ManualClock(NOW), capacity_bytes=FREE_BYTES_MIN)
    _, log = new_log(fs, AHEAD, clock=ManualClock(NOW))

    fill(log, 3)

    assert fs.size(FIRST) == 3 * SIZE


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_log_whose_zeros_cannot_be_written_goes_on_without(
    fs: SimulatedFileSystem,
    log: PartitionLog,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with monkeypatch.context() as patched:

        def fail(writer: SegmentWriter, end: int) -> None:
            write_all(writer.file, writer.extent.size, bytes(100))
            writer.zeros.end = end
            raise OSError(number, os.strerror(number))

        patched.setattr(SegmentWriter, "write_ahead", fail)
        fill(log, 2)

    fill(log, 2)

    assert fs.size(FIRST) == 4 * SIZE
    assert values(log) == [value(n) for n in range(4)]
    assert "nothing is written ahead of the end" in caplog.text


def test_an_interrupt_while_zeros_are_written_leaves_a_log_that_works(
    fs: SimulatedFileSystem, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = 0

    def watch(operation: str, path: str) -> None:
        nonlocal writes
        if path == FIRST and operation == "write_at":
            writes += 1
            if writes == 2:
                raise KeyboardInterrupt

    fs.watch = watch

    with pytest.raises(KeyboardInterrupt):
        log.append(value(0))

    fs.watch = None
    log.append(value(1))
    assert values(log) == [value(0), value(1)]
    _, again = reopened(fs.kill())
    assert values(again) == [value(0), value(1)]
    assert again.damages == []


# --- only the last file, and only while it is open -------------------------------------------


def test_a_sealed_segment_ends_with_its_last_batch(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    fill(log, 3)

    log.roll()

    assert fs.size(FIRST) == 3 * SIZE
    assert [info.size_bytes for info in log.segments()] == [3 * SIZE, 0]


def test_a_closed_log_ends_with_its_last_batch(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs, AHEAD, clock=ManualClock(NOW))
    fill(log, 3)

    store.close()

    assert fs.size(FIRST) == 3 * SIZE
    _, again = reopened(fs.crash(Random(1)))
    assert values(again) == [value(0), value(1), value(2)]


def test_a_log_that_cannot_be_trimmed_is_not_closed_cleanly(
    fs: SimulatedFileSystem, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 3)

    def watch(operation: str, path: str) -> None:
        if operation == "truncate_to":
            raise OSError(errno.ENOSPC, "no room for the journal")

    fs.watch = watch

    assert not log.close()

    fs.watch = None
    _, again = reopened(fs.kill())
    assert values(again) == [value(0), value(1), value(2)]
    assert again.damages == []


def test_a_log_that_is_not_closed_in_order_keeps_its_zeros(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    fill(log, 3)

    log.close(is_orderly=False)

    assert fs.size(FIRST) > 3 * SIZE


def test_a_truncated_log_has_no_old_batches_behind_its_end(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    fill(log, 8)

    log.truncation.truncate_to(5)
    log.append(b"new")

    end = log.state.segments.active.size
    assert content(fs)[end:] == bytes(fs.size(FIRST) - end)
    _, again = reopened(fs.kill())
    assert values(again) == [value(0), value(1), value(2), value(3), value(4), b"new"]


def test_sizes_do_not_count_the_zeros(fs: SimulatedFileSystem, log: PartitionLog) -> None:
    fill(log, 3)

    assert log.size_bytes == 3 * SIZE
    assert log.segments()[0].size_bytes == 3 * SIZE


# --- after a crash ---------------------------------------------------------------------------


def test_recovery_cuts_the_zeros_off_and_calls_them_neither_torn_nor_damaged(
    fs: SimulatedFileSystem, log: PartitionLog, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log, 3)
    left = fs.kill()

    _, again = reopened(left)

    assert left.size(FIRST) == 3 * SIZE
    assert values(again) == [value(0), value(1), value(2)]
    assert again.damages == []
    assert "torn" not in caplog.text


def test_a_batch_behind_a_hole_is_not_read_again(fs: SimulatedFileSystem) -> None:
    """Two appends overwrote zeros; the pages of the second one alone reached the disk."""
    flusher = IdleFlusher()
    _, log = new_log(fs, AHEAD, clock=ManualClock(NOW), flusher=flusher)
    fill(log, 2)
    end = log.state.segments.active.size
    file = fs.open_write(FIRST)
    write_all(file, end + SIZE, client_batch(b"v03", base_offset=3))
    left = fs.kill()

    _, again = reopened(left)

    assert values(again) == [value(0), value(1)]
    assert again.damages == []
    assert left.size(FIRST) == 2 * SIZE
    again.append(b"new")
    assert values(again) == [value(0), value(1), b"new"]


def test_zeros_where_records_were_promised_are_damage(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    fill(log, 4)
    file = fs.open_write(FIRST)
    write_all(file, 2 * SIZE, bytes(2 * SIZE))

    _, again = reopened(fs.kill())

    assert [(d.first_offset, d.next_offset) for d in again.damages] == [(2, 4)]
    assert again.end_offset == 4


def test_a_segment_whose_trimming_was_lost_is_trimmed_by_recovery(
    fs: SimulatedFileSystem,
) -> None:
    """The roll cut the zeros off; the power went before the next sync."""
    flusher = IdleFlusher()
    _, log = new_log(fs, AHEAD, clock=ManualClock(NOW), flusher=flusher)
    fill(log, 3)
    zeros = fs.size(FIRST) - 3 * SIZE
    log.roll()
    log.appending.append(b"later", None, (), None, None, "os")
    file = fs.open_write(FIRST)
    write_all(file, 3 * SIZE, bytes(zeros))
    left = fs.kill()

    _, again = reopened(left)

    assert again.damages == []
    assert left.size(FIRST) == 3 * SIZE
    assert values(again) == [value(0), value(1), value(2), b"later"]


# --- on a real disk --------------------------------------------------------------------------


def test_a_store_on_a_real_disk_is_trimmed_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "events-0" / "00000000000000000000.log"
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("events", config={"preallocate": "true"})
        for number in range(100):
            topic.append(value(number))
        data = path.read_bytes()
        size = topic.partition(0).size_bytes
        assert len(data) > size
        assert data[size:] == bytes(len(data) - size)

    assert path.stat().st_size == size

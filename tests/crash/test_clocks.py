"""Clocks that jump by hours and by ten years: nothing goes early, nothing stays for ever."""

from __future__ import annotations

from typing import Final

import pytest

from cordwood.format.batch_builder import BatchStyle, ProducerStamp, build_batch
from cordwood.format.record import Record
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.quantities import MIB, ProducerId
from crash.client import open_store
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem

pytestmark = pytest.mark.faults

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
YEARS: Final = 3650 * DAY
JUMPS: Final = [HOUR, -HOUR, 10 * HOUR, -10 * HOUR, YEARS, -YEARS]

CONFIG: Final = {
    "retention.ms": 7 * DAY,
    "segment.ms": 6 * HOUR,
    "file.delete.delay.ms": 0,
    "message.timestamp.after.max.ms": 2**62,
}


class Machine:
    """A store on a machine whose clock a test may set; housekeeping runs as time passes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fs = SimulatedFileSystem(clock=self.clock)
        self.store: Store = open_store(self.fs)
        self.store.create_topic("orders", config=CONFIG)

    @property
    def log(self) -> PartitionLog:
        log = self.store.topic("orders").partition(0)
        assert isinstance(log, PartitionLog)
        return log

    def pass_time(self, ms: int, *, step_ms: int = 30 * MINUTE) -> None:
        for _ in range(ms // step_ms):
            self.clock.advance(step_ms)
            self.store.maintain()

    def append_for(self, ms: int) -> None:
        for _ in range(ms // HOUR):
            self.log.append(b"on the hour")
            self.pass_time(HOUR)

    def jump(self, ms: int) -> None:
        self.clock.set(self.clock.now_ms() + ms)

    def reopen(self, *, closed_ms: int = 0, jump_ms: int = 0) -> None:
        self.store.close()
        self.clock.advance(closed_ms)
        self.jump(jump_ms)
        self.store = open_store(self.fs)


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_jump_that_is_put_right_deletes_nothing(jump_ms: int) -> None:
    machine = Machine()
    machine.append_for(2 * DAY)
    count = machine.log.end_offset

    machine.jump(jump_ms)
    machine.pass_time(40 * MINUTE, step_ms=5 * MINUTE)
    machine.log.append(b"in another time")
    machine.jump(-jump_ms)
    machine.pass_time(2 * HOUR)

    assert machine.log.start_offset == 0
    assert [record.offset for record in machine.log.read()] == list(range(count + 1))


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_what_was_written_in_another_time_goes_when_it_is_old_enough(jump_ms: int) -> None:
    machine = Machine()
    machine.append_for(DAY)
    machine.jump(jump_ms)
    for _ in range(3):
        machine.log.append(b"in another time")
        machine.pass_time(10 * MINUTE, step_ms=5 * MINUTE)
    machine.jump(-jump_ms)
    machine.pass_time(HOUR)
    machine.log.append(b"in its own time")
    count = machine.log.end_offset

    machine.pass_time(9 * DAY)

    assert machine.log.start_offset == count


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_store_that_wakes_up_in_another_time_keeps_and_gives_what_it_has(jump_ms: int) -> None:
    machine = Machine()
    machine.append_for(DAY)
    count = machine.log.end_offset

    machine.store.close()
    machine.jump(jump_ms)
    machine.store = open_store(machine.fs)
    found = [record.offset for record in machine.log.read()]
    placed = machine.log.append(b"after waking up").offset

    assert found == list(range(count))
    assert placed == count
    assert machine.store.damages() == []


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_clock_that_stays_where_it_jumped_is_believed_in_the_end(jump_ms: int) -> None:
    machine = Machine()
    machine.append_for(DAY)

    machine.jump(jump_ms)
    machine.pass_time(2 * HOUR)
    machine.log.append(b"in the new time")
    count = machine.log.end_offset
    machine.pass_time(9 * DAY)

    assert machine.log.start_offset == count


def test_a_store_that_is_opened_ten_years_ahead_deletes_nothing_until_the_clock_is_right() -> None:
    machine = Machine()
    machine.append_for(2 * DAY)
    count = machine.log.end_offset

    machine.reopen(jump_ms=YEARS)
    machine.store.maintain()
    machine.pass_time(50 * MINUTE, step_ms=5 * MINUTE)
    assert machine.log.start_offset == 0

    machine.reopen(jump_ms=-YEARS)
    machine.store.maintain()
    machine.pass_time(3 * HOUR)
    assert [record.offset for record in machine.log.read()] == list(range(count))


def test_a_clock_that_is_put_right_while_the_store_runs_deletes_nothing() -> None:
    machine = Machine()
    machine.append_for(2 * DAY)

    machine.reopen(jump_ms=YEARS)
    machine.pass_time(50 * MINUTE, step_ms=5 * MINUTE)
    machine.jump(-YEARS)
    machine.pass_time(3 * HOUR)

    assert machine.log.start_offset == 0


def test_a_clock_that_was_believed_wrongly_is_put_right_and_no_more_is_deleted() -> None:
    machine = Machine()
    machine.reopen(jump_ms=YEARS)
    machine.pass_time(2 * HOUR)
    machine.reopen(jump_ms=-YEARS)
    machine.append_for(2 * DAY)

    assert machine.log.start_offset == 0


def test_a_store_that_was_closed_for_a_month_deletes_after_an_hour() -> None:
    machine = Machine()
    machine.append_for(2 * DAY)
    count = machine.log.end_offset

    machine.reopen(closed_ms=30 * DAY)
    machine.pass_time(59 * MINUTE, step_ms=MINUTE)
    assert machine.log.start_offset == 0

    machine.pass_time(2 * MINUTE, step_ms=MINUTE)
    assert machine.log.start_offset == count


def test_a_store_that_is_open_for_a_moment_every_week_deletes_at_the_third_opening() -> None:
    machine = Machine()
    machine.append_for(2 * DAY)
    count = machine.log.end_offset

    starts = []
    for _ in range(3):
        machine.reopen(closed_ms=7 * DAY)
        machine.store.maintain()
        starts.append(machine.log.start_offset)

    assert starts == [0, 0, count]


def test_after_a_kill_the_time_of_the_last_checkpoint_counts() -> None:
    machine = Machine()
    machine.append_for(2 * DAY)

    machine.store.abandon()
    machine.jump(YEARS)
    machine.store = open_store(machine.fs)
    machine.store.maintain()

    assert machine.log.start_offset == 0


def test_a_store_that_wakes_up_in_another_time_still_knows_its_producers() -> None:
    machine = Machine()
    stamp = ProducerStamp(producer_id=ProducerId(7), producer_epoch=0, base_sequence=0)
    style = BatchStyle(bytes_max=MIB)
    built = build_batch([Record(b"once")], machine.clock.now_ms(), style, stamp)
    machine.log.batches.append_batch(bytearray(built.data))

    machine.reopen(jump_ms=YEARS)

    assert machine.log.batches.append_batch(bytearray(built.data)).is_duplicate

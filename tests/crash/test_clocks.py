"""Clocks that jump by hours and by ten years: nothing goes early, nothing stays for ever."""

from __future__ import annotations

from typing import Final

import pytest

from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
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

    def reopen(self) -> None:
        self.store.close()
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

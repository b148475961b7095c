"""Records on their way into the log: in order, nobody told too soon, nothing forgotten."""

from __future__ import annotations

import pytest

from cordwood.broker.groups.journal.group_journal import GroupJournal
from cordwood.broker.groups.journal.group_log import Done
from cordwood.protocol.error_code import ErrorCode
from fakes.manual_scheduler import ManualScheduler
from fakes.memory_group_log import MemoryGroupLog

FAILED = ErrorCode.not_coordinator


class Told:
    """Who was told what, in order."""

    def __init__(self) -> None:
        self.codes: list[tuple[str, ErrorCode]] = []

    def listener(self, name: str) -> Done:
        return lambda code: self.codes.append((name, code))


@pytest.fixture
def scheduler() -> ManualScheduler:
    return ManualScheduler()


@pytest.fixture
def log(scheduler: ManualScheduler) -> MemoryGroupLog:
    return MemoryGroupLog(scheduler)


@pytest.fixture
def journal(log: MemoryGroupLog) -> GroupJournal:
    return GroupJournal("g", log)


@pytest.fixture
def told() -> Told:
    return Told()


def test_who_appends_is_told_when_it_is_durable(
    journal: GroupJournal, log: MemoryGroupLog, scheduler: ManualScheduler, told: Told
) -> None:
    log.is_held = True
    journal.append([(b"k", b"v")], told.listener("a"))
    scheduler.run_ready()
    assert told.codes == []

    log.release()
    scheduler.run_ready()

    assert told.codes == [("a", ErrorCode.none)]
    assert log.records == [(b"k", b"v")]


def test_who_has_nothing_to_append_is_told_at_once(journal: GroupJournal, told: Told) -> None:
    journal.append([], told.listener("a"))

    assert told.codes == [("a", ErrorCode.none)]


def test_who_has_nothing_to_append_waits_for_those_before(
    journal: GroupJournal, log: MemoryGroupLog, scheduler: ManualScheduler, told: Told
) -> None:
    log.is_held = True
    journal.append([(b"k", b"v")], told.listener("a"))

    journal.append([], told.listener("b"))

    assert told.codes == []
    log.release()
    scheduler.run_ready()
    assert told.codes == [("a", ErrorCode.none), ("b", ErrorCode.none)]


def test_what_failed_is_appended_with_the_next(
    journal: GroupJournal, log: MemoryGroupLog, scheduler: ManualScheduler, told: Told
) -> None:
    log.fail_with = FAILED
    journal.append([(b"k", b"1"), (b"l", b"1")], told.listener("a"))
    scheduler.run_ready()
    log.fail_with = None

    journal.append([(b"k", b"2")], told.listener("b"))
    scheduler.run_ready()

    assert told.codes == [("a", FAILED), ("b", ErrorCode.none)]
    assert log.table == {b"k": b"2", b"l": b"1"}


def test_who_has_nothing_to_append_is_not_told_before_what_failed_is_durable(
    journal: GroupJournal, log: MemoryGroupLog, scheduler: ManualScheduler, told: Told
) -> None:
    log.fail_with = FAILED
    journal.append([(b"k", b"1")], told.listener("a"))
    scheduler.run_ready()

    journal.append([], told.listener("b"))
    scheduler.run_ready()
    log.fail_with = None
    journal.append([], told.listener("c"))
    scheduler.run_ready()

    assert told.codes == [("a", FAILED), ("b", FAILED), ("c", ErrorCode.none)]
    assert log.table == {b"k": b"1"}


def test_what_failed_does_not_come_after_what_is_newer(
    journal: GroupJournal, log: MemoryGroupLog, scheduler: ManualScheduler, told: Told
) -> None:
    log.is_held = True
    journal.append([(b"k", b"1")], told.listener("a"))
    log.fail_with = FAILED
    log.release()
    log.fail_with = None
    journal.append([(b"k", b"2")], told.listener("b"))
    log.release()
    scheduler.run_ready()
    log.is_held = False

    journal.append([(b"m", b"3")], told.listener("c"))
    scheduler.run_ready()

    assert log.table == {b"k": b"2", b"m": b"3"}


def test_leftovers_are_ended_with_the_first_append(
    log: MemoryGroupLog, scheduler: ManualScheduler, told: Told
) -> None:
    journal = GroupJournal("g", log, [b"old"])

    journal.append([(b"k", b"v")], told.listener("a"))
    scheduler.run_ready()

    assert log.table == {b"old": None, b"k": b"v"}


def test_many_records_go_in_parts_and_whoever_appends_is_told_once(
    journal: GroupJournal, log: MemoryGroupLog, scheduler: ManualScheduler, told: Told
) -> None:
    log.is_held = True
    records = [(b"%d" % number, bytes(100_000)) for number in range(5)]

    journal.append(records, told.listener("a"))

    assert [len(part) for part, _ in log._waiting] == [2, 2, 1]
    log.release()
    scheduler.run_ready()
    assert log.records == records
    assert told.codes == [("a", ErrorCode.none)]


def test_when_a_part_fails_whoever_appends_is_told_so(
    journal: GroupJournal, log: MemoryGroupLog, scheduler: ManualScheduler, told: Told
) -> None:
    log.is_held = True
    journal.append([(b"%d" % n, bytes(200_000)) for n in range(2)], told.listener("a"))
    log.fail_with = FAILED
    first, second = log._waiting
    log._waiting = [first]
    log.release()
    log.fail_with = None
    log._waiting = [second]
    log.release()

    scheduler.run_ready()

    assert told.codes == [("a", FAILED)]

"""The judge of transactions: each broken promise is found, and a sound history is sound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crash.exactly_once.analysis import Violation, judge
from crash.exactly_once.history import (
    Began,
    Ended,
    Ending,
    Event,
    HistoryWriter,
    LateFrame,
    OffsetSent,
    Outcome,
    Position,
    Read,
    ReaderStarted,
    Sent,
    Stored,
    read_events,
)

END = 1000  # later than all that happens


class Run:
    """A history by hand. Time moves by one with each event."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.time = 0

    def tick(self) -> int:
        self.time += 1
        return self.time

    def begin(self, name: str, version: int = 2) -> None:
        self.events.append(Began(at=self.tick(), transaction=name, version=version))

    def send(self, value: str, partition: int, offset: int | None) -> None:
        """`offset` is None if no answer came."""
        name = value.partition("/")[0]
        self.events.append(Sent(at=self.tick(), transaction=name, partition=partition, value=value))
        if offset is not None:
            self.events.append(
                Stored(
                    at=self.tick(),
                    transaction=name,
                    partition=partition,
                    value=value,
                    offset=offset,
                )
            )

    def offset(self, name: str, group: str, partition: int, offset: int) -> None:
        self.events.append(
            OffsetSent(
                at=self.tick(), transaction=name, group=group, partition=partition, offset=offset
            )
        )

    def end(self, name: str, *, commit: bool = True, told: bool = True) -> None:
        self.events.append(Ending(at=self.tick(), transaction=name, is_commit=commit))
        if told:
            self.events.append(Ended(at=self.tick(), transaction=name, is_commit=commit))

    def start_reader(self, partition: int, offset: int = 0, reader: str = "reader") -> None:
        self.events.append(
            ReaderStarted(at=self.tick(), reader=reader, partition=partition, offset=offset)
        )

    def read(self, partition: int, offset: int, value: str, reader: str = "reader") -> None:
        self.events.append(
            Read(at=self.tick(), reader=reader, partition=partition, offset=offset, value=value)
        )

    def position(self, group: str, partition: int, offset: int) -> None:
        asked_at = self.tick()
        self.events.append(
            Position(
                asked_at=asked_at, at=self.tick(), group=group, partition=partition, offset=offset
            )
        )

    def late(self, taken_at: int, client: str = "w", api: int = 26) -> None:
        self.events.append(LateFrame(taken_at=taken_at, at=self.tick(), client=client, api=api))


def sound_run() -> tuple[Run, Outcome]:
    """Two transactions over partitions 0 and 1, an aborted one between them, and a reader.

    Then a worker that makes a value in partition 1 of each record in partition 0.
    """
    run = Run()
    run.start_reader(0)
    run.begin("w.0.0")
    run.send("w.0.0/0", 0, 0)
    run.send("w.0.0/1", 1, 0)
    run.end("w.0.0")
    run.begin("w.0.1")
    run.send("w.0.1/0", 0, 2)
    run.send("w.0.1/1", 1, None)
    run.end("w.0.1", commit=False)
    run.begin("w.0.2")
    run.send("w.0.2/0", 0, 4)
    run.send("w.0.2/1", 1, 2)
    run.end("w.0.2")
    run.read(0, 0, "w.0.0/0")
    run.read(0, 4, "w.0.2/0")
    run.position("g", 0, -1)
    run.begin("c.0.0")
    run.send("c.0.0/0<0:0", 1, 4)
    run.offset("c.0.0", "g", 0, 1)
    run.end("c.0.0")
    run.position("g", 0, 1)
    run.begin("c.0.1")
    run.send("c.0.1/0<0:4", 1, 6)
    run.offset("c.0.1", "g", 0, 5)
    run.end("c.0.1")
    outcome = Outcome(
        committed={
            0: [(0, "w.0.0/0"), (4, "w.0.2/0")],
            1: [(0, "w.0.0/1"), (2, "w.0.2/1"), (4, "c.0.0/0<0:0"), (6, "c.0.1/0<0:4")],
        },
        all={
            0: [(0, "w.0.0/0"), (2, "w.0.1/0"), (4, "w.0.2/0")],
            1: [(0, "w.0.0/1"), (2, "w.0.2/1"), (4, "c.0.0/0<0:0"), (6, "c.0.1/0<0:4")],
        },
        positions={("g", 0): 5},
    )
    return run, outcome


def without(outcome: Outcome, *values: str) -> Outcome:
    """Committed readers do not see some values."""
    return replace(
        outcome,
        committed={
            partition: [(offset, value) for offset, value in records if value not in values]
            for partition, records in outcome.committed.items()
        },
    )


def kinds(found: list[Violation]) -> set[str]:
    return {violation.kind for violation in found}


def test_a_sound_history_breaks_no_promise() -> None:
    run, outcome = sound_run()

    assert judge(run.events, outcome) == []


def test_a_history_is_the_same_after_it_was_written(tmp_path: Path) -> None:
    run, _ = sound_run()
    run.late(1)
    writer = HistoryWriter(tmp_path / "events")
    for event in run.events:
        writer.add(event)
    writer.close()
    with (tmp_path / "events").open("ab") as file:
        file.write(b'["Began",1')  # a kill

    assert list(read_events([tmp_path / "events"])) == run.events


@pytest.mark.parametrize("is_there", [True, False])
def test_a_commit_that_nobody_was_told_of_may_be_there_or_not(is_there: bool) -> None:
    run = Run()
    run.begin("w.0.0")
    run.send("w.0.0/0", 0, 0)
    run.send("w.0.0/1", 1, 0)
    run.end("w.0.0", told=False)
    stored = {0: [(0, "w.0.0/0")], 1: [(0, "w.0.0/1")]}

    assert judge(run.events, Outcome(committed=stored if is_there else {}, all=stored)) == []


def test_a_lost_commit_is_found() -> None:
    run, outcome = sound_run()

    found = judge(run.events, without(outcome, "w.0.2/0", "w.0.2/1"))

    assert "lost commit" in kinds(found)


def test_a_torn_transaction_is_found() -> None:
    run, outcome = sound_run()

    found = judge(run.events, without(outcome, "w.0.2/1"))

    assert kinds(found) == {"torn transaction"}


@pytest.mark.parametrize("by", ["end", "reader"])
def test_an_aborted_read_is_found(by: str) -> None:
    run, outcome = sound_run()
    if by == "end":
        outcome.committed[0].insert(1, (2, "w.0.1/0"))
    else:
        run.start_reader(0, reader="other")
        run.read(0, 2, "w.0.1/0", reader="other")

    found = judge(run.events, outcome)

    assert "aborted read" in kinds(found)


def test_a_reader_in_front_of_the_end_of_a_transaction_is_found() -> None:
    run, outcome = sound_run()
    begun = next(e.at for e in run.events if isinstance(e, Stored) and e.value == "w.0.2/0")
    events = [
        replace(e, at=begun) if isinstance(e, Read) and e.offset == 4 else e for e in run.events
    ]

    found = judge(events, outcome)

    assert kinds(found) == {"early read"}


def test_a_reader_that_passed_an_open_transaction_is_found() -> None:
    run, outcome = sound_run()
    events = [e for e in run.events if not (isinstance(e, Read) and e.offset == 0)]

    found = judge(events, outcome)

    assert kinds(found) == {"skipped"}


def test_a_record_that_is_there_twice_is_found() -> None:
    run, outcome = sound_run()
    outcome.all[0].append((6, "w.0.2/0"))

    found = judge(run.events, outcome)

    assert kinds(found) == {"duplicate"}


def test_an_acknowledged_record_that_is_gone_is_found_even_if_its_transaction_was_aborted() -> None:
    run, outcome = sound_run()
    outcome.all[0].remove((2, "w.0.1/0"))

    found = judge(run.events, outcome)

    assert kinds(found) == {"lost record"}


def test_two_records_at_one_offset_are_found() -> None:
    run, outcome = sound_run()
    run.start_reader(0, 4, reader="other")
    run.read(0, 4, "w.0.0/0", reader="other")

    found = judge(run.events, outcome)

    assert "conflict" in kinds(found)


def test_records_out_of_order_are_found() -> None:
    run, outcome = sound_run()
    events = [
        replace(e, offset={0: 4, 4: 0}.get(e.offset, e.offset))
        if isinstance(e, Stored) and e.partition == 0
        else e
        for e in run.events
        if not isinstance(e, Read)
    ]
    swapped = {0: [(0, "w.0.2/0"), (2, "w.0.1/0"), (4, "w.0.0/0")]}

    found = judge(events, replace(outcome, all=outcome.all | swapped))

    assert "reorder" in kinds(found)


def test_a_lost_offset_is_found() -> None:
    run, outcome = sound_run()

    found = judge(run.events, replace(outcome, positions={("g", 0): 1}))

    assert "lost offset" in kinds(found)


def test_an_offset_that_was_lost_for_a_while_is_found() -> None:
    run, outcome = sound_run()
    run.position("g", 0, 1)

    found = judge(run.events, outcome)

    assert kinds(found) == {"lost offset"}


def test_an_offset_that_goes_back_is_found() -> None:
    run, outcome = sound_run()
    events = [
        e for e in run.events if not (isinstance(e, Ended) and e.transaction.startswith("c."))
    ]
    later = Run()
    later.time = run.time
    later.position("g", 0, 5)
    later.position("g", 0, 1)

    found = judge([*events, *later.events], outcome)

    assert kinds(found) == {"offset went back"}


def test_an_offset_of_an_aborted_transaction_is_found() -> None:
    run, outcome = sound_run()
    run.begin("c.0.2")
    run.offset("c.0.2", "g", 0, 9)
    run.end("c.0.2", commit=False)

    found = judge(run.events, replace(outcome, positions={("g", 0): 9}))

    assert "offset of nobody" in kinds(found)


def test_an_offset_without_its_records_is_a_torn_transaction() -> None:
    run, outcome = sound_run()
    events = [e for e in run.events if not (isinstance(e, Ended) and e.transaction == "c.0.1")]

    found = judge(events, without(outcome, "c.0.1/0<0:4"))

    assert "torn transaction" in kinds(found)


def test_records_without_their_offset_are_a_torn_transaction() -> None:
    run, outcome = sound_run()
    events = [e for e in run.events if not (isinstance(e, Ended) and e.transaction == "c.0.1")]

    found = judge(events, replace(outcome, positions={("g", 0): 1}))

    assert kinds(found) == {"torn transaction"}


def test_a_record_that_was_processed_twice_is_found() -> None:
    run, outcome = sound_run()
    run.begin("c.0.2")
    run.send("c.0.2/0<0:4", 1, 8)
    run.offset("c.0.2", "g", 0, 5)
    run.end("c.0.2")
    for records in (outcome.all, outcome.committed):
        records[1].append((8, "c.0.2/0<0:4"))

    found = judge(run.events, outcome)

    assert kinds(found) == {"processed twice"}


def test_a_record_that_was_not_processed_is_found() -> None:
    run, outcome = sound_run()
    run.begin("w.0.3")
    run.send("w.0.3/0", 0, 3)
    run.end("w.0.3")
    outcome.committed[0].insert(1, (3, "w.0.3/0"))
    outcome.all[0].insert(2, (3, "w.0.3/0"))

    found = judge(run.events, outcome)

    assert "not processed" in kinds(found)


def test_a_transaction_that_hangs_is_found() -> None:
    run, outcome = sound_run()

    found = judge(run.events, replace(outcome, hanging=(1,)))

    assert kinds(found) == {"hanging"}


@pytest.mark.parametrize(
    ("version", "life", "expected"), [(1, "0", True), (2, "0", False), (1, "1", False)]
)
def test_only_version_1_is_excused_by_a_late_request_and_only_in_the_same_life(
    version: int, life: str, expected: bool
) -> None:
    run = Run()
    run.begin("w.0.0", version)
    run.send("w.0.0/0", 0, 0)
    run.end("w.0.0")
    taken_at = run.time
    second = f"w.{life}.1"
    run.begin(second, version)
    run.send(f"{second}/0", 0, 2)
    run.late(taken_at)  # commits what there is
    run.send(f"{second}/1", 1, None)
    run.end(second)
    records = [(0, "w.0.0/0"), (2, f"{second}/0")]
    outcome = Outcome(committed={0: records, 1: []}, all={0: records, 1: []})

    [found] = judge(run.events, outcome)

    assert found.kind == "torn transaction"
    assert found.is_known_hole is expected


@pytest.mark.parametrize(("version", "expected"), [(1, True), (2, False)])
def test_a_late_request_excuses_a_record_that_its_transaction_passed_although_it_was_aborted(
    version: int, expected: bool
) -> None:
    run = Run()
    run.begin("w.0.0")
    run.send("w.0.0/0", 0, 0)
    run.send("w.0.0/1", 0, 1)
    run.end("w.0.0")
    run.begin("c.0.0", version)
    run.offset("c.0.0", "g", 0, 0)
    run.end("c.0.0")
    taken_at = run.time
    run.begin("c.0.1", version)
    run.send("c.0.1/0<0:0", 1, None)
    run.offset("c.0.1", "g", 0, 1)
    run.late(taken_at, client="c")  # commits the offset without its value
    run.end("c.0.1", commit=False, told=False)
    run.begin("c.1.0", version)
    run.send("c.1.0/0<0:1", 1, 4)
    run.offset("c.1.0", "g", 0, 2)
    run.end("c.1.0")
    records = {0: [(0, "w.0.0/0"), (1, "w.0.0/1")], 1: [(4, "c.1.0/0<0:1")]}
    outcome = Outcome(committed=records, all=records, positions={("g", 0): 2})

    found = [one for one in judge(run.events, outcome) if one.kind == "not processed"]

    assert [one.is_known_hole for one in found] == [expected]


def test_a_late_request_excuses_nothing_in_other_transactions() -> None:
    run, outcome = sound_run()
    events = [replace(e, version=1) if isinstance(e, Began) else e for e in run.events]
    late = LateFrame(taken_at=run.time + 1, at=END, client="w", api=26)

    [found] = judge([*events, late], without(outcome, "w.0.0/1"))

    assert not found.is_known_hole

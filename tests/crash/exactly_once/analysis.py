"""Judges a history of transactions against what is there at the end. Pure: no files, no sockets.

    lost commit        a worker was told that it committed, and committed readers see nothing of it
    torn transaction   committed readers see a part of a transaction
    aborted read       a committed reader was given a record of a transaction that did not commit
    early read         ... of a transaction whose end nobody had requested yet
    lost record        an acknowledged record is not in the log
    duplicate          a record is in the log twice
    conflict           one offset had two records, for two readers or at two times
    reorder            records of one worker are not in the order in which it sent them
    skipped            a committed reader passed a record that was committed later, or before
    lost offset        a group is behind an offset that was committed with a transaction
    offset of nobody   a group has an offset that no committed transaction gave it
    offset went back   a group had a higher offset before
    processed twice    two committed values were made of one record, for one group
    not processed      a group passed a record, and no committed value was made of it
    hanging            a transaction is open, and nobody will end it

Transactions of version 1 have a known hole: a request that the network delays beyond the end of its
transaction counts for the next one of the same epoch. A violation that such a request explains is
marked `is_known_hole`. Version 2 has no such excuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from crash.exactly_once.history import Event, GroupPlace, Outcome, Place
from crash.exactly_once.transactions_told import (
    History,
    Session,
    Told,
    source_of,
    transaction_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A promise that was broken, with the transactions concerned."""

    kind: str
    transactions: tuple[str, ...]
    text: str
    is_known_hole: bool = False

    def __str__(self) -> str:
        hole = " (the known hole of version 1)" if self.is_known_hole else ""
        return f"{self.kind}{hole}: {self.text}"


def judge(events: Iterable[Event], outcome: Outcome) -> list[Violation]:
    """Every broken promise; an empty list if there is none."""
    history = History(events)
    reached = history.reached_by_late_frames()
    found = [
        *_fates(history, outcome),
        *_early_reads(history),
        *_places(history, outcome),
        *_orders(history, outcome),
        *_sessions(history, outcome),
        *_offsets(history, outcome),
        *_processing(history, outcome, reached),
        *(
            Violation(
                kind="hanging",
                transactions=(),
                text=f"partition {partition} has an open transaction that nobody ends",
            )
            for partition in outcome.hanging
        ),
    ]
    return [_excused(violation, history, reached) for violation in found]


def _excused(violation: Violation, history: History, reached: set[str]) -> Violation:
    told = [history.transactions.get(name) for name in violation.transactions]
    is_hole = (
        bool(told)
        and all(one is not None and one.version == 1 for one in told)
        and any(name in reached for name in violation.transactions)
    )
    return replace(violation, is_known_hole=is_hole)


# --- whole, and as told ----------------------------------------------------------------------


def _fates(history: History, outcome: Outcome) -> Iterator[Violation]:
    at_end = {value for records in outcome.committed.values() for _, value in records}
    ever = at_end | {read.value for session in history.sessions for read in session.reads}
    for value in sorted(ever):
        name = transaction_of(value)
        told = history.transactions.get(name)
        if told is None or value not in told.sent:
            yield Violation(
                kind="aborted read",
                transactions=(name,),
                text=f"{value} was read, and nobody sent it",
            )
        elif not told.may_be_committed:
            state = "aborted" if told.is_commit is False else "not ended"
            yield Violation(
                kind="aborted read", transactions=(name,), text=f"{value} was read; {name} {state}"
            )
    for told in history.transactions.values():
        if not told.may_be_committed:
            continue
        visible = told.sent.keys() & at_end
        missing = sorted(told.sent.keys() - at_end)
        if visible and missing:
            yield Violation(
                kind="torn transaction",
                transactions=(told.name,),
                text=f"{told.name}: committed readers see {sorted(visible)}, and not {missing}",
            )
        elif missing and told.is_committed:
            yield Violation(
                kind="lost commit",
                transactions=(told.name,),
                text=f"{told.name} was committed; {missing} are gone",
            )


def _early_reads(history: History) -> Iterator[Violation]:
    for session in history.sessions:
        for read in session.reads:
            told = history.transactions.get(transaction_of(read.value))
            if told is not None and told.ending is not None and read.at < told.ending:
                yield Violation(
                    kind="early read",
                    transactions=(told.name,),
                    text=f"{session.reader} read {read.value} while {told.name} was open",
                )


# --- the log ---------------------------------------------------------------------------------


def _places(history: History, outcome: Outcome) -> Iterator[Violation]:
    """Acknowledged records are in the log, once, and an offset has one record for ever."""
    at: dict[Place, str] = {}
    count: Counter[str] = Counter()
    for partition, records in outcome.all.items():
        for offset, value in records:
            at[partition, offset] = value
            count[value] += 1
    for value, times in sorted(count.items()):
        if times > 1:
            yield Violation(
                kind="duplicate",
                transactions=(transaction_of(value),),
                text=f"{value} is in the log {times} times",
            )
    for told in history.transactions.values():
        for value, place in told.stored.items():
            if value not in count:
                yield Violation(
                    kind="lost record",
                    transactions=(told.name,),
                    text=f"{value} was acknowledged at {place}, and is gone",
                )
            elif at.get(place) != value:
                yield _conflict(place, value, at.get(place))
    shown: dict[Place, str] = dict(at)
    for partition, records in outcome.committed.items():
        for offset, value in records:
            if shown.setdefault((partition, offset), value) != value:
                yield _conflict((partition, offset), value, shown[partition, offset])
    for session in history.sessions:
        for read in session.reads:
            place = (read.partition, read.offset)
            if shown.setdefault(place, read.value) != read.value:
                yield _conflict(place, read.value, shown[place])


def _conflict(place: Place, value: str, other: str | None) -> Violation:
    names = {transaction_of(one) for one in (value, other) if one is not None}
    return Violation(
        kind="conflict",
        transactions=tuple(sorted(names)),
        text=f"partition {place[0]}, offset {place[1]}: {value}, and also {other}",
    )


def _orders(history: History, outcome: Outcome) -> Iterator[Violation]:
    number: dict[str, int] = {}
    for transactions in history.by_worker().values():
        for told in transactions:
            for value in told.sent:
                number[value] = len(number)
    for partition, records in outcome.all.items():
        last: dict[str, str] = {}
        for offset, value in records:
            told_of = history.transactions.get(transaction_of(value))
            if told_of is None or value not in number:
                continue
            before = last.get(told_of.worker)
            if before is not None and number[before] > number[value]:
                yield Violation(
                    kind="reorder",
                    transactions=(transaction_of(before), told_of.name),
                    text=f"partition {partition}: {value}, at {offset}, is behind {before}",
                )
            last[told_of.worker] = value


def _sessions(history: History, outcome: Outcome) -> Iterator[Violation]:
    """A reader gets every committed record between its start and the last that it was given."""
    for session in history.sessions:
        yield from _session(session, outcome)


def _session(session: Session, outcome: Outcome) -> Iterator[Violation]:
    if not session.reads:
        return
    offsets = [read.offset for read in session.reads]
    for before, after in zip(session.reads, session.reads[1:], strict=False):
        if after.offset <= before.offset:
            yield Violation(
                kind="reorder",
                transactions=(transaction_of(before.value), transaction_of(after.value)),
                text=f"{session.reader} read offset {after.offset} after {before.offset}",
            )
    given = set(offsets)
    for offset, value in outcome.committed.get(session.partition, ()):
        if session.start <= offset < max(offsets) and offset not in given:
            yield Violation(
                kind="skipped",
                transactions=(transaction_of(value),),
                text=f"{session.reader} passed {value} at {session.partition}, {offset}",
            )


# --- offsets of groups -----------------------------------------------------------------------


def _offsets(history: History, outcome: Outcome) -> Iterator[Violation]:
    """What each group was seen at, in the course of the run and at its end."""
    by_place: dict[GroupPlace, list[Told]] = {}
    for told in history.transactions.values():
        for place in told.offsets:
            by_place.setdefault(place, []).append(told)
    never = max((told.began for told in history.transactions.values()), default=0) + (1 << 62)
    for place, transactions in by_place.items():
        seen = [
            (position.asked_at, position.at, position.offset)
            for position in history.positions
            if (position.group, position.partition) == place
        ]
        seen.append((never, never, outcome.positions.get(place, -1)))
        yield from _positions(place, transactions, seen)
        yield from _final_position(place, transactions, outcome)


def _positions(
    place: GroupPlace, transactions: list[Told], seen: list[tuple[int, int, int]]
) -> Iterator[Violation]:
    highest, highest_at = -1, -1
    for asked_at, at, offset in seen:
        ended = [
            told for told in transactions if told.is_committed and (told.ended or 0) < asked_at
        ]
        needed = max((told.offsets[place] for told in ended), default=-1)
        if offset < needed:
            behind = [told.name for told in ended if told.offsets[place] > offset]
            yield Violation(
                kind="lost offset",
                transactions=tuple(behind),
                text=f"group {place[0]} is at {offset} of partition {place[1]}; {needed} was "
                "committed",
            )
        givers = [told for told in transactions if told.offsets[place] == offset]
        if offset >= 0 and not any(
            told.may_be_committed and told.ending is not None and told.ending <= at
            for told in givers
        ):
            yield Violation(
                kind="offset of nobody",
                transactions=tuple(told.name for told in givers),
                text=f"group {place[0]} is at {offset} of partition {place[1]}, which no "
                "committed transaction gave it",
            )
        if offset < highest and highest_at < asked_at and offset >= needed:
            yield Violation(
                kind="offset went back",
                transactions=tuple(
                    told.name for told in transactions if told.offsets[place] == highest
                ),
                text=f"group {place[0]} was at {highest} of partition {place[1]}, then at {offset}",
            )
        if offset > highest:
            highest, highest_at = offset, at


def _final_position(
    place: GroupPlace, transactions: list[Told], outcome: Outcome
) -> Iterator[Violation]:
    """The offset and the records of a transaction have one fate."""
    at_end = {value for records in outcome.committed.values() for _, value in records}
    position = outcome.positions.get(place, -1)
    with_records = [told for told in transactions if told.sent]
    for told in with_records:
        if told.sent.keys() <= at_end and told.offsets[place] > position:
            yield Violation(
                kind="torn transaction",
                transactions=(told.name,),
                text=f"{told.name}: its records are visible, and its offset "
                f"{told.offsets[place]} is not: group {place[0]} is at {position}",
            )
    givers = [told for told in with_records if told.offsets[place] == position]
    if givers and not any(told.sent.keys() & at_end for told in givers):
        yield Violation(
            kind="torn transaction",
            transactions=tuple(told.name for told in givers),
            text=f"group {place[0]} is at {position} of partition {place[1]}, and the records "
            f"of {[told.name for told in givers]} are not visible",
        )


def _processing(history: History, outcome: Outcome, reached: set[str]) -> Iterator[Violation]:
    """Each committed record before the position of a group was processed for it exactly once."""
    made: dict[GroupPlace, dict[int, list[str]]] = {}
    for records in outcome.committed.values():
        for _, value in records:
            source = source_of(value)
            told = history.transactions.get(transaction_of(value))
            if source is None or told is None:
                continue
            for group, partition in told.offsets:
                if partition == source[0]:
                    by_offset = made.setdefault((group, partition), {})
                    by_offset.setdefault(source[1], []).append(value)
    for place, position in outcome.positions.items():
        by_offset = made.get(place, {})
        for offset, values in by_offset.items():
            if len(values) > 1:
                yield Violation(
                    kind="processed twice",
                    transactions=tuple(transaction_of(value) for value in values),
                    text=f"group {place[0]}: offset {offset} became {values}",
                )
        for offset, value in outcome.committed.get(place[1], ()):
            if offset < position and offset not in by_offset:
                yield Violation(
                    kind="not processed",
                    transactions=_around(history, place, offset, reached),
                    text=f"group {place[0]} passed {value} at {offset} without a value of it",
                )


def _around(history: History, place: GroupPlace, offset: int, reached: set[str]) -> tuple[str, ...]:
    """The transaction that moved the group past an offset.

    Its worker may have aborted it, and a late request committed it before.
    """
    moved = [
        told
        for told in history.transactions.values()
        if told.offsets.get(place, -1) > offset and (told.may_be_committed or told.name in reached)
    ]
    return tuple(told.name for told in sorted(moved, key=lambda told: told.offsets[place])[:1])

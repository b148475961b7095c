"""A history by transaction: what each worker was told. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from crash.exactly_once.history import (
    Began,
    Ended,
    Ending,
    Event,
    GroupPlace,
    LateFrame,
    OffsetSent,
    Place,
    Position,
    Read,
    ReaderStarted,
    Sent,
    Stored,
)


@dataclass(slots=True, kw_only=True)
class Told:
    """One transaction.

    `ending` is when its end was about to be requested, `ended` when the worker was told; None if
    that did not happen. `is_commit` is what was requested, None if nothing was.
    """

    name: str
    began: int
    version: int
    sent: dict[str, int] = field(default_factory=dict)  # value: partition
    stored: dict[str, Place] = field(default_factory=dict)
    offsets: dict[GroupPlace, int] = field(default_factory=dict)
    is_commit: bool | None = None
    ending: int | None = None
    ended: int | None = None

    @property
    def life(self) -> str:
        """The worker and its life: WORKER.LIFE."""
        return self.name.rpartition(".")[0]

    @property
    def worker(self) -> str:
        return self.life.rpartition(".")[0]

    @property
    def is_committed(self) -> bool:
        return self.ended is not None and self.is_commit is True

    @property
    def may_be_committed(self) -> bool:
        """Whether a commit was requested, whatever the worker was told."""
        return self.is_commit is True


def transaction_of(value: str) -> str:
    return value.partition("/")[0]


def source_of(value: str) -> Place | None:
    """The record that a value was made of: partition and offset."""
    _, mark, source = value.partition("<")
    if not mark:
        return None
    partition, _, offset = source.partition(":")
    return int(partition), int(offset)


@dataclass(slots=True, kw_only=True)
class Session:
    """One reader in one partition, from where it started, in the order of its reads."""

    reader: str
    partition: int
    start: int
    reads: list[Read] = field(default_factory=list)


class History:
    """All events of a run, in order of time where time matters."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.transactions: dict[str, Told] = {}
        self.sessions: list[Session] = []
        self.positions: list[Position] = []
        self.late: list[LateFrame] = []
        self._current: dict[tuple[str, int], Session] = {}
        for event in events:
            self._add(event)
        self.positions.sort(key=lambda position: position.at)

    def _add(self, event: Event) -> None:
        if isinstance(event, Began):
            self.transactions[event.transaction] = Told(
                name=event.transaction, began=event.at, version=event.version
            )
        elif isinstance(event, Sent):
            self.transactions[event.transaction].sent[event.value] = event.partition
        elif isinstance(event, Stored):
            place = (event.partition, event.offset)
            self.transactions[event.transaction].stored[event.value] = place
        elif isinstance(event, OffsetSent):
            place_of_group = (event.group, event.partition)
            self.transactions[event.transaction].offsets[place_of_group] = event.offset
        elif isinstance(event, Ending):
            told = self.transactions[event.transaction]
            told.ending, told.is_commit = event.at, event.is_commit
        elif isinstance(event, Ended):
            self.transactions[event.transaction].ended = event.at
        elif isinstance(event, Position):
            self.positions.append(event)
        elif isinstance(event, LateFrame):
            self.late.append(event)
        else:
            self._add_read(event)

    def _add_read(self, event: ReaderStarted | Read) -> None:
        key = (event.reader, event.partition)
        if isinstance(event, ReaderStarted):
            session = Session(reader=event.reader, partition=event.partition, start=event.offset)
            self._current[key] = session
            self.sessions.append(session)
        else:
            self._current[key].reads.append(event)

    def by_worker(self) -> dict[str, list[Told]]:
        """The transactions of each worker, in order."""
        found: dict[str, list[Told]] = {}
        for told in sorted(self.transactions.values(), key=lambda told: told.began):
            found.setdefault(told.worker, []).append(told)
        return found

    def reached_by_late_frames(self) -> set[str]:
        """Transactions that a request of an earlier one reached, and those it came from.

        With version 1 they have the same epoch, and nobody can tell the request from one of the
        transaction that it reached. In another life the worker has another epoch.
        """
        reached: set[str] = set()
        of_worker = self.by_worker()
        for frame in self.late:
            told = of_worker.get(frame.client, [])
            begins = [one.began for one in told]
            first = bisect_right(begins, frame.taken_at) - 1
            last = bisect_right(begins, frame.at) - 1
            if 0 <= first < last and told[first].life == told[last].life:
                reached.update(one.name for one in told[first : last + 1])
        return reached

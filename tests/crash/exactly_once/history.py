"""What happened in a run of transactions: values, and the lines of JSON that keep them.

Each process writes its own part, one line per event, with a system call for each. So a process
that is killed loses nothing that it wrote. Times are those of the monotonic clock, in nanoseconds,
which all processes of a machine share.

A transaction is named WORKER.LIFE.NUMBER: a worker has another life after each kill. Its values
are named TRANSACTION/INDEX, or TRANSACTION/INDEX<PARTITION:OFFSET if it made them of a record that
it read. So a value says where it came from, wherever it is found.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Final

Place = tuple[int, int]  # partition, offset
GroupPlace = tuple[str, int]  # group, partition


class SymptomError(AssertionError):
    """A run cannot be judged, because a promise is broken so badly: stuck, or readers disagree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A transaction begins. `version` is that of its client: 1, or 2 with an epoch for each."""

    at: int
    transaction: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A value is about to be sent."""

    at: int
    transaction: str
    partition: int
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The broker acknowledged a value."""

    at: int
    transaction: str
    partition: int
    value: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSent:
    """The position of a group is about to be committed with the transaction."""

    at: int
    transaction: str
    group: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The transaction is about to be ended. Before this nobody may see it."""

    at: int
    transaction: str
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The client was told that the transaction is committed, or aborted."""

    at: int
    transaction: str
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderStarted:
    """A reader of committed records begins at an offset. Its reads of the partition follow."""

    at: int
    reader: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A reader of committed records was given one."""

    at: int
    reader: str
    partition: int
    offset: int
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The stable committed offset of a group, asked at `asked_at`; -1: it has none."""

    asked_at: int
    at: int
    group: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LateFrame:
    """The proxy delivered a request long after it took it, or a second time.

    `client` is the worker, by the client id in the header of the request.
    """

    taken_at: int
    at: int
    client: str
    api: int


Event = (
    Began
    | Sent
    | Stored
    | OffsetSent
    | Ending
    | Ended
    | ReaderStarted
    | Read
    | Position
    | LateFrame
)

_KINDS: Final[dict[str, type[Event]]] = {
    kind.__name__: kind
    for kind in (
        Began,
        Sent,
        Stored,
        OffsetSent,
        Ending,
        Ended,
        ReaderStarted,
        Read,
        Position,
        LateFrame,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is there at the end, when every transaction has ended.

    committed  the records of each partition that a committed reader sees, in order
    all        all records of each partition, also those of aborted transactions
    positions  the committed offsets of groups
    hanging    partitions in which a transaction is still open
    """

    committed: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    all: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    positions: dict[GroupPlace, int] = field(default_factory=dict)
    hanging: tuple[int, ...] = ()


def now() -> int:
    return time.monotonic_ns()


class HistoryWriter:
    """Appends events to a file. Any thread may call it: a line is one write."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def add(self, event: Event) -> None:
        line = json.dumps([type(event).__name__, *astuple(event)], separators=(",", ":"))
        os.write(self._fd, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


def read_events(paths: Iterable[Path]) -> Iterator[Event]:
    """The events of all files, file by file."""
    for path in paths:
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):  # otherwise a kill cut it off
                yield event_of(line)


def event_of(line: bytes) -> Event:
    name, *values = json.loads(line)
    kind = _KINDS[name]
    return kind(**dict(zip(kind.__dataclass_fields__, values, strict=True)))

"""What workers do, whatever client they use: random transactions, written down before they happen.

    write        values to a few partitions
    process      reads committed records of the source partition, makes a value of each in another
                 partition, and commits the position of its group with them

A part of the transactions is aborted on purpose. All choices come from the seed, the name of the
worker and its life.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from crash.exactly_once.history import (
    Began,
    Ended,
    Ending,
    HistoryWriter,
    OffsetSent,
    Position,
    Sent,
    Stored,
    now,
)

TOPIC: Final = "ledger"
PARTITIONS: Final = 4
SOURCE: Final = 0  # the partition that is processed; all others get what comes of it
TIMEOUT_MS: Final = 10_000
_ABORTED: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a worker process is told. `name` is its client id and its transactional id."""

    kind: str  # confluent, aiokafka, raw, reader
    name: str
    life: int
    seed: int
    address: str
    directory: str
    processes: bool = False

    @property
    def group(self) -> str:
        return f"group-{self.name}"

    @property
    def stop_file(self) -> Path:
        return Path(self.directory) / "stop"

    @property
    def history_file(self) -> Path:
        return Path(self.directory) / f"history-{self.name}-{self.life}"


@dataclass(slots=True, kw_only=True)
class Planned:
    """One transaction that a worker is about to make."""

    name: str
    values: list[tuple[int, str]]
    is_commit: bool


class Worker:
    """Plans transactions of one worker and writes their history. For one thread at a time.

    The answers to sends may be noted by another thread.
    """

    def __init__(self, assignment: Assignment, version: int) -> None:
        self.assignment = assignment
        self.history = HistoryWriter(assignment.history_file)
        self._version = version
        self._rng = Random(f"{assignment.seed} {assignment.name} {assignment.life}")
        self._count = 0

    def should_stop(self) -> bool:
        return os.path.exists(self.assignment.stop_file)

    # --- planning ----------------------------------------------------------------------------

    def plan_writes(self) -> Planned:
        """Values for a few partitions; several for one now and then."""
        name = self._next_name()
        partitions = self._rng.sample(range(PARTITIONS), self._rng.randint(1, 3))
        values = [
            (partition, f"{name}/{index}")
            for index, partition in enumerate(
                partition for partition in partitions for _ in range(self._rng.choice((1, 1, 1, 3)))
            )
        ]
        return Planned(name=name, values=values, is_commit=self._decides_to_commit())

    def plan_processing(self, offsets: list[int]) -> Planned:
        """A value for each record that was read from the source partition."""
        name = self._next_name()
        values = [
            (self._rng.randrange(1, PARTITIONS), f"{name}/{index}<{SOURCE}:{offset}")
            for index, offset in enumerate(offsets)
        ]
        return Planned(name=name, values=values, is_commit=self._decides_to_commit())

    def batches(self, planned: Planned) -> Iterator[tuple[int, list[str]]]:
        """The values in order, those for the same partition together where they follow."""
        batch: list[str] = []
        for index, (partition, value) in enumerate(planned.values):
            batch.append(value)
            if index + 1 == len(planned.values) or planned.values[index + 1][0] != partition:
                yield partition, batch
                batch = []

    def _next_name(self) -> str:
        self._count += 1
        return f"{self.assignment.name}.{self.assignment.life}.{self._count}"

    def _decides_to_commit(self) -> bool:
        return self._rng.random() >= _ABORTED

    # --- writing down ------------------------------------------------------------------------

    def began(self, planned: Planned) -> None:
        self.history.add(Began(at=now(), transaction=planned.name, version=self._version))

    def sending(self, planned: Planned, partition: int, value: str) -> None:
        self.history.add(Sent(at=now(), transaction=planned.name, partition=partition, value=value))

    def stored(self, name: str, partition: int, value: str, offset: int) -> None:
        self.history.add(
            Stored(at=now(), transaction=name, partition=partition, value=value, offset=offset)
        )

    def sending_offset(self, planned: Planned, offset: int) -> None:
        self.history.add(
            OffsetSent(
                at=now(),
                transaction=planned.name,
                group=self.assignment.group,
                partition=SOURCE,
                offset=offset,
            )
        )

    def ending(self, planned: Planned, *, is_commit: bool) -> None:
        self.history.add(Ending(at=now(), transaction=planned.name, is_commit=is_commit))

    def ended(self, planned: Planned, *, is_commit: bool) -> None:
        self.history.add(Ended(at=now(), transaction=planned.name, is_commit=is_commit))

    def saw_position(self, asked_at: int, offset: int) -> None:
        self.history.add(
            Position(
                asked_at=asked_at,
                at=now(),
                group=self.assignment.group,
                partition=SOURCE,
                offset=offset,
            )
        )

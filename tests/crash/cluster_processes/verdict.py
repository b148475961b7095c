"""What must hold after a run, over plain values. Nothing here knows a process or a network.

acknowledged loss   a value that was acknowledged is not where the acknowledgement said
changed offset      somebody read another value at an offset than is there at the end
duplicate           a value is in the log twice
disorder            a producer's values are not in the order in which it sent them
gap                 an offset is missing
foreign             a value is in the log that nobody sent
truncated           a consumer's position is past the end of the log, or before its start
lost commit         an acknowledged commit of a group was not found later
divergence          replicas have other bytes
stuck               the cluster did not come to rest after all faults ended
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Stored(NamedTuple):
    """A value at an offset, as an acknowledgement or a read has it.

    The answer to a batch that was sent again may not say where it is: then the offset is -1.
    """

    partition: int
    offset: int
    value: str


class CommitRead(NamedTuple):
    """A look at the committed offset of a group.

    `acknowledged` was the greatest commit that had been acknowledged before the question,
    `attempted` the greatest that had been sent before the answer. `is_unknown`: what was found is a
    commit whose answer never came. It may be carried out late, after another one, as in Kafka.
    """

    acknowledged: int
    found: int
    attempted: int
    is_unknown: bool


class Violation(NamedTuple):
    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(slots=True, kw_only=True)
class Observations:
    """What the clients of a run have seen.

    sent        the values of each (producer life, partition), in order
    errors      why values were not acknowledged, by the name of the error
    fatal       what ended a producer
    conflicts   an offset of which two readers saw different values while the run lasted
    final       each partition, read from the first record to the last after everything healed
    """

    sent: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    acknowledged: list[Stored] = field(default_factory=list)
    read: list[Stored] = field(default_factory=list)
    conflicts: list[tuple[Stored, Stored]] = field(default_factory=list)
    resets: list[str] = field(default_factory=list)
    fatal: list[str] = field(default_factory=list)
    commits: list[CommitRead] = field(default_factory=list)
    final: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    unanswered: int = 0


def judge(seen: Observations) -> list[Violation]:
    """Every violation of what clients were told."""
    return [
        *_final_logs(seen),
        *_against_final(seen),
        *(
            Violation("changed offset", f"{a.partition}/{a.offset} was {a.value}, then {b.value}")
            for a, b in seen.conflicts
        ),
        *(Violation("truncated", each) for each in seen.resets),
        *_commits(seen.commits),
        *_stuck(seen),
    ]


def _stuck(seen: Observations) -> Iterator[Violation]:
    """A send has minutes after the last fault. So time is never a reason to give it up."""
    if seen.unanswered:
        yield Violation("stuck", f"{seen.unanswered} sends without an answer")
    late = sum(count for error, count in seen.errors.items() if "TIMED_OUT" in error)
    if late:
        yield Violation("stuck", f"{late} sends that the producer gave up after minutes")


def _final_logs(seen: Observations) -> Iterator[Violation]:
    order = {
        value: (life, partition, number)
        for (life, partition), values in seen.sent.items()
        for number, value in enumerate(values)
    }
    for partition, records in seen.final.items():
        expected = 0
        found: dict[str, int] = {}
        latest: dict[str, int] = {}
        for offset, value in records:
            if offset != expected:
                yield Violation("gap", f"{partition}/{offset} follows {expected - 1}")
            expected = offset + 1
            if value in found:
                text = f"{value} is at {partition}/{found[value]} and at {offset}"
                yield Violation("duplicate", text)
                continue
            found[value] = offset
            if value not in order or order[value][1] != partition:
                yield Violation("foreign", f"{value} at {partition}/{offset}")
                continue
            life, _, number = order[value]
            if number < latest.get(life, -1):
                text = f"{value} at {partition}/{offset} comes after number {latest[life]}"
                yield Violation("disorder", text)
            latest[life] = max(number, latest.get(life, -1))


def _against_final(seen: Observations) -> Iterator[Violation]:
    final = {
        (partition, offset): value
        for partition, records in seen.final.items()
        for offset, value in records
    }
    values = {(partition, value) for (partition, _), value in final.items()}
    for each in seen.acknowledged:
        found = final.get((each.partition, each.offset))
        if each.offset < 0 and (each.partition, each.value) in values:
            continue
        if found != each.value:
            text = f"{each.value} was acknowledged at {each.partition}/{each.offset}, now {found}"
            yield Violation("acknowledged loss", text)
    for each in seen.read:
        found = final.get((each.partition, each.offset))
        if found != each.value:
            text = f"{each.partition}/{each.offset} was read as {each.value}, now {found}"
            yield Violation("changed offset", text)


def _commits(commits: Iterable[CommitRead]) -> Iterator[Violation]:
    for each in commits:
        if not each.is_unknown and not each.acknowledged <= each.found <= each.attempted:
            text = (
                f"{each.acknowledged} was acknowledged, {each.found} found; "
                f"{each.attempted} was the last attempt"
            )
            yield Violation("lost commit", text)


def compare_replicas(partition: str, replicas: Mapping[int, bytes]) -> list[Violation]:
    """The bytes of one partition, by broker."""
    if len(set(replicas.values())) <= 1:
        return []
    first = next(iter(replicas.values()))
    details = ", ".join(
        f"broker {node} has {len(data)} bytes, the same up to {_same_until(first, data)}"
        for node, data in replicas.items()
    )
    return [Violation("divergence", f"{partition}: {details}")]


def _same_until(a: Sequence[int], b: Sequence[int]) -> int:
    limit = min(len(a), len(b))
    return next((at for at in range(limit) if a[at] != b[at]), limit)

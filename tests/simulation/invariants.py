"""What must hold, as named checks over plain values. A check that fails raises `Violation`.

1   one life of one broker appends in a leader epoch
2   replicas agree, batch for batch, below their high watermarks
3   a committed batch is safe on every replica of the ISR and on every eligible one
4   a leader that was elected cleanly has everything that was committed by then
5   the maximal ISR of a leader holds the controller's ISR and the eligible replicas
6   what a consumer read at an offset never changes
7   no replica cuts below its high watermark after clean elections
8   whatever a deposed leader acknowledges is in the log of the leader after it
9   only the life of a broker that fetched joins an ISR, and no earlier one counts in it
10  epochs of batches never decrease, and the checkpoint has the same epochs
11  an acknowledged commit is found by the next coordinator
12  an idempotent batch that is sent again is stored once, in order
13  after healing, the ISR is all replicas, and every request is answered
14  no election is unclean unless that is allowed, or the last leader could not vouch for its
    records: a disk failed, the topic has durability=os, or a life ended before it knew its epoch
15  with durability=disk, no kill and no power cut damages a log
16  a replica that moves to another directory has there what it had
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cordwood.log.partition.partition_log import PartitionLog


class Violation(AssertionError):  # noqa: N818 (it is no error of the code that raises it)
    """An invariant does not hold. `number` is that of the list at the head of this module."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"invariant {number}: {what}")
        self.number = number


class Entry(NamedTuple):
    """A batch in a log: its offsets, its epoch, and the checksum of its content."""

    base: int
    next: int
    epoch: int
    crc: int


def check_one_appender(epoch: int, before: tuple[int, int] | None, now: tuple[int, int]) -> None:
    if before is not None and before != now:
        raise Violation(1, f"epoch {epoch} was written by (node, life) {before} and by {now}")


def check_agreement(who: str, found: Iterable[Entry], committed: Mapping[int, Entry]) -> None:
    for entry in found:
        known = committed.get(entry.base)
        if known != entry:
            raise Violation(2, f"{who} has {entry}, but {known} is committed there")


def check_safe(who: str, safe_end: int, committed_end: int) -> None:
    if safe_end < committed_end:
        raise Violation(
            3, f"everything below {committed_end} is committed, but {who} is safe to {safe_end}"
        )


def check_elected(who: str, epoch: int, end: int, committed_end: int) -> None:
    if end < committed_end:
        raise Violation(
            4, f"{who} leads in epoch {epoch} from {end} on, but {committed_end} was committed"
        )


def check_maximal(epoch: int, maximal: frozenset[int], decided: Iterable[int]) -> None:
    missing = set(decided) - maximal
    if missing:
        raise Violation(5, f"the leader of epoch {epoch} does not wait for {sorted(missing)}")


def check_read(found: Iterable[Entry], committed: Mapping[int, Entry]) -> None:
    for entry in found:
        known = committed.get(entry.base)
        if known != entry:
            raise Violation(6, f"a consumer read {entry}, and {known} is committed there")


def check_cut(who: str, cut: int, high_watermark: int) -> None:
    if cut < high_watermark:
        raise Violation(7, f"{who} cut its log at {cut}, and {high_watermark} was committed")


def check_late_acknowledgement(who: str, wanted: Entry, found: Entry | None) -> None:
    if found != wanted:
        raise Violation(8, f"{who} acknowledged {wanted}, and the leader after it has {found}")


def check_joined(node: int, fetched_in: int, registered: int) -> None:
    if fetched_in != registered:
        raise Violation(
            9, f"broker {node} joined as epoch {registered}, but epoch {fetched_in} of it fetched"
        )


def check_counted(node: int, fetched_in: int, registered: int) -> None:
    if fetched_in < registered:
        raise Violation(
            9, f"broker {node} has epoch {registered}, but its fetch in epoch {fetched_in} counts"
        )


def check_epochs(
    who: str, entries: Sequence[Entry], checkpoint: Sequence[tuple[int, int]], start: int
) -> None:
    """`checkpoint` has (epoch, first offset)."""
    found: list[tuple[int, int]] = []
    for entry in entries:
        if found and entry.epoch < found[-1][0]:
            raise Violation(10, f"{who}: {entry} follows a batch of epoch {found[-1][0]}")
        if not found or entry.epoch > found[-1][0]:
            found.append((entry.epoch, max(entry.base, start)))
    end = entries[-1].next if entries else start
    told = [(epoch, max(first, start)) for epoch, first in checkpoint if first < end]
    if found and told != found:
        raise Violation(10, f"{who}: batches have the epochs {found}, the checkpoint {told}")


def check_commits(who: str, acknowledged_end: int, loaded_end: int) -> None:
    if loaded_end < acknowledged_end:
        raise Violation(
            11,
            f"{who} loads commits below {loaded_end}, but commits below {acknowledged_end} "
            "were acknowledged",
        )


def check_exactly_once(
    producer: int, sent: Sequence[int], acknowledged: set[int], stored: Sequence[int]
) -> None:
    """`sent` and `stored` have checksums, in order."""
    order = {crc: number for number, crc in enumerate(sent)}
    numbers = [order[crc] for crc in stored]
    if len(set(numbers)) != len(numbers):
        raise Violation(12, f"producer {producer}: a batch is stored twice: {numbers}")
    if numbers != sorted(numbers):
        raise Violation(12, f"producer {producer}: batches are stored out of order: {numbers}")
    missing = sorted(order[crc] for crc in acknowledged if order[crc] not in set(numbers))
    if missing:
        raise Violation(12, f"producer {producer}: acknowledged batches {missing} are lost")


def check_converged(what: str, *, holds: bool) -> None:
    if not holds:
        raise Violation(13, what)


def check_clean(number: int, epoch: int, *, is_allowed: bool) -> None:
    if not is_allowed:
        raise Violation(14, f"partition {number}: the election of epoch {epoch} was unclean")


def check_sound(who: str, damaged_from: int, *, is_allowed: bool) -> None:
    if not is_allowed:
        raise Violation(15, f"{who}: a sound disk has a log that is damaged from {damaged_from} on")


def check_moved(who: str, log: PartitionLog, *, committed: int, start: int) -> None:
    """A log that was moved has everything that was counted in its old place."""
    if log.high_watermark < committed or log.state.start != start:
        raise Violation(
            16,
            f"{who}: a replica moved with the high watermark {log.high_watermark} and the start "
            f"{log.state.start}; they were {committed} and {start}",
        )

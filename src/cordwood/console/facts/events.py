"""What happened to a store since the console watches it, as seen from one snapshot to the next.

The console does not see who did it. It says what changed: a log that starts later than before was
shortened by retention or by a deletion of records, a log that became smaller was compacted.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from cordwood.console.facts.cluster_facts import PartitionFacts, Snapshot

EVENTS_MAX: Final = 1_000


class Event(NamedTuple):
    """`kind` is one of the words below; `severity` is info, warning or error."""

    time_ms: int
    severity: str
    kind: str
    text: str
    topic: str | None = None
    partition: int | None = None
    user: str | None = None


CREATED: Final = "created"
DELETED: Final = "deleted"
RETENTION: Final = "retention"
COMPACTION: Final = "compaction"
DAMAGE: Final = "damage"
DISK: Final = "disk"
BROKER: Final = "broker"
CHANGE: Final = "change"
CONSOLE: Final = "console"


def events_between(before: Snapshot, after: Snapshot) -> list[Event]:
    """The events that explain the differences, in no particular order."""
    return [
        *_topic_events(before, after),
        *_log_events(before, after),
        *_damage_events(before, after),
        *_state_events(before, after),
    ]


def _topic_events(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    now = after.taken_ms
    if after.broker is not None and after.broker.problem and not after.has_files:
        return  # nothing is known, which does not mean that nothing exists
    if before.broker is not None and before.broker.problem and not before.has_files:
        return
    for name, topic in after.topics.items():
        earlier = before.topics.get(name)
        if earlier is None:
            count = len(topic.partitions)
            text = f"Topic {name} was created, with {count} partition{'s' * (count != 1)}."
            yield Event(now, "info", CREATED, text, name)
        elif earlier.topic_id != topic.topic_id:
            yield Event(now, "info", CREATED, f"Topic {name} was deleted and created again.", name)
    for name in before.topics:
        if name not in after.topics:
            yield Event(now, "info", DELETED, f"Topic {name} was deleted.", name)


def _log_events(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    for name, topic in after.topics.items():
        earlier = before.topics.get(name)
        if earlier is None or earlier.topic_id != topic.topic_id:
            continue
        if earlier.partitions == topic.partitions:
            continue
        for old, new in zip(earlier.partitions, topic.partitions, strict=False):
            if old != new:
                yield from _partition_events(after.taken_ms, old, new)


def _partition_events(now: int, old: PartitionFacts, new: PartitionFacts) -> Iterator[Event]:
    place = f"{new.topic}-{new.partition}"
    if new.problem is not None and old.problem is None:
        text = f"{place} cannot be read: {new.problem}"
        yield Event(now, "error", DAMAGE, text, new.topic, new.partition)
        return
    if old.start_offset is None or new.start_offset is None:
        return
    if new.start_offset > old.start_offset:
        gone = new.start_offset - old.start_offset
        text = (
            f"{place} starts at offset {new.start_offset} now: {gone} older offset"
            f"{'s were' if gone != 1 else ' was'} deleted."
        )
        yield Event(now, "info", RETENTION, text, new.topic, new.partition)
    elif _shrank(old, new):
        saved = (old.size_bytes or 0) - (new.size_bytes or 0)
        text = f"{place} was compacted: it is {saved} bytes smaller."
        yield Event(now, "info", COMPACTION, text, new.topic, new.partition)


def _shrank(old: PartitionFacts, new: PartitionFacts) -> bool:
    if old.size_bytes is None or new.size_bytes is None:
        return False
    return new.size_bytes < old.size_bytes and old.end_offset == new.end_offset


def _damage_events(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    known = set(before.damages)
    for damage in after.damages:
        if damage not in known:
            text = (
                f"{damage.topic}-{damage.partition}: offsets {damage.first_offset} to "
                f"{damage.next_offset - 1} cannot be read: {damage.reason}"
            )
            yield Event(after.taken_ms, "error", DAMAGE, text, damage.topic, damage.partition)


def _state_events(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    now = after.taken_ms
    was = None if before.broker is None else before.broker.problem
    problem = None if after.broker is None else after.broker.problem
    if problem is not None and was is None:
        yield Event(now, "error", BROKER, f"The broker does not answer: {problem}")
    elif was is not None and problem is None and after.broker is not None:
        yield Event(now, "info", BROKER, f"The broker {after.broker.address} answers again.")
    short = {disk.path for disk in before.disks if disk.is_short_of_room}
    for disk in after.disks:
        if disk.is_short_of_room and disk.path not in short:
            text = f"{disk.path} is short of space: appends are refused."
            yield Event(now, "error", DISK, text)
        elif disk.path in short and not disk.is_short_of_room:
            yield Event(now, "info", DISK, f"{disk.path} has enough space again.")

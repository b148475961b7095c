"""A consumer group of two members, which share the partitions and keep up with the producer."""

from __future__ import annotations

from typing import Final

import cordwood
from demo.demo_plan import GROUP, PAYMENTS
from demo.group_member import GroupMember, SeenOffsets
from demo.scene import Scene

_TIMEOUT_S: Final = 60.0


def read_as_group(scene: Scene) -> None:
    seen = SeenOffsets()
    first, second = (
        GroupMember(name, scene.broker.address, PAYMENTS, GROUP, seen, scene.recording)
        for name in ("member-1", "member-2")
    )
    members = (first, second)
    try:
        _read(scene, first, second, seen)
    finally:
        for member in members:
            member.finish()
        for member in members:
            member.close()
    _check_progress(scene, members, seen)


def _read(scene: Scene, first: GroupMember, second: GroupMember, seen: SeenOffsets) -> None:
    screen, everything = scene.screen, set(range(scene.plan.payment_partitions))
    with cordwood.open(scene.files.store, read_only=True) as reader:
        logs = reader.topic(PAYMENTS).partitions

        def lag() -> int:
            """The number of events that the group has not read yet."""
            return sum(max(log.high_watermark - seen.end(log.partition), 0) for log in logs)

        def line() -> str:
            return f"{seen.count:>7,} events read, lag {lag():,}"

        first.start()
        screen.follow(line, lambda: set(first.assigned) == everything, timeout_s=_TIMEOUT_S)
        screen.say(f"member-1 joins and gets the partitions {_listed(first)}")
        second.start()

        def is_shared() -> bool:
            return (
                {*first.assigned, *second.assigned} == everything
                and bool(first.assigned)
                and bool(second.assigned)
            )

        screen.follow(line, is_shared, timeout_s=_TIMEOUT_S)
        screen.say(f"member-2 joins: member-1 has {_listed(first)}, member-2 {_listed(second)}")
        screen.check(
            "every partition has one reader, and each member has partitions",
            is_shared() and not set(first.assigned) & set(second.assigned),
        )
        # New events keep arriving, so the lag may never be exactly 0.
        ends = {log.partition: log.high_watermark for log in logs}

        def has_caught_up() -> bool:
            return all(seen.end(partition) >= end for partition, end in ends.items())

        caught_up = screen.follow(line, has_caught_up, timeout_s=_TIMEOUT_S)
        screen.check(
            f"the group read all {sum(ends.values()):,} events that existed when both had "
            f"joined, while more arrived: its lag is {lag():,}",
            caught_up,
        )


def _check_progress(
    scene: Scene, members: tuple[GroupMember, GroupMember], seen: SeenOffsets
) -> None:
    with cordwood.open(scene.files.store, read_only=True) as reader:
        group = reader.group(GROUP)
        committed = {
            partition: group.committed(PAYMENTS, partition)
            for partition in range(scene.plan.payment_partitions)
        }
    missing = sum(seen.missing_below(p, end or 0) for p, end in committed.items())
    total = sum(end or 0 for end in committed.values())
    failures = [member.failure for member in members if member.failure is not None]
    for failure in failures:
        scene.screen.trouble(failure)
    scene.screen.check(
        f"the group committed {total:,} records and read every one of them"
        + (f" ({seen.repeated:,} twice, when partitions moved)" if seen.repeated else ""),
        None not in committed.values() and missing == 0 and total > 0 and not failures,
    )


def _listed(member: GroupMember) -> str:
    return ", ".join(str(partition) for partition in member.assigned) or "none"

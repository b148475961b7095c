"""Kill the broker while it acknowledges writes, and check every acknowledged event by number."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Final

import cordwood
from demo.cordwood_command import run_cordwood
from demo.demo_plan import PAYMENTS
from demo.quantities_shown import shown_s
from demo.scene import Scene

_SETTLE_S: Final = 0.3

Placed = dict[int, tuple[int, int]]  # by number of the event: partition, offset


@dataclass(slots=True, kw_only=True)
class _Kills:
    """The results of all kills together."""

    acknowledged: int = 0
    lost: int = 0
    in_flight: int = 0
    written: int = 0  # in flight, but already in the files when the broker died
    recovered_partitions: int = 0
    recovery_s: float = 0.0
    recovery_ms: int = 0


def kill(scene: Scene) -> None:
    plan, screen = scene.plan, scene.screen
    first_event = scene.producer.produced
    starts = _ends(scene)
    outcome = _Kills()
    for number in range(1, plan.kills + 1):
        _kill_once(scene, number, first_event, starts, outcome)
    screen.check(
        f"none of {outcome.acknowledged:,} acknowledged events was lost: each was in the files "
        "of the dead broker, at its offset",
        outcome.lost == 0 and outcome.acknowledged > 0,
    )
    screen.check(
        f"each restart recovered {outcome.recovered_partitions} partitions, the slowest in "
        f"{outcome.recovery_ms} ms ({shown_s(outcome.recovery_s)} for the whole program)",
        outcome.recovered_partitions > 0,
    )
    scene.recording.figure("recovery after a kill", f"{outcome.recovery_ms} ms")
    scene.recording.figure(
        "acknowledged events lost", f"{outcome.lost} of {outcome.acknowledged:,}"
    )
    _check_all(scene, first_event, starts, outcome)
    _verify(scene)


def _kill_once(
    scene: Scene, number: int, first_event: int, starts: dict[int, int], outcome: _Kills
) -> None:
    producer, screen = scene.producer, scene.screen
    before = len(producer.acknowledged)
    scene.start_flow(scene.plan.kill_rate)
    killed_at_s = time.monotonic() + scene.plan.kill_after_s
    screen.follow(
        lambda: f"{len(producer.acknowledged) - before:>6,} acknowledged so far",
        lambda: time.monotonic() >= killed_at_s and len(producer.acknowledged) > before,
        timeout_s=60.0,
    )
    scene.broker.kill()
    scene.recording.mark(f"SIGKILL {number}", is_kill=True)
    scene.stop_flow()
    producer.settle(_SETTLE_S)  # count acknowledgements that are still arriving

    new = {e: place for e, place in producer.acknowledged.items() if e >= first_event}
    in_flight = producer.in_flight
    on_disk = _events_on_disk(scene, starts)
    lost = [event for event, place in new.items() if on_disk.get(event) != place]
    written = sum(event not in new for event in on_disk)

    start = scene.broker.start()
    scene.recording.mark(f"recovered {number}")
    left = producer.flush()
    screen.say(
        f"kill {number}: {len(new):,} acknowledged events are in the files of the dead broker; "
        f"{in_flight:,} were in flight ({written:,} of them written). Recovered in "
        f"{start.opening_ms} ms; the client resent the rest, {left} remain"
    )
    outcome.acknowledged = len(new)
    outcome.lost += len(lost)
    outcome.in_flight += in_flight
    outcome.written += written
    outcome.recovered_partitions = start.recovered_partitions
    outcome.recovery_s = max(outcome.recovery_s, start.process_s)
    outcome.recovery_ms = max(outcome.recovery_ms, start.opening_ms)


def _check_all(scene: Scene, first_event: int, starts: dict[int, int], outcome: _Kills) -> None:
    """After the last recovery: every event exists once, at its offset, in order."""
    producer, screen = scene.producer, scene.screen
    produced = producer.produced - first_event
    count = 0
    order: dict[int, list[int]] = {}
    with cordwood.open(scene.files.store, read_only=True) as reader:
        for log in reader.topic(PAYMENTS).partitions:
            numbers = [_number(record) for record in log.read(starts[log.partition])]
            order[log.partition] = numbers
            count += len(numbers)
    distinct = {number for numbers in order.values() for number in numbers}
    screen.check(
        f"events in flight ({outcome.in_flight:,}, {outcome.written:,} of them written) were "
        f"stored once: {produced:,} events produced, {count:,} found, no duplicates",
        len(distinct) == count == produced and producer.in_flight == 0 and not producer.refused,
    )
    screen.check(
        "every partition has them in the order in which they were sent",
        all(numbers == sorted(numbers) for numbers in order.values()),
    )


def _verify(scene: Scene) -> None:
    command = ("verify", "--at", scene.broker.address)
    scene.screen.command(f"cordwood {' '.join(command)}")
    summary = run_cordwood(*command)[-1]
    scene.screen.check(
        f"every checksum, record and index on the local disk is intact: "
        f"{summary['segments']} segments, {summary['records']:,} records",
        summary["result"] == "sound" and summary["problems"] == 0,
    )


def _ends(scene: Scene) -> dict[int, int]:
    with cordwood.open(scene.files.store, read_only=True) as reader:
        return {log.partition: log.high_watermark for log in reader.topic(PAYMENTS).partitions}


def _events_on_disk(scene: Scene, starts: dict[int, int]) -> Placed:
    """The events from `starts` on, read from the files without a broker."""
    found: Placed = {}
    with cordwood.open(scene.files.store, read_only=True) as reader:
        for log in reader.topic(PAYMENTS).partitions:
            for record in log.read(starts[log.partition]):
                assert record.offset is not None
                found[_number(record)] = (log.partition, record.offset)
    return found


def _number(record: cordwood.Record) -> int:
    number: int = json.loads(record.value or b"")["event"]
    return number

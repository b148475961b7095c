"""Produce six hours of payments in seconds, some of them late and out of order."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Final

import cordwood
from demo.demo_plan import PAYMENTS
from demo.recording import ACTIVE
from demo.scene import Scene

_TIMEOUT_S: Final = 180.0
_HOUR_MS: Final = 3_600_000


def produce(scene: Scene) -> None:
    plan, screen, producer = scene.plan, scene.screen, scene.producer
    began_s = time.monotonic()
    sender = threading.Thread(
        target=_send_all, args=(scene,), name="history of payments", daemon=True
    )
    sender.start()
    screen.follow(lambda: _progress(scene), lambda: not sender.is_alive(), timeout_s=_TIMEOUT_S)
    took_s = time.monotonic() - began_s
    scene.watch.look()

    acknowledged = len(producer.acknowledged)
    screen.say(
        f"{acknowledged / took_s:,.0f} events per second, and {scene.tally.changes:,} account "
        f"changes; {scene.tally.late:,} events were late, by up to 20 minutes"
    )
    screen.check(
        f"all {plan.history_events:,} events were acknowledged (acks=all)",
        acknowledged == plan.history_events and not producer.refused,
    )
    sealed = len(scene.recording.lives) - _active(scene)
    screen.check(f"{sealed} segments were sealed in the meantime", sealed > 0)
    _find_by_time(scene)
    scene.start_flow(plan.live_rate)
    screen.say(f"from now on {plan.live_rate:,} events per second arrive")


def _send_all(scene: Scene) -> None:
    scene.producer.send_history(scene.plan.history_events, scene.plan.history_rate)
    scene.producer.flush()


def _progress(scene: Scene) -> str:
    segments = len(scene.recording.lives)
    return (
        f"{len(scene.producer.acknowledged):>7,} of {scene.plan.history_events:,} acknowledged"
        f"   {segments} segments, {_active(scene)} of them active"
    )


def _active(scene: Scene) -> int:
    return sum(life.states[-1][1] == ACTIVE for life in list(scene.recording.lives.values()))


def _find_by_time(scene: Scene) -> None:
    """Compare the time index with a full read, from the files, beside the broker."""
    hour_ago_ms = int(time.time() * 1000) - _HOUR_MS
    with cordwood.open(scene.files.store, read_only=True) as reader:
        log = reader.topic(PAYMENTS).partition(0)
        found = log.offset_for_time(hour_ago_ms)
        times = [(record.offset, record.timestamp_ms or 0) for record in log.read()]
    first = next((offset for offset, at_ms in times if at_ms >= hour_ago_ms), None)
    backwards = sum(b[1] < a[1] for a, b in pairwise(times))
    scene.screen.check(
        f"timestamps of partition 0 go backwards {backwards:,} times, and the time index still "
        f"finds the first event of the last hour: offset {found}",
        found == first and backwards > 0,
    )

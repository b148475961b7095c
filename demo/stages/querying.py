"""Query the whole history, archived and live, and compare it with the producer's counts."""

from __future__ import annotations

import json
import time
from typing import Final

import cordwood
from demo.demo_plan import PAYMENTS
from demo.payment_events import Tally
from demo.quantities_shown import shown_s
from demo.scene import Scene
from demo.spark_process import Totals, totals_of
from demo.stages.following import totals_table

_TIMEOUT_S: Final = 180.0


def query(scene: Scene) -> None:
    if scene.spark is None:
        began_s = time.monotonic()
        totals = _arrow_totals(scene)
        seconds, by = time.monotonic() - began_s, "a scan to Arrow (no Spark)"
    else:
        scene.spark.ask("history")
        answer = scene.spark.answer("history", _TIMEOUT_S)
        totals, seconds, by = totals_of(answer), float(answer["seconds"]), "a Spark batch query"
    counted = scene.tally.table()
    scene.screen.table(*totals_table(totals))
    events = sum(count for _, count, _ in totals.values())
    scene.screen.check(
        f"{by} of {events:,} events in {shown_s(seconds)}: every total equals the producer's count",
        totals == {name: total for name, total in counted.items() if total[1]},
    )
    scene.recording.figure("whole history queried in", shown_s(seconds))
    if scene.spark is not None:
        _check_stream(scene, counted)


def _check_stream(scene: Scene, counted: Totals) -> None:
    assert scene.spark is not None
    expected = {name: total for name, total in counted.items() if total[1]}
    caught_up = scene.screen.follow(
        lambda: f"the stream has counted {scene.recording.streamed:,} events",
        lambda: scene.live_totals == expected,
        timeout_s=_TIMEOUT_S,
    )
    scene.screen.check(
        "the stream, which kept running through archive and kills, has the same totals", caught_up
    )
    scene.spark.ask("halt")
    scene.spark.answer("halted", _TIMEOUT_S)


def _arrow_totals(scene: Scene) -> Totals:
    tally = Tally()
    with cordwood.open(scene.files.store, read_only=True) as reader:
        for log in reader.topic(PAYMENTS).partitions:
            for batch in log.scan(columns=["value"]):
                for value in batch.to_pydict()["value"]:
                    event = json.loads(value)
                    tally.add(event["kind"], event["merchant"], event["amount"])
    return {name: total for name, total in tally.table().items() if total[1]}

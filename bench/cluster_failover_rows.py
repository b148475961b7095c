"""A leader is killed: how long until its partition accepts a record again."""

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from bench.broker_servers import OS
from bench.broker_stage import figure_row
from bench.cluster_stage import ClusterStage, Side, await_end, kill, new_topic
from bench.measure import Context, Row, measure_in_turns
from bench.peer_process import ServerFailedError
from cordwood.quantities import KIB

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

# The controllers wait nine seconds after the last heartbeat, and a broker sends one every two
# seconds. So the moment of the kill alone changes the time by up to two seconds, for both kinds.
FAILOVER_RATIO: Final = 0.78

_PATIENCE_S: Final = 120.0


def failover_rows(context: Context, stage: ClusterStage) -> list[Row]:
    sides = stage.sides(context)
    if not sides:
        return []
    found = measure_in_turns(
        {side.label(OS): partial(_failover_s, stage, side) for side in sides},
        runs=2 if context.is_quick else 5,
        warm_up=False,
    )
    return [
        figure_row(
            "failover, from kill -9 of the leader to the next acknowledgement",
            OS,
            "s",
            found,
            judge=stage.judge(OS),
            ratio=FAILOVER_RATIO,
            is_lower_better=True,
            note="acks=all; most of it is the session of 9 s; the moment of the kill changes 2 s",
        )
    ]


def _failover_s(stage: ClusterStage, side: Side) -> float:
    """The client is connected and has produced before. The broker is started again at the end."""
    from confluent_kafka import Producer

    answers: list[str] = []

    def report(error: "KafkaError | None", _: "Message") -> None:
        answers.append("" if error is None else str(error))

    with new_topic(side, OS) as topic:
        producer = Producer(
            {
                **side.client,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": int(_PATIENCE_S * 1000),
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 50,
            }
        )
        leader = side.nodes[0]
        seconds = 0.0
        for is_killed in (False, True):
            if is_killed:
                kill(leader)
            started = time.perf_counter()
            producer.produce(topic, os.urandom(KIB), partition=0, on_delivery=report)
            producer.flush(_PATIENCE_S)
            seconds = time.perf_counter() - started
        if answers != ["", ""]:
            raise ServerFailedError(f"{topic} of {side.name} did not come back: {answers}")
        await_end(leader)
        stage.restore()
    return seconds

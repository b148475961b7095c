"""Hostile clients: how long others wait during each attack.

Three well-behaved clients take turns during an attack, each on its own connection: one sends small
produces, one sends produces of 256 KiB, one asks for the metadata of a topic. A row is the 99th
percentile of the slowest of the three. The target is 100 ms.
"""

import time
from functools import partial
from typing import Final

from bench.broker_servers import OS, BrokerServer, CordwoodServer, new_topic, running
from bench.hostile_clients import ATTACKS, Attack, attacked, framed
from bench.kafka_wire import AnswerError, produce_error, produce_frames
from bench.measure import Context, Row, RowMaker, Target, measure_row
from bench.wire_load import connect, receive_frame
from bench.workload import fresh_path
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import encode_request
from cordwood.quantities import KIB

P99_MS: Final = 100.0

_SMALL_BYTES: Final = 100
_LARGE_BYTES: Final = 256 * KIB
_PAUSE_S: Final = 0.002  # between two requests: these clients are not a load of their own
_NOT_COUNTED_S: Final = 0.5  # until all attackers are at work
_REQUESTS_MIN: Final = 100  # of each kind; a percentile of fewer says little


def row_makers() -> dict[str, RowMaker]:
    return {attack.title: partial(hostile_rows, attack=attack) for attack in ATTACKS}


def hostile_rows(context: Context, attack: Attack) -> list[Row]:
    directory = fresh_path(context.directory, "hostile")
    directory.mkdir()
    seconds = context.pick(10, 3)
    with running(CordwoodServer(directory)) as server:
        return [
            measure_row(
                f"p99 of others, attacked by: {attack.title}",
                partial(p99_ms, server, attack, float(seconds)),
                runs=context.runs,
                durability=OS,
                unit="ms",
                target=Target(bound=P99_MS),
                is_lower_better=True,
                note=f"{attack.clients} attackers; small and large produces and metadata",
            )
        ]


def p99_ms(server: BrokerServer, attack: Attack, seconds: float) -> float:
    """The slowest of the three kinds of requests."""
    with (
        new_topic(server, OS) as topic,
        new_topic(server, OS) as target,
        attacked(server.port, target, attack),
    ):
        return max(_latencies_ms(server.port, topic, seconds))


def _latencies_ms(port: int, topic: str, seconds: float) -> list[float]:
    """The 99th percentile of each kind of request."""
    wanted = {"topics": [{"name": topic}]}
    requests = [
        *(
            produce_frames(topic, [bytes(size)], batch_bytes=size, now_ms=int(time.time() * 1000))[
                0
            ].data
            for size in (_SMALL_BYTES, _LARGE_BYTES)
        ),
        framed(ApiKey.METADATA, 4, encode_request(ApiKey.METADATA, 4, wanted)),
    ]
    connections = [connect(port) for _ in requests]
    taken_ms: list[list[float]] = [[] for _ in requests]
    counted_from = time.perf_counter() + _NOT_COUNTED_S
    try:
        while time.perf_counter() < counted_from + seconds or len(taken_ms[0]) < _REQUESTS_MIN:
            for index, (connection, request) in enumerate(zip(connections, requests, strict=True)):
                started = time.perf_counter()
                connection.sendall(request)
                answer = bytes(receive_frame(connection))
                if index < 2 and produce_error(answer, topic):
                    raise AnswerError(f"Produce was refused: {answer[:200]!r}")
                if started >= counted_from:
                    taken_ms[index].append((time.perf_counter() - started) * 1000)
                time.sleep(_PAUSE_S)
    finally:
        for connection in connections:
            connection.close()
    return [sorted(taken)[len(taken) * 99 // 100] for taken in taken_ms]

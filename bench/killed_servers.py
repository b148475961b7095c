"""Servers that are filled, killed during writes, and timed until they answer again."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final, Protocol

from bench.broker_producers import BATCH_BYTES, ClientFailedError, Workload
from bench.broker_servers import (
    OS,
    BrokerServer,
    client_of,
    create_topic,
    delete_topic,
    is_running,
)
from bench.kafka_wire import fetch_error, fetch_frame, produce_error, produce_frames
from bench.nats_peer import NatsServer
from bench.nats_wire import NatsError
from bench.peer_process import ServerFailedError
from bench.redis_peer import RedisServer
from bench.redis_wire import RedisError
from bench.stream_load import NatsPipeline, RedisPipeline, line_free_values
from bench.wire_load import ask, pipeline_produce
from cordwood.quantities import KIB

_LOADED_S: Final = 0.3  # seconds of further writes until the kill
_RESTART_TIMEOUT_S: Final = 120.0
_WITHOUT_END: Final = 10**9  # records


class KilledServer(Protocol):
    """A server. It runs at the start and after each method."""

    @property
    def name(self) -> str: ...

    def fill_and_kill(self) -> None:
        """Write the data, keep writing, and kill the server meanwhile."""

    def restart_s(self) -> float:
        """Seconds from its start until old data is read and a new record is acknowledged."""

    def clear(self) -> None:
        """Delete the data."""


@contextmanager
def _under_load(produce: Callable[[], object]) -> Iterator[None]:
    """A thread writes inside the `with`, and ignores the death of the server."""

    def work() -> None:
        try:
            produce()
        except (OSError, NatsError, RedisError):
            return  # the server was killed, as intended

    thread = threading.Thread(target=work, name="load")
    thread.start()
    time.sleep(_LOADED_S)
    yield
    thread.join()


class KilledBroker:
    """Cordwood or Kafka: one topic, `work` in its first partition, a record in each other."""

    def __init__(self, server: BrokerServer, work: Workload, *, partitions: int = 1) -> None:
        self._server = server
        self._work = work
        self._partitions = partitions
        self._topic = ""
        self._read_offset = 0

    @property
    def name(self) -> str:
        return self._server.label(OS)

    def fill_and_kill(self) -> None:
        server = self._server
        self._topic = create_topic(server, OS, partitions=self._partitions)
        if self._partitions > 1:
            _write_to_each(server, self._topic, self._partitions)
        frames = self._work.frames(self._topic, BATCH_BYTES)
        sent = pipeline_produce(server.port, self._topic, frames, self._work.records)
        self._read_offset = sent - 1
        with _under_load(lambda: pipeline_produce(server.port, self._topic, frames, _WITHOUT_END)):
            server.kill()

    def restart_s(self) -> float:
        topic = self._topic
        (frame,) = produce_frames(
            topic, [bytes(KIB)], batch_bytes=4 * KIB, now_ms=time.time_ns() // 10**6
        )
        reads = [fetch_frame(topic, self._read_offset, max_bytes=KIB, max_wait_ms=0)]
        if self._partitions > 1:
            last = self._partitions - 1
            reads.append(fetch_frame(topic, 0, max_bytes=KIB, max_wait_ms=0, partition=last))
        started = time.perf_counter()
        self._server.launch()
        for read in reads:
            self._wait(lambda: fetch_error(ask(self._server.port, read), topic), started)  # noqa: B023
        self._wait(lambda: produce_error(bytes(ask(self._server.port, frame.data)), topic), started)
        return time.perf_counter() - started

    def clear(self) -> None:
        delete_topic(self._server, self._topic)

    def _wait(self, asked: Callable[[], int], started: float) -> None:
        """Send a request every two milliseconds until the error code is 0."""
        while True:
            try:
                error: int | None = asked()
            except OSError:
                error = None
            if error == 0:
                return
            late = time.perf_counter() - started > _RESTART_TIMEOUT_S
            if late or not is_running(self._server):
                raise ServerFailedError(
                    f"{self.name} did not recover; last error: {error}\n{self._server.printed()}"
                )
            time.sleep(0.002)


def _write_to_each(server: BrokerServer, topic: str, partitions: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({**client_of(server), "acks": "all", "linger.ms": 50})
    for partition in range(partitions):
        producer.produce(topic, bytes(KIB), partition=partition)
    if left := producer.flush(_RESTART_TIMEOUT_S):
        raise ClientFailedError(f"{left} records were not acknowledged")


class KilledNats:
    def __init__(self, server: NatsServer, work: Workload) -> None:
        self._server = server
        self._work = work
        self._values = line_free_values(work)

    @property
    def name(self) -> str:
        return self._server.name

    def fill_and_kill(self) -> None:
        self._server.create_stream()
        with closing(NatsPipeline(self._server.port, self._values)) as pipeline:
            pipeline.produce(self._work.records)
            with _under_load(lambda: pipeline.produce(_WITHOUT_END)):
                self._server.kill()

    def restart_s(self) -> float:
        started = time.perf_counter()
        self._server.launch()
        self._server.wait_until_read(self._work.records)
        self._server.wait_until_written(self._values[0])
        return time.perf_counter() - started

    def clear(self) -> None:
        self._server.delete_stream()


class KilledRedis:
    def __init__(self, server: RedisServer, work: Workload) -> None:
        self._server = server
        self._work = work
        self._values = line_free_values(work)
        self._read_id = b""

    @property
    def name(self) -> str:
        return self._server.name

    def fill_and_kill(self) -> None:
        with closing(RedisPipeline(self._server.port, self._values)) as pipeline:
            pipeline.produce(self._work.records)
            self._read_id = self._server.last_entry_id()
            with _under_load(lambda: pipeline.produce(_WITHOUT_END)):
                self._server.kill()

    def restart_s(self) -> float:
        started = time.perf_counter()
        self._server.launch()
        self._server.wait_until_read(self._read_id)
        self._server.wait_until_written(self._values[0])
        return time.perf_counter() - started

    def clear(self) -> None:
        self._server.flush_all()

"""Kafka Connect with exactly-once sources: every line of a file arrives once."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interop.committed_topic import TIMEOUT_S, CommittedTopic, create_topic
from interop.java_programs import JavaProgram, RunningProgram, find_libraries
from interop.kafka_peer import KafkaTools, KafkaUnavailableError, free_port
from wire.served_process import ServedProcess

MAIN_CLASS = "org.apache.kafka.connect.cli.ConnectDistributed"
LINES_PER_TRANSACTION = 20


class Worker:
    """A distributed worker of Connect, on loopback."""

    def __init__(self, kafka: KafkaTools, servers: str, work_dir: Path) -> None:
        connectors = find_libraries(
            "streams", folder="kafka-streams", variable="CORDWOOD_KAFKA_STREAMS_LIBS"
        )
        self._port = free_port()
        work_dir.mkdir()
        properties = {
            "bootstrap.servers": servers,
            "group.id": "connect",
            "exactly.once.source.support": "enabled",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": "connect-configs",
            "config.storage.replication.factor": "1",
            "offset.storage.topic": "connect-offsets",
            "offset.storage.replication.factor": "1",
            "offset.storage.partitions": "1",
            "status.storage.topic": "connect-status",
            "status.storage.replication.factor": "1",
            "status.storage.partitions": "1",
            "listeners": f"http://127.0.0.1:{self._port}",
            "plugin.discovery": "service_load",
            # A worker that was killed is missed soon.
            "session.timeout.ms": "2000",
            "heartbeat.interval.ms": "300",
            "rebalance.timeout.ms": "3000",
            "scheduled.rebalance.max.delay.ms": "0",
        }
        self._configuration = work_dir / "worker.properties"
        self._configuration.write_text(
            "".join(f"{key}={value}\n" for key, value in properties.items())
        )
        self._program = JavaProgram(
            java=kafka.java,
            main_class=MAIN_CLASS,
            class_path=(f"{connectors}/*", f"{kafka.libraries}/*"),
            work_dir=work_dir,
        )

    def start(self) -> RunningProgram:
        return self._program.start(self._configuration)

    def create_connector(self, worker: RunningProgram, name: str, settings: object) -> None:
        """Retried until the worker serves requests and has read its topics."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/connectors/{name}/config",
            data=json.dumps(settings).encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S):
                    return
            except (urllib.error.URLError, OSError) as error:
                if not worker.is_running or time.monotonic() > deadline_s:
                    raise AssertionError(f"{error}\n{worker.printed()}") from error
                time.sleep(0.1)


class GrowingFile:
    """Numbered lines, written for as long as it runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lines")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        with self.path.open("a", buffering=1) as file:
            while not self._is_over.wait(0.05):
                for _ in range(10):
                    file.write(f"line {self.lines}\n")
                    self.lines += 1


@contextmanager
def growing(path: Path) -> Iterator[GrowingFile]:
    file = GrowingFile(path)
    file.start()
    try:
        yield file
    finally:
        file.stop()


@pytest.fixture
def worker(kafka: KafkaTools, served: ServedProcess, tmp_path: Path) -> Worker:
    try:
        return Worker(kafka, served.address, tmp_path / "worker")
    except KafkaUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedProcess]:
    settings = (
        "group.min.session.timeout.ms=1000",
        "group.initial.rebalance.delay.ms=0",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    )
    with ServedProcess(tmp_path / "data", *settings) as process:
        yield process


def test_connect_s_source_sends_each_line_once_though_it_and_the_broker_are_killed(
    worker: Worker, served: ServedProcess, tmp_path: Path
) -> None:
    """The lines and the position in the file are one transaction."""
    source = tmp_path / "lines.txt"
    source.touch()
    settings = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": "lines",
        "batch.size": str(LINES_PER_TRANSACTION),
        "exactly.once.support": "required",
        # A new worker reads its offsets up to their end, and so waits for the transaction that
        # the killed one left open.
        "producer.override.transaction.timeout.ms": "3000",
    }
    create_topic(served.address, "lines")
    with growing(source) as file, CommittedTopic(served.address, "lines") as lines:
        with worker.start() as connect:
            worker.create_connector(connect, "file", settings)
            lines.wait_for(200, during=connect)
            connect.kill()
        lines.take(0.5)  # what the first worker has committed
        with worker.start() as connect:
            lines.wait_for(len(lines.messages) + 100, during=connect)
            served.kill()
            lines.take(0.5)
            served.start()
            # The file goes on growing: the connector keeps its last lines until others follow.
            written = file.lines
            lines.wait_for(written + LINES_PER_TRANSACTION, during=connect)
            connect.stop()
            lines.take(1.0)
            found = [message.value() for message in lines.messages]

    assert len(found) > written
    assert found == [f"line {number}".encode() for number in range(len(found))]

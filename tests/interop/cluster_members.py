"""Brokers, ours and Kafka's, as members of a cluster whose controllers are Kafka's."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from interop.kafka_peer import KafkaFailedError, KafkaTools, kept_ports
from interop.kraft_controllers import KraftControllers, format_directory

_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOGGING = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
"""
_QUICK = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "replica.fetch.backoff.ms": "200",
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "logger.level": "info",
}


class CordwoodMember:
    """One broker. Its data stays in `directory`, so that it can be started again.

    program  what Python runs: the command, or one with a bug
    """

    program: tuple[str, ...] = ("-m", "cordwood")

    def __init__(
        self,
        controllers: KraftControllers,
        directory: Path,
        *,
        node_id: int,
        properties: Mapping[str, str] | None = None,
        protocol: str = "PLAINTEXT",
    ) -> None:
        self.node_id = node_id
        self.directory = directory
        self.data = directory / "data"
        [self.port] = kept_ports(1)
        self.process: subprocess.Popen[bytes] | None = None
        format_directory(self.data, controllers.cluster_id, node_id)
        self._settings = {
            "process.roles": "broker",
            "node.id": str(node_id),
            "listeners": f"{protocol}://127.0.0.1:{self.port}",
            "controller.quorum.bootstrap.servers": controllers.bootstrap,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": protocol,
            "log.dirs": str(self.data),
            **_QUICK,
            **(properties or {}),
        }

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    def __enter__(self) -> Self:
        self.launch()
        try:
            self.wait_until("is running")
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def launch(self) -> None:
        assert self.process is None, "already started"
        file = self.directory / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, "serve", "--config", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_until(self, text: str, timeout_s: float = 60) -> None:
        """Wait for a line of the broker's log."""
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while text not in (printed := self.log.read_text(errors="replace")):
            if self.process.poll() is not None:
                raise KafkaFailedError(f"broker {self.node_id} ended\n{printed[-4000:]}")
            if time.monotonic() > deadline:
                raise KafkaFailedError(f"broker {self.node_id}: no {text!r}\n{printed[-4000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        """Stop it cleanly; raises if that fails."""
        process, self.process = self.process, None
        assert process is not None
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        assert code == 0, self.log.read_text(errors="replace")[-4000:]


class KafkaMember:
    """One broker of Kafka's. Its data stays in `directory`."""

    def __init__(
        self,
        tools: KafkaTools,
        controllers: KraftControllers,
        directory: Path,
        *,
        node_id: int,
        properties: Mapping[str, str] | None = None,
        protocol: str = "PLAINTEXT",
    ) -> None:
        self._tools = tools
        self.node_id = node_id
        self.directory = directory
        self.data = directory / "data"
        [self.port] = kept_ports(1)
        self.process: subprocess.Popen[bytes] | None = None
        format_directory(self.data, controllers.cluster_id, node_id)
        self._settings = {
            "process.roles": "broker",
            "node.id": str(node_id),
            "listeners": f"{protocol}://{self.address}",
            "controller.quorum.bootstrap.servers": controllers.bootstrap,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": protocol,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data),
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "4000",
            "replica.lag.time.max.ms": "4000",
            "group.share.enable": "false",
            "offsets.topic.num.partitions": _QUICK["offsets.topic.num.partitions"],
            "transaction.state.log.num.partitions": _QUICK["transaction.state.log.num.partitions"],
            **(properties or {}),
        }

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    def __enter__(self) -> Self:
        file = self.directory / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        self.launch()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def launch(self) -> None:
        logging = self.directory / "log4j2.properties"
        logging.write_text(_LOGGING.format(path=self.log))
        command = self._tools.command(
            "kafka.Kafka",
            self.directory / "server.properties",
            jvm_options=(*_JVM, f"-Dlog4j2.configurationFile={logging}"),
        )
        with open(self.directory / "console.log", "wb") as console:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + 60
        while not (self.log.exists() and "Kafka Server started" in self.log.read_text()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                console_text = (self.directory / "console.log").read_text(errors="replace")
                raise KafkaFailedError(f"a Kafka broker did not start\n{console_text[-4000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()


def batches(data: Path, topic: str, partition: int = 0) -> bytes:
    """The batches of a replica, as they are in its segments."""
    files = sorted((data / f"{topic}-{partition}").glob("*.log"))
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")

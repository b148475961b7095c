"""A quorum of Apache Kafka's controllers on loopback, and brokers of Kafka that join it.

Everything here starts Java processes and ends them again: `KraftControllers` is a context manager.
"""

from __future__ import annotations

import base64
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from interop.kafka_peer import KafkaFailedError, KafkaTools, kept_ports

# One JVM each; Kafka's own metadata of a small cluster needs a few megabytes.
_JVM = ("-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
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
FIRST_ID = 3000
# What our brokers do not have. See `cordwood.cluster.control.membership`.
WITHOUT = ("share.version=0", "streams.version=0")


def random_id() -> str:
    """A cluster or directory id as Kafka writes it; a leading dash confuses its tools."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def format_directory(directory: Path, cluster_id: str, node_id: int) -> None:
    """What Kafka's tool writes for a broker; starting its JVM takes longer than all the rest."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "meta.properties").write_text(
        f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\ndirectory.id={random_id()}\n"
    )


@dataclass
class KraftNode:
    """One process of Kafka: a controller, or a broker."""

    node_id: int
    port: int
    directory: Path
    directory_id: str = field(default_factory=random_id)
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"


class KraftControllers:
    """Controllers that are started together. Their data stays in `work_dir`."""

    def __init__(
        self,
        tools: KafkaTools,
        work_dir: Path,
        *,
        count: int = 1,
        properties: Mapping[str, str] | None = None,
        features: Sequence[str] = WITHOUT,
        protocol: str = "PLAINTEXT",
        format_arguments: Sequence[str] = (),
    ) -> None:
        self._tools = tools
        self._format_arguments = tuple(format_arguments)
        self._properties = dict(properties or {})
        self._features = tuple(features)
        self._protocol = protocol
        self.cluster_id = random_id()
        self._work_dir = work_dir
        self.brokers: list[KraftNode] = []
        self.members = [
            KraftNode(FIRST_ID + at, port, work_dir / f"controller-{FIRST_ID + at}")
            for at, port in enumerate(kept_ports(count))
        ]

    @property
    def bootstrap(self) -> str:
        return ",".join(member.address for member in self.members)

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor() as pool:
                list(pool.map(self._format, self.members))
            for member in self.members:
                self.launch(member)
            for member in self.members:
                self._wait_until_ready(member)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for node in (*self.brokers, *self.members):
            self.kill(node)

    def start_broker(self, node_id: int = 100, **properties: str) -> KraftNode:
        """A broker of Kafka in this cluster; it ends with the controllers."""
        (port,) = kept_ports(1)
        node = KraftNode(node_id, port, self._work_dir / f"broker-{node_id}")
        node.directory.mkdir(parents=True)
        self._configure(
            node,
            {
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://{node.address}",
                "advertised.listeners": f"PLAINTEXT://{node.address}",
                "listener.security.protocol.map": (
                    f"CONTROLLER:{self._protocol},PLAINTEXT:PLAINTEXT"
                ),
                "inter.broker.listener.name": "PLAINTEXT",
                "offsets.topic.replication.factor": "1",
                "offsets.topic.num.partitions": "1",
                **{key.replace("_", "."): value for key, value in properties.items()},
            },
        )
        format_directory(node.directory / "data", self.cluster_id, node_id)
        self.brokers.append(node)
        self.launch(node)
        self._wait_until_ready(node)
        return node

    def _configure(self, node: KraftNode, properties: Mapping[str, str]) -> Path:
        path = node.directory / "server.properties"
        all_of_them = {
            "node.id": str(node.node_id),
            "controller.quorum.bootstrap.servers": self.bootstrap,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(node.directory / "data"),
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            **properties,
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in all_of_them.items()))
        return path

    def kill(self, member: KraftNode) -> None:
        process, member.process = member.process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def launch(self, member: KraftNode) -> None:
        assert member.process is None, "already started"
        logging = member.directory / "log4j2.properties"
        logging.write_text(_LOGGING.format(path=member.log))
        member.log.unlink(missing_ok=True)
        heap = "-Xmx320m" if member in self.brokers else "-Xmx96m"  # a cleaner has 128 MiB
        command = self._tools.command(
            "kafka.Kafka",
            member.directory / "server.properties",
            jvm_options=(heap, *_JVM, f"-Dlog4j2.configurationFile={logging}"),
        )
        with open(member.directory / "console.log", "wb") as console:
            member.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
            )

    def leader(self) -> KraftNode:
        """The active controller, as Kafka's own tool sees it."""
        printed = self._tools.run(
            "org.apache.kafka.tools.MetadataQuorumCommand",
            "--bootstrap-controller",
            ",".join(m.address for m in self.members if m.process is not None),
            "describe",
            "--status",
        )
        found = next(line for line in printed.splitlines() if line.startswith("LeaderId:"))
        leader_id = int(found.split()[1])
        return next(member for member in self.members if member.node_id == leader_id)

    def _format(self, member: KraftNode) -> None:
        member.directory.mkdir(parents=True)
        configuration = self._configure(
            member,
            {
                "process.roles": "controller",
                "listeners": f"CONTROLLER://{member.address}",
                "advertised.listeners": f"CONTROLLER://{member.address}",
                "listener.security.protocol.map": f"CONTROLLER:{self._protocol}",
                **self._properties,
            },
        )
        voters = ",".join(f"{m.node_id}@{m.address}:{m.directory_id}" for m in self.members)
        self._tools.run(
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={self.cluster_id}",
            f"--config={configuration}",
            f"--initial-controllers={voters}",
            *(f"--feature={feature}" for feature in self._features),
            *self._format_arguments,
        )

    def _wait_until_ready(self, member: KraftNode, timeout_s: float = 60) -> None:
        assert member.process is not None
        deadline = time.monotonic() + timeout_s
        while not (member.log.exists() and "Kafka Server started" in member.log.read_text()):
            if member.process.poll() is not None:
                raise KafkaFailedError(f"a controller ended while starting\n{_tail(member)}")
            if time.monotonic() > deadline:
                raise KafkaFailedError(f"a controller was not ready\n{_tail(member)}")
            time.sleep(0.05)


def _tail(member: KraftNode) -> str:
    files = (member.log, member.directory / "console.log")
    return "\n".join(
        line
        for file in files
        if file.exists()
        for line in file.read_text(errors="replace").splitlines()[-30:]
    )

"""The processes of a cluster, each in a network of its own: our brokers, Kafka's controllers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from cordwood.clock import SystemClock
from cordwood.cluster.control.controller_setup import ControllerNode, ControllerSetup
from cordwood.log.topics.directory_format import format_directories
from cordwood.storage.files import RealFileSystem
from crash.cluster_processes.data_disk import DataDisk
from crash.cluster_processes.member_nursery import MemberNursery, MemberOrder, set_clock_error
from crash.cluster_processes.virtual_switch import address_of, die_with_parent, enter_namespace
from interop.kafka_peer import KafkaTools

BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
FIRST_CONTROLLER: Final = 3000
SESSION_MS: Final = 4000
START_S: Final = 90.0
STOP_S: Final = 60.0
DISK_MIB: Final = 160
_JVM: Final = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOGGING: Final = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
"""
_TIMES: Final = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "500",
}
_BROKER: Final = {
    **_TIMES,
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "insecure.listeners.allowed": "true",
    "replica.fetch.backoff.ms": "200",
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "auto.create.topics.enable": "false",
    "log.segment.bytes": str(1 << 20),
    # A clock that is years ahead must not delete anything. One that is less than a day ahead at
    # a start is believed.
    "log.retention.ms": "172800000",
    "logger.level": "info",
}


def await_true(is_true: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it became true in time."""
    until_s = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.02)
    return True


class Process:
    """A process that is killed, paused and started again. For one thread."""

    name = ""

    @property
    def pid(self) -> int:
        """0 if it was not started."""
        raise NotImplementedError

    @property
    def is_running(self) -> bool:
        return bool(self.pid) and os.path.exists(f"/proc/{self.pid}")

    def start(self) -> None:
        raise NotImplementedError

    def _signal(self, number: int) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def pause(self) -> None:
        """On return none of its threads runs."""
        self._signal(signal.SIGSTOP)
        await_true(self._has_stopped, STOP_S)

    def _has_stopped(self) -> bool:
        """Whether all threads have stopped, or there are none."""
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if stat.read_text().rpartition(")")[2].split()[0] not in "TtZX":
                    return False
        return True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        assert await_true(lambda: not self.is_running, STOP_S), f"{self.name} does not die"

    def begin_stop(self) -> None:
        self._signal(signal.SIGTERM)


class BrokerProcess(Process):
    """One broker of ours, with a disk and a clock of its own."""

    def __init__(
        self,
        nursery: MemberNursery,
        directory: Path,
        images: Path,
        *,
        node_id: int,
        namespace: str,
        setup: ControllerSetup,
        durability: str,
    ) -> None:
        self.name = f"broker-{node_id}"
        self.node_id = node_id
        self._nursery = nursery
        self._namespace = namespace
        self._pid = 0
        self.starts = 0
        directory.mkdir(parents=True)
        self.log = directory / "broker.log"
        self.disk = DataDisk(images / f"{self.name}.img", directory / "disk", size_mib=DISK_MIB)
        self.data = self.disk.path / "data"
        self._clock_file = directory / "clock"
        set_clock_error(self._clock_file, 0)
        format_directories(
            RealFileSystem(),
            [str(self.data)],
            node_id=node_id,
            cluster_id=setup.cluster_id,
            clock=SystemClock(),
        )
        self._config = directory / "server.properties"
        settings = {
            **_BROKER,
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{address_of(node_id)}:{BROKER_PORT}",
            "controller.quorum.bootstrap.servers": setup.bootstrap,
            "log.dirs": str(self.data),
            "log.durability": durability,
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    @property
    def pid(self) -> int:
        return self._pid

    def start(self) -> None:
        assert not self.is_running, f"{self.name} runs already"
        self.starts += 1
        self._pid = self._nursery.start(
            MemberOrder(
                namespace=self._namespace,
                config_file=str(self._config),
                log_file=str(self.log),
                clock_file=str(self._clock_file),
            )
        )

    def cut_power(self) -> None:
        """End it between two instructions, and its disk with it."""
        self.pause()
        self.disk.shut_down()
        self.kill()
        self.disk.power_on()

    def set_clock_error(self, error_ms: int) -> None:
        set_clock_error(self._clock_file, error_ms)


class ControllerProcess(Process):
    """One controller of Kafka's."""

    def __init__(
        self,
        tools: KafkaTools,
        directory: Path,
        *,
        node: ControllerNode,
        namespace: str,
        setup: ControllerSetup,
    ) -> None:
        self.name = f"controller-{node.node_id}"
        self._tools = tools
        self._directory = directory
        self._namespace = namespace
        self._setup = setup
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        self.log = directory / "server.log"
        self._config = directory / "server.properties"
        self._config.write_text(setup.properties(node, str(directory / "data"), _TIMES))
        (directory / "log4j2.properties").write_text(_LOGGING.format(path=self.log))

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def format(self) -> None:
        self._tools.run("kafka.tools.StorageTool", *self._setup.format_arguments(str(self._config)))

    def start(self) -> None:
        assert not self.is_running, f"{self.name} runs already"
        command = self._tools.command(
            "kafka.Kafka",
            self._config,
            jvm_options=(
                *_JVM,
                f"-Dlog4j2.configurationFile={self._directory / 'log4j2.properties'}",
            ),
        )

        def enter() -> None:
            die_with_parent()
            enter_namespace(self._namespace)

        with open(self._directory / "console.log", "ab") as console:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                preexec_fn=enter,  # noqa: PLW1509 (this process has one thread when it starts one)
            )

    @property
    def is_ready(self) -> bool:
        return self.log.exists() and "Kafka Server started" in self.log.read_text(errors="replace")


def controller_setup(cluster_id: str, places: list[int]) -> ControllerSetup:
    return ControllerSetup(
        cluster_id=cluster_id,
        nodes=tuple(
            ControllerNode(
                node_id=FIRST_CONTROLLER + at, host=address_of(place), port=CONTROLLER_PORT
            )
            for at, place in enumerate(places)
        ),
    )


def format_all(controllers: list[ControllerProcess]) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(ControllerProcess.format, controllers))


def replica_bytes(data: Path, brokers: Mapping[int, Path]) -> dict[int, bytes]:
    """The batches of one partition, by broker. `data` is its directory below each `brokers`."""
    return {
        node: b"".join(file.read_bytes() for file in sorted((path / data).glob("*.log")))
        for node, path in brokers.items()
    }

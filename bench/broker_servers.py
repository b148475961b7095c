"""Cordwood and Apache Kafka as server processes under load.

Durability means the same for both. "os": a record is acknowledged once the operating system has
it; this is Kafka's default and Cordwood's `durability=os`. "disk": once it is on the disk; this is
Kafka's `flush.messages=1` and Cordwood's `durability=disk`.
"""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Final, Protocol

from bench.child import environment_of_an_installation
from bench.kafka_wire import api_versions_frame
from bench.peer_process import PeerProcess, ServerFailedError, end_of
from bench.tls_files import ClientTls, TlsFiles
from bench.wire_load import HOST, ask, wait_for_topic
from interop.kafka_peer import KafkaBroker, KafkaTools, KafkaUnavailableError, kafka_version

ROOT = Path(__file__).resolve().parent.parent
OS: Final = "os"
DISK: Final = "disk"

_START_TIMEOUT_S: Final = 60.0
_DELETE_TIMEOUT_S: Final = 120.0
# The heap that Kafka's own start script sets.
_KAFKA_HEAP: Final = ("-Xms1G", "-Xmx1G")
# Delete files of a topic at once instead of after a minute: a run writes gigabytes.
_ANY_TOPIC: Final = {"file.delete.delay.ms": "100"}
_KAFKA_TLS: Final = "TLS"  # the name of its listener
# Kafka takes this from the broker, not from the topic, and begins after half a minute.
_KAFKA_DELETES_SOON: Final = {
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "1000",
}

_numbers = count()


class BrokerServer(Protocol):
    """A server that can be started, loaded and stopped. One at a time runs in a directory."""

    name: str
    port: int
    data_directory: Path
    tls: ClientTls | None  # clients use TLS; None: they do not

    @property
    def pid(self) -> int: ...

    def launch(self) -> None:
        """Start the process and return at once."""

    def stop(self) -> None:
        """Stop it as an operator would; does nothing if it is not running."""

    def kill(self) -> None:
        """Kill it; its data is not used again."""

    def label(self, durability: str) -> str:
        """The name of the server in a row of that durability."""

    def topic_config(self, durability: str) -> Mapping[str, str]:
        """The configuration of a topic for that durability."""

    def printed(self) -> str:
        """The end of its output."""


class CordwoodServer(PeerProcess):
    """`cordwood serve` in its own interpreter, without settings of this user or directory.

    `checkout` is another version of the project, built with its `script/bootstrap`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        command_prefix: Sequence[str] = (),
        name: str = "Cordwood",
        tls: TlsFiles | None = None,
        settings: Mapping[str, str] | None = None,
        checkout: Path | None = None,
        processes: int | None = None,
    ) -> None:
        self.name = name
        self.port = free_port(processes or 1)
        self.data_directory = directory / "data"
        self.tls = None if tls is None else tls.client
        where = ("--dir", str(self.data_directory), "--host", HOST, "--port", str(self.port))
        chosen = dict(settings or {})
        if tls is not None:
            chosen |= {"listeners": f"SSL://{HOST}:{self.port}", **tls.server_properties}
        sets = [part for key, value in chosen.items() for part in ("--set", f"{key}={value}")]
        more = () if processes is None else ("--processes", str(processes))
        environment = {
            key: value
            for key, value in environment_of_an_installation().items()
            if not key.startswith("CORDWOOD_")
        }
        python = sys.executable
        if checkout is not None:
            environment["PYTHONPATH"] = str(checkout / "src")
            python = str(checkout / ".venv" / "bin" / "python")
        super().__init__(
            [*command_prefix, python, "-m", "cordwood", "serve", *where, *sets, *more],
            directory,
            environment=environment,
        )

    def label(self, durability: str) -> str:
        return self.name

    def topic_config(self, durability: str) -> Mapping[str, str]:
        return {**_ANY_TOPIC, "durability": durability}


class KafkaServer:
    """Apache Kafka as its start script runs it, with broker and controller in one process."""

    def __init__(
        self,
        tools: KafkaTools,
        directory: Path,
        *,
        command_prefix: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self.name = f"Kafka {kafka_version()}"
        self.tls = None if tls is None else tls.client
        secured = {} if tls is None else tls.kafka_properties
        self._broker = KafkaBroker(
            tools,
            log_dirs=[directory / "data"],
            work_dir=directory,
            jvm_options=_KAFKA_HEAP,
            command_prefix=command_prefix,
            properties={**_KAFKA_DELETES_SOON, **secured, **(properties or {})},
            listeners=None if tls is None else {_KAFKA_TLS: "SSL"},
        )
        self.data_directory = directory / "data"
        self.port = self._broker.port if tls is None else self._broker.ports[_KAFKA_TLS]

    @property
    def pid(self) -> int:
        return self._broker.pid

    def launch(self) -> None:
        self._broker.launch()

    def stop(self) -> None:
        self._broker.stop()

    def kill(self) -> None:
        self._broker.kill()

    def label(self, durability: str) -> str:
        return f"{self.name}, {'default' if durability == OS else 'flush.messages=1'}"

    def topic_config(self, durability: str) -> Mapping[str, str]:
        return _ANY_TOPIC if durability == OS else {**_ANY_TOPIC, "flush.messages": "1"}

    def printed(self) -> str:
        return end_of(self._broker.server_log)

    @property
    def server_log(self) -> Path:
        return self._broker.server_log


def find_kafka() -> KafkaTools:
    """Kafka's jars, fetched if missing. Raises KafkaUnavailableError with the reason if not."""
    fetched = subprocess.run(
        [ROOT / "script" / "fetch-kafka"], stdout=subprocess.PIPE, text=True, check=False
    )
    if fetched.returncode != 0:
        raise KafkaUnavailableError(fetched.stdout.strip() or "script/fetch-kafka failed")
    return KafkaTools.find()


# --- actions on either server -----------------------------------------------------------------


@contextmanager
def running(server: BrokerServer) -> Iterator[BrokerServer]:
    """The server runs inside the `with` and is killed after it."""
    server.launch()
    try:
        wait_until_serving(server)
        yield server
    finally:
        server.kill()


def wait_until_serving(server: BrokerServer) -> None:
    """Wait until it answers ApiVersions."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            ask(server.port, api_versions_frame(), server.tls)
        except OSError:
            if time.monotonic() > deadline or not is_running(server):
                raise ServerFailedError(
                    f"{server.name} did not start\n{server.printed()}"
                ) from None
            time.sleep(0.02)
        else:
            return


def is_running(server: BrokerServer) -> bool:
    """Whether the process runs; a zombie counts as ended."""
    try:
        state = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return not Path("/proc/self").exists()  # no /proc: rely on the deadline
    return state != "Z"


def create_topic(
    server: BrokerServer,
    durability: str,
    *,
    name: str | None = None,
    partitions: int = 1,
    is_awaited: bool = True,
    config: Mapping[str, str] | None = None,
) -> str:
    """Create a topic and, with `is_awaited`, wait until its first partition is writable.

    `config` is added to what the server sets for that durability.
    """
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    topic = name or f"bench-{next(_numbers)}"
    admin = AdminClient(client_of(server))
    wanted = NewTopic(
        topic,
        num_partitions=partitions,
        replication_factor=1,
        config={**server.topic_config(durability), **(config or {})},
    )
    admin.create_topics([wanted])[topic].result(_START_TIMEOUT_S)
    if is_awaited:
        wait_for_topic(server.port, topic, server.tls)
    return topic


def delete_topic(server: BrokerServer, topic: str) -> None:
    """Return when its files are gone: deleting a gigabyte would disturb the next sample."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(client_of(server))
    admin.delete_topics([topic])[topic].result(_START_TIMEOUT_S)
    deadline = time.monotonic() + _DELETE_TIMEOUT_S
    while any(server.data_directory.glob(f"{topic}-*")):
        if time.monotonic() > deadline:
            raise ServerFailedError(f"{server.name} did not delete {topic}\n{server.printed()}")
        time.sleep(0.02)


@contextmanager
def new_topic(
    server: BrokerServer,
    durability: str,
    *,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """A topic, deleted after the `with`; after a failure all data of the server is deleted."""
    topic = create_topic(server, durability, partitions=partitions, config=config)
    yield topic
    delete_topic(server, topic)


def client_of(server: BrokerServer) -> dict[str, str | int | float | bool]:
    """Settings of every librdkafka client. Errors are raised, so nothing is logged."""
    secured = {} if server.tls is None else server.tls.librdkafka
    return {"bootstrap.servers": f"{HOST}:{server.port}", "log_level": 0, **secured}


def free_port(count: int = 1) -> int:
    """A port that is free, and so are the next ones, `count` in all."""
    while True:
        with ExitStack() as probes:
            first = probes.enter_context(socket.socket())
            first.bind((HOST, 0))
            port: int = first.getsockname()[1]
            try:
                for number in range(1, count):
                    probes.enter_context(socket.socket()).bind((HOST, port + number))
            except (OSError, OverflowError):
                continue
            return port


def remove_data(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)

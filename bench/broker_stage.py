"""The set-up of the broker suite: servers on one core, clients on another, rows of figures."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from bench.broker_servers import (
    DISK,
    OS,
    BrokerServer,
    CordwoodServer,
    KafkaServer,
    find_kafka,
    free_port,
    new_topic,
    running,
)
from bench.kafka_wire import produce_frames
from bench.measure import Context, Row, Target, measure_in_turns, samples
from bench.nats_peer import NatsUnavailableError, nats_version
from bench.null_server import null_server
from bench.pinning import Cores, choose_cores, client_pinned
from bench.process_tree import tree_cpu_seconds
from bench.rabbit_peer import RabbitUnavailableError, rabbit_version
from bench.redis_peer import RedisUnavailableError, redis_version
from bench.tls_files import create_tls_files
from bench.wire_load import fetch_all, pipeline_produce
from bench.workload import fresh_path
from cordwood.quantities import KIB, MIB
from interop.kafka_peer import KafkaTools, KafkaUnavailableError, kafka_version

CORDWOOD: Final = "Cordwood"

# A row whose limit is the client differs by less than its spread from server to server. So it has
# more and shorter samples than the others, which take as long together.
CLIENT_TURNS: Final = 4  # in the time of one sample

_WARM_UP_S: Final = 15.0
_WARM_UP_QUICK_S: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The work of a client, and its cost for the server."""

    records: int
    value_bytes: int  # of all records together
    seconds: float
    server_cpu_s: float | None = None

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.value_bytes / self.seconds / 1e6

    @property
    def cpu_s_per_million(self) -> float | None:
        if self.server_cpu_s is None:
            return None
        return self.server_cpu_s / self.records * 1e6


class Stage:
    """The servers of one run of the suite.

    `servers` starts them at the first call. They keep running, each on its own data, until the
    context's resources are closed: a Java server that was started for every row would be measured
    before it reaches its full speed. `has_tls`: their clients use TLS. `durability` is that of all
    topics, also of the servers' own; None: the servers have their defaults.
    """

    def __init__(self, *, has_tls: bool = False, durability: str | None = None) -> None:
        self._has_tls = has_tls
        self._durability = durability
        self._servers: list[BrokerServer] = []
        self._kafka: KafkaTools | None = None
        self._cores: Cores | None = None
        self._null_port: int | None = None
        self._is_set = False
        self.absent: dict[str, str] = {}  # peer -> why it is missing

    @property
    def command_prefix(self) -> tuple[str, ...]:
        """The command prefix that pins a server to its core."""
        return () if self._cores is None else self._cores.server_prefix

    @property
    def kafka(self) -> KafkaTools | None:
        return self._kafka

    def set_up(self, context: Context) -> None:
        """Find the peers and pin this process to its core, once."""
        if self._is_set:
            return
        self._is_set = True
        self._cores = choose_cores()
        if self._cores is None:
            context.say("servers and clients are not pinned: this needs taskset and two cores")
        context.resources.enter_context(client_pinned(self._cores))
        try:
            self._kafka = find_kafka()
        except KafkaUnavailableError as error:
            self.absent["Kafka"] = str(error)
        try:
            redis_version()
        except RedisUnavailableError as error:
            self.absent["Redis"] = str(error)
        try:
            nats_version()
        except NatsUnavailableError as error:
            self.absent["NATS"] = str(error)
        try:
            rabbit_version()
        except RabbitUnavailableError as error:
            self.absent["RabbitMQ"] = str(error)
        for peer, reason in self.absent.items():
            context.say(f"{peer} skipped: {reason}")
        context.facts.update(self._facts())

    def _facts(self) -> dict[str, str]:
        """Facts about the peers for the head of the table."""
        cores, absent = self._cores, self.absent
        return {
            "pinned": "no"
            if cores is None
            else f"servers to core {cores.server}, clients to core {cores.client}",
            "kafka": f"skipped: {absent['Kafka']}" if "Kafka" in absent else kafka_version(),
            "redis": f"skipped: {absent['Redis']}" if "Redis" in absent else redis_version(),
            "nats": f"skipped: {absent['NATS']}" if "NATS" in absent else nats_version(),
            "rabbitmq": f"skipped: {absent['RabbitMQ']}"
            if "RabbitMQ" in absent
            else rabbit_version(),
        }

    def new_servers(self, directory: Path) -> list[BrokerServer]:
        """Cordwood and, if available, Kafka, not started, with their data below `directory`."""
        prefix = self.command_prefix
        tls = create_tls_files(fresh_path(directory, "tls")) if self._has_tls else None
        settings = {} if self._durability is None else {"log.durability": self._durability}
        servers: list[BrokerServer] = [
            CordwoodServer(
                fresh_path(directory, "cordwood"), command_prefix=prefix, tls=tls, settings=settings
            )
        ]
        if self._kafka is not None:
            properties = {"log.flush.interval.messages": "1"} if self._durability == DISK else {}
            servers.append(
                KafkaServer(
                    self._kafka,
                    fresh_path(directory, "kafka"),
                    command_prefix=prefix,
                    tls=tls,
                    properties=properties,
                )
            )
        return servers

    def servers(self, context: Context) -> list[BrokerServer]:
        """The same running servers at each call, Cordwood first."""
        self.set_up(context)
        if not self._servers:
            for server in self.new_servers(context.directory):
                context.resources.enter_context(running(server))
                _warm_up(server, seconds=_WARM_UP_QUICK_S if context.is_quick else _WARM_UP_S)
                self._servers.append(server)
        return self._servers

    def judge(self, durability: str) -> str | None:
        """The name of Kafka in a row of that durability; None if it is missing."""
        names = [s.label(durability) for s in self._servers if s.name != CORDWOOD]
        return names[0] if names else None

    def null_port(self, context: Context) -> int:
        """The port of a server without a log, on the servers' core; see `null_server`."""
        self.set_up(context)
        if self._null_port is None:
            self._null_port = free_port()
            context.resources.enter_context(
                null_server(self._null_port, command_prefix=self.command_prefix)
            )
        return self._null_port

    def note(self, text: str, *peers: str) -> str:
        """`text`, followed by the missing `peers` and the reasons."""
        missing = [f"{peer} skipped: {self.absent[peer]}" for peer in peers if peer in self.absent]
        return "; ".join(part for part in (text, *missing) if part)


def _warm_up(server: BrokerServer, *, seconds: float) -> None:
    """Run until a Java server has compiled the code that the rows use; the same for all."""
    size, records = KIB, 64 * KIB
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with new_topic(server, OS) as topic:
            frames = produce_frames(
                topic,
                [bytes(size)] * 256,
                batch_bytes=256 * size,
                now_ms=time.time_ns() // 10**6,
            )
            sent = pipeline_produce(server.port, topic, frames, records, server.tls)
            fetch_all(server.port, topic, records=sent, max_bytes=MIB, tls=server.tls)


class Process(Protocol):
    """A process on the servers' core."""

    @property
    def pid(self) -> int: ...


def timed(server: Process, work: Callable[[], tuple[int, int]]) -> Load:
    """Time `work`, which returns the number of records and value bytes."""
    cpu_before, started = tree_cpu_seconds(server.pid), time.perf_counter()
    records, value_bytes = work()
    seconds, cpu_after = time.perf_counter() - started, tree_cpu_seconds(server.pid)
    return Load(
        records=records,
        value_bytes=value_bytes,
        seconds=seconds,
        server_cpu_s=None if cpu_before is None or cpu_after is None else cpu_after - cpu_before,
    )


def measure_loads(
    servers: Sequence[BrokerServer],
    durability: str,
    load: Callable[[BrokerServer], Load],
    *,
    runs: int,
    warm_up: bool = True,
    peers: Mapping[str, Callable[[], Load]] | None = None,
) -> dict[str, list[Load]]:
    """Loads by the name of the server in the row, Cordwood's first."""
    subjects: dict[str, Callable[[], Load]] = {
        server.label(durability): partial(load, server) for server in servers
    }
    return measure_in_turns(subjects | dict(peers or {}), runs=runs, warm_up=warm_up)


def figure_row(
    title: str,
    durability: str,
    unit: str,
    figures: Mapping[str, Sequence[float]],
    *,
    judge: str | None = None,
    ratio: float | None = None,
    is_lower_better: bool = False,
    note: str = "",
) -> Row:
    """A row of figures by name, including Cordwood's, judged by the ratio to `judge`, if any."""
    others = {name: samples(name, values) for name, values in figures.items() if name != CORDWOOD}
    judging = None if judge is None else others.pop(judge, None)
    return Row(
        title=title,
        durability=durability,
        unit=unit,
        cordwood=samples(CORDWOOD, figures[CORDWOOD]),
        limit=judging,
        peers=tuple(others.values()),
        target=None if judging is None or ratio is None else Target(bound=ratio, is_ratio=True),
        is_lower_better=is_lower_better,
        note=note,
    )


def load_row(
    title: str,
    durability: str,
    unit: str,
    loads: Mapping[str, Sequence[Load]],
    figure: Callable[[Load], float],
    *,
    judge: str | None = None,
    ratio: float | None = None,
    note: str = "",
) -> Row:
    figures = {name: [figure(load) for load in each] for name, each in loads.items()}
    return figure_row(title, durability, unit, figures, judge=judge, ratio=ratio, note=note)


def cpu_rows(title: str, durability: str, loads: Mapping[str, Sequence[Load]]) -> list[Row]:
    """Processor time of the server per million records; no row if the system has no figures."""
    known = {
        name: [load.cpu_s_per_million for load in each if load.cpu_s_per_million is not None]
        for name, each in loads.items()
    }
    figures = {name: values for name, values in known.items() if values}
    if CORDWOOD not in figures:
        return []
    return [
        figure_row(
            f"{title}, server's CPU",
            durability,
            "s/M records",
            figures,
            is_lower_better=True,
        )
    ]

"""``script/cluster``: a cluster of processes on loopback that goes on after the command ended.

    DIR/cluster.json           what runs: see `ClusterState`
    DIR/controller-3000/       a controller: its configuration, its log, its data
    DIR/kafka-100/             a broker of Kafka
    DIR/broker-1/              a broker of ours

`start` formats what is new, starts what does not run and returns once every process serves
requests. `stop` ends brokers first, as an operator would. A process is only ever signalled if it is
the one that was started: its id and the moment of its start must both be known.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from cordwood.clock import SystemClock
from cordwood.cluster.control.controller_setup import ControllerNode, ControllerSetup
from cordwood.errors import CordwoodError
from cordwood.format.small_files.partition_metadata import (
    decode_topic_id,
    encode_topic_id,
    new_topic_id,
)
from cordwood.log.topics.directory_format import format_directories
from cordwood.storage.files import RealFileSystem
from interop.kafka_peer import KafkaFailedError, KafkaTools, KafkaUnavailableError, free_ports

STATE: Final = "cluster.json"
DEFAULT_DIR: Final = "build/cluster"
HOST: Final = "127.0.0.1"
FIRST_CONTROLLER: Final = 3000
FIRST_KAFKA_BROKER: Final = 100
START_S: Final = 90.0
STOP_S: Final = 40.0

_CONTROLLER_JVM: Final = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_BROKER_JVM: Final = ("-Xms128m", "-Xmx512m", "-XX:+UseG1GC", "-Djava.awt.headless=true")
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


class ClusterFailedError(Exception):
    """The cluster cannot be started or stopped; the message says why."""


@dataclass
class Node:
    """One process. `kind` is controller, kafka or broker. `began` is its start, as Linux has it."""

    kind: str
    node_id: int
    port: int
    directory: str
    directory_id: str = ""
    pid: int = 0
    began: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.node_id}"

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        return Path(self.directory, "server.log")

    @property
    def is_running(self) -> bool:
        return bool(self.pid) and _began(self.pid) == self.began

    @property
    def is_reachable(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex((HOST, self.port)) == 0


@dataclass
class ClusterState:
    """Everything that `status` and `stop` must know. Written to `cluster.json` at each change."""

    directory: str
    cluster_id: str
    nodes: list[Node] = field(default_factory=list)

    def of(self, *kinds: str) -> Iterator[Node]:
        return (node for node in self.nodes if node.kind in kinds)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.of("broker", "kafka"))

    def setup(self) -> ControllerSetup:
        return ControllerSetup(
            cluster_id=self.cluster_id,
            nodes=tuple(
                ControllerNode(
                    node_id=node.node_id,
                    host=HOST,
                    port=node.port,
                    directory_id=decode_topic_id(node.directory_id),
                )
                for node in self.of("controller")
            ),
        )

    def save(self) -> None:
        path = Path(self.directory, STATE)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self), indent=2) + "\n")
        new.replace(path)

    @classmethod
    def load(cls, directory: Path) -> ClusterState | None:
        try:
            found = json.loads((directory / STATE).read_text())
        except FileNotFoundError:
            return None
        return cls(found["directory"], found["cluster_id"], [Node(**n) for n in found["nodes"]])


def _began(pid: int) -> str:
    """When a process was started, in ticks since the machine was; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    state, *fields = text.rpartition(")")[2].split()
    return "" if state == "Z" else fields[18]


# --- start ------------------------------------------------------------------------------------


def planned(directory: Path, *, controllers: int, kafka: int, brokers: int) -> ClusterState:
    """A new cluster: ids and ports."""
    counts = {"controller": controllers, "kafka": kafka, "broker": brokers}
    first = {"controller": FIRST_CONTROLLER, "kafka": FIRST_KAFKA_BROKER, "broker": 1}
    ports = iter(free_ports(sum(counts.values())))
    state = ClusterState(str(directory), encode_topic_id(new_topic_id()))
    for kind, count in counts.items():
        for at in range(count):
            node = Node(kind, first[kind] + at, next(ports), "", encode_topic_id(new_topic_id()))
            node.directory = str(directory / node.name)
            state.nodes.append(node)
    return state


def start(state: ClusterState, tools: KafkaTools, settings: Sequence[str]) -> None:
    """Start what does not run: controllers, then brokers, each kind together."""
    state.save()
    for kinds in (("controller",), ("kafka", "broker")):
        nodes = [node for node in state.of(*kinds) if not node.is_running]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: _format(state, tools, node), nodes))
        for node in nodes:
            _launch(state, tools, node, settings)
        for node in nodes:
            _await(node)


def _format(state: ClusterState, tools: KafkaTools, node: Node) -> None:
    """Write the configuration, and format the data directory if it is new."""
    os.makedirs(node.directory, exist_ok=True)
    data = os.path.join(node.directory, "data")
    if node.kind == "broker":
        format_directories(
            RealFileSystem(),
            [data],
            node_id=node.node_id,
            cluster_id=state.cluster_id,
            clock=SystemClock(),
        )
        return
    config = os.path.join(node.directory, "server.properties")
    setup = state.setup()
    if node.kind == "controller":
        own = next(each for each in setup.nodes if each.node_id == node.node_id)
        Path(config).write_text(setup.properties(own, data))
        arguments = setup.format_arguments(config)
    else:
        Path(config).write_text(_kafka_properties(state, node, data))
        identity = [f"--cluster-id={state.cluster_id}", f"--config={config}"]
        arguments = ["format", *identity, "--no-initial-controllers"]
    if not os.path.exists(os.path.join(data, "meta.properties")):
        tools.run("kafka.tools.StorageTool", *arguments)


def _kafka_properties(state: ClusterState, node: Node, data: str) -> str:
    replicas = str(min(3, len(list(state.of("broker", "kafka")))))
    properties = {
        "process.roles": "broker",
        "node.id": str(node.node_id),
        "listeners": f"PLAINTEXT://{node.address}",
        "advertised.listeners": f"PLAINTEXT://{node.address}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": state.setup().bootstrap,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": data,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
    }
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def _command(
    state: ClusterState, tools: KafkaTools, node: Node, settings: Sequence[str]
) -> list[str]:
    if node.kind != "broker":
        logging = Path(node.directory, "log4j2.properties")
        logging.write_text(_LOGGING.format(path=node.log))
        jvm = _CONTROLLER_JVM if node.kind == "controller" else _BROKER_JVM
        return tools.command(
            "kafka.Kafka",
            Path(node.directory, "server.properties"),
            jvm_options=(*jvm, f"-Dlog4j2.configurationFile={logging}"),
        )
    replicas = min(3, len(list(state.of("broker", "kafka"))))
    keys = (
        "process.roles=broker",
        f"node.id={node.node_id}",
        f"controller.quorum.bootstrap.servers={state.setup().bootstrap}",
        "controller.listener.names=CONTROLLER",
        f"offsets.topic.replication.factor={replicas}",
        f"transaction.state.log.replication.factor={replicas}",
        *settings,
    )
    cordwood = os.path.join(os.path.dirname(sys.executable), "cordwood")
    address = ("--host", HOST, "--port", str(node.port))
    data = ("--dir", os.path.join(node.directory, "data"))
    return [cordwood, "serve", *data, *address, *(f"--set={key}" for key in keys)]


def _launch(state: ClusterState, tools: KafkaTools, node: Node, settings: Sequence[str]) -> None:
    command = _command(state, tools, node, settings)
    node.log.unlink(missing_ok=True)
    console = node.log if node.kind == "broker" else Path(node.directory, "console.log")
    with open(console, "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # it goes on when this command ends
        )
    node.pid, node.began = process.pid, _began(process.pid)
    state.save()


def _await(node: Node) -> None:
    """Wait until the process serves requests: a controller, its log says; a broker, it listens."""
    deadline_s = time.monotonic() + START_S
    while not _is_ready(node):
        if not node.is_running:
            raise ClusterFailedError(f"{node.name} ended while it started\n{_tail(node)}")
        if time.monotonic() > deadline_s:
            raise ClusterFailedError(f"{node.name} was not ready in {START_S} s\n{_tail(node)}")
        time.sleep(0.1)


def _is_ready(node: Node) -> bool:
    if node.kind == "broker":
        return node.is_reachable
    return node.log.exists() and "Kafka Server started" in node.log.read_text(errors="replace")


def _tail(node: Node) -> str:
    files = (node.log, Path(node.directory, "console.log"))
    lines = (line for file in files if file.exists() for line in file.open(errors="replace"))
    return "".join(list(lines)[-30:])


# --- status and stop --------------------------------------------------------------------------


def described(state: ClusterState) -> dict[str, Any]:
    return {
        "cluster_id": state.cluster_id,
        "directory": state.directory,
        "bootstrap_servers": state.bootstrap_servers,
        "controllers": state.setup().bootstrap,
        "nodes": [
            {
                "name": node.name,
                "kind": node.kind,
                "node_id": node.node_id,
                "address": node.address,
                "pid": node.pid if node.is_running else None,
                "is_running": node.is_running,
                "is_reachable": node.is_running and node.is_reachable,
                "directory": node.directory,
                "data": os.path.join(node.directory, "data"),
                "log": str(node.log),
            }
            for node in state.nodes
        ],
    }


def stop(state: ClusterState) -> None:
    """Brokers first, so that they leave in order; what does not end in time is killed."""
    for kinds in (("broker", "kafka"), ("controller",)):
        nodes = [node for node in state.of(*kinds) if node.is_running]
        for node in nodes:
            os.kill(node.pid, signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_S
        while any(node.is_running for node in nodes) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        for node in nodes:
            if node.is_running:
                print(f"{node.name} does not stop; it is killed", file=sys.stderr)
                os.kill(node.pid, signal.SIGKILL)
    for node in state.nodes:
        node.pid, node.began = 0, ""
    state.save()


# --- the command ------------------------------------------------------------------------------


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/cluster", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("start", help="start a cluster, or go on with one that stopped")
    showing = commands.add_parser("status", help="show the processes")
    stopping = commands.add_parser("stop", help="stop the processes; the data stays")
    for each in (starting, showing, stopping):
        each.add_argument("--dir", default=DEFAULT_DIR, help=f"default: {DEFAULT_DIR}")
    for name, default in (("brokers", 3), ("controllers", 3), ("kafka-brokers", 0)):
        starting.add_argument(f"--{name}", type=int, default=None, help=f"default: {default}")
    starting.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a key of our brokers"
    )
    for each in (starting, showing):
        each.add_argument("--json", action="store_true")
    stopping.add_argument("--delete", action="store_true", help="delete the directory, too")
    return parser.parse_args(given)


def _start(arguments: argparse.Namespace, directory: Path) -> ClusterState:
    wanted = {
        "controller": arguments.controllers,
        "kafka": arguments.kafka_brokers,
        "broker": arguments.brokers,
    }
    state = ClusterState.load(directory)
    if state is None:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ClusterFailedError(f"{directory} is not empty; choose another --dir")
        defaults = {"controller": 3, "kafka": 0, "broker": 3}
        counts = {
            kind: default if wanted[kind] is None else wanted[kind]
            for kind, default in defaults.items()
        }
        if counts["controller"] < 1:
            raise ClusterFailedError("--controllers must be at least 1")
        state = planned(
            directory,
            controllers=counts["controller"],
            kafka=counts["kafka"],
            brokers=counts["broker"],
        )
    for kind, count in wanted.items():
        found = len(list(state.of(kind)))
        if count is not None and count != found:
            raise ClusterFailedError(
                f"the cluster in {directory} has {found} of {kind}, not {count}; "
                "stop it with --delete, or choose another --dir"
            )
    try:
        start(state, KafkaTools.find(), arguments.set)
    except BaseException:
        stop(state)
        raise
    return state


def _print(state: ClusterState, *, as_json: bool) -> None:
    found = described(state)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"cluster {found['cluster_id']} in {found['directory']}")
    print(f"bootstrap servers {found['bootstrap_servers'] or '(none)'}")
    for node in found["nodes"]:
        what = f"process {node['pid']}" if node["is_running"] else "stopped"
        print(f"  {node['name']:16} {node['address']:18} {what:16} {node['directory']}")


def main(given: Sequence[str]) -> int:
    arguments = _arguments(given)
    directory = Path(arguments.dir).resolve()
    try:
        if arguments.command == "start":
            _print(_start(arguments, directory), as_json=arguments.json)
            return 0
        state = ClusterState.load(directory)
        if state is None:
            raise ClusterFailedError(f"no cluster in {directory}; start one with script/cluster")
        if arguments.command == "status":
            _print(state, as_json=arguments.json)
            return 0 if all(node.is_running for node in state.nodes) else 3
        stop(state)
        if arguments.delete:
            shutil.rmtree(directory)
        return 0
    except (
        ClusterFailedError,
        KafkaFailedError,
        KafkaUnavailableError,
        CordwoodError,
        OSError,
    ) as error:
        print(f"script/cluster: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

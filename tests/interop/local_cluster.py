"""``script/cluster``: a cluster of processes on loopback that goes on after the command ended.

    DIR/cluster.json           what it consists of, see `local_nodes`
    DIR/controller-3000/       a controller: its configuration, its log, its data
    DIR/kafka-100/             a broker of Kafka
    DIR/broker-1/              a broker of ours

`start` formats what is new, starts what does not run and returns once every broker may lead. It may
be interrupted or killed at any point, and repeated: what runs stays. `stop` ends brokers first, as
an operator would.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from cordwood.clock import SystemClock
from cordwood.errors import CordwoodError
from cordwood.format.small_files.partition_metadata import encode_topic_id, new_topic_id
from cordwood.log.topics.directory_format import format_directories
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.remote_operations import RemoteOperations
from cordwood.storage.files import RealFileSystem
from interop.kafka_peer import KafkaFailedError, KafkaTools, KafkaUnavailableError, free_ports
from interop.local_nodes import HOST, STATE, ClusterFailedError, ClusterState, Node

DEFAULT_DIR: Final = Path(__file__).resolve().parents[2] / "build" / "cluster"
FIRST_CONTROLLER: Final = 3000
FIRST_KAFKA_BROKER: Final = 100
START_S: Final = 120.0
STOP_S: Final = 40.0
_LOCK: Final = "lock"

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


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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
    """Start what does not run: controllers, then brokers, each kind together.

    If a node cannot start, those that were started now are ended; what ran before stays.
    """
    launched: list[Node] = []
    try:
        for kinds in (("controller",), ("kafka", "broker")):
            idle = [node for node in state.of(*kinds) if not node.is_running]
            _find_ports(idle)
            state.save()
            if idle:
                _say(f"starting {', '.join(node.name for node in idle)}")
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda node: _format(state, tools, node), idle))
            for node in idle:
                launched.append(node)
                _launch(state, tools, node, settings)
            for node in state.of(*kinds):
                _await(node, is_new=node in idle)
        _await_brokers(state)
    except BaseException:
        end(launched)
        raise


def _find_ports(nodes: Sequence[Node]) -> None:
    """A broker whose port was taken meanwhile gets another; controllers cannot move."""
    for node in nodes:
        if node.is_port_free:
            continue
        if node.kind == "controller":
            raise ClusterFailedError(
                f"port {node.port} of {node.name} is used by another process, and the other nodes "
                "know the controller there; end that process, or start a new cluster in another "
                "--dir"
            )
        old = node.port
        [node.port] = free_ports(1)
        _say(f"port {old} of {node.name} is used by another process; it gets {node.port}")


def _format(state: ClusterState, tools: KafkaTools, node: Node) -> None:
    """Write the configuration, and format the data directory if it is new."""
    os.makedirs(node.directory, exist_ok=True)
    if node.kind == "broker":
        format_directories(
            RealFileSystem(),
            [node.data],
            node_id=node.node_id,
            cluster_id=state.cluster_id,
            clock=SystemClock(),
        )
        return
    config = os.path.join(node.directory, "server.properties")
    setup = state.setup()
    if node.kind == "controller":
        own = next(each for each in setup.nodes if each.node_id == node.node_id)
        Path(config).write_text(setup.properties(own, node.data))
        arguments = setup.format_arguments(config)
    else:
        Path(config).write_text(_kafka_properties(state, node))
        identity = [f"--cluster-id={state.cluster_id}", f"--config={config}"]
        arguments = ["format", *identity, "--no-initial-controllers"]
    if not os.path.exists(os.path.join(node.data, "meta.properties")):
        shutil.rmtree(node.data, ignore_errors=True)  # an interrupted formatting
        tools.run("kafka.tools.StorageTool", *arguments)


def _kafka_properties(state: ClusterState, node: Node) -> str:
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
        "log.dirs": node.data,
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
            jvm_options=(*jvm, f"-Dlog4j2.configurationFile={logging.as_uri()}"),
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
    return [cordwood, "serve", "--dir", node.data, *address, *(f"--set={key}" for key in keys)]


def _launch(state: ClusterState, tools: KafkaTools, node: Node, settings: Sequence[str]) -> None:
    command = _command(state, tools, node, settings)
    node.log.unlink(missing_ok=True)
    console = node.log if node.kind == "broker" else Path(node.directory, "console.log")
    node.launch(command, console)


def _await(node: Node, *, is_new: bool) -> None:
    """Wait until the process serves requests: a controller, its log says; a broker, it listens."""
    deadline_s = time.monotonic() + START_S
    while not _is_ready(node):
        if node.has_ended if is_new else not node.is_running:
            raise ClusterFailedError(f"{node.name} ended while it started\n{node.tail()}")
        if time.monotonic() > deadline_s:
            raise ClusterFailedError(f"{node.name} was not ready in {START_S} s\n{node.tail()}")
        time.sleep(0.1)


def _is_ready(node: Node) -> bool:
    if node.kind == "broker":
        return node.is_reachable
    return node.log.exists() and "Kafka Server started" in node.log.read_text(errors="replace")


def _await_brokers(state: ClusterState) -> None:
    """Wait until the controllers let every broker lead: topics can be created then."""
    nodes = list(state.of("broker", "kafka"))
    deadline_s = time.monotonic() + START_S
    missing = {node.node_id for node in nodes}
    while missing:
        with contextlib.suppress(CordwoodError):
            with RemoteCluster([(HOST, node.port) for node in nodes]) as cluster:
                found = RemoteOperations(cluster).brokers()
            missing -= {broker.node_id for broker in found if not broker.is_fenced}
        for node in nodes:
            if node.node_id in missing and not node.is_running:
                raise ClusterFailedError(f"{node.name} ended while it joined\n{node.tail()}")
        if missing and time.monotonic() > deadline_s:
            names = ", ".join(node.name for node in nodes if node.node_id in missing)
            raise ClusterFailedError(f"{names} could not join the cluster in {START_S} s")
        if missing:
            time.sleep(0.2)


# --- status and stop --------------------------------------------------------------------------


def described(state: ClusterState) -> dict[str, Any]:
    nodes = []
    for node in state.nodes:
        pid = node.pid
        nodes.append(
            {
                "name": node.name,
                "kind": node.kind,
                "node_id": node.node_id,
                "address": node.address,
                "pid": pid or None,
                "is_running": bool(pid),
                "is_reachable": bool(pid) and node.is_reachable,
                "directory": node.directory,
                "data": node.data,
                "log": str(node.log),
            }
        )
    return {
        "cluster_id": state.cluster_id,
        "directory": state.directory,
        "bootstrap_servers": state.bootstrap_servers,
        "controllers": state.setup().bootstrap,
        "nodes": nodes,
    }


def end(nodes: Sequence[Node]) -> None:
    """Brokers first, so that they leave in order; what does not end in time is killed."""
    for kinds in (("broker", "kafka"), ("controller",)):
        running = [node for node in nodes if node.kind in kinds and node.is_running]
        for node in running:
            _signal(node, signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_S
        while any(node.is_running for node in running) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        for node in running:
            if node.is_running:
                _say(f"{node.name} does not stop; it is killed")
                _signal(node, signal.SIGKILL)


def _signal(node: Node, number: signal.Signals) -> None:
    pid = node.pid
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)  # one that was paused must notice


# --- the command ------------------------------------------------------------------------------


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/cluster", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("start", help="start a cluster, or go on with one that stopped")
    showing = commands.add_parser("status", help="show the processes; exit code 3 if one is gone")
    stopping = commands.add_parser("stop", help="stop the processes; the data stays")
    for each in (starting, showing, stopping):
        each.add_argument("--dir", default=DEFAULT_DIR, help="default: build/cluster here")
    for name, default in (("brokers", 3), ("controllers", 3), ("kafka-brokers", 0)):
        starting.add_argument(f"--{name}", type=int, default=None, help=f"default: {default}")
    starting.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a key of our brokers"
    )
    for each in (starting, showing):
        each.add_argument("--json", action="store_true")
    stopping.add_argument("--delete", action="store_true", help="delete the directory, too")
    return parser.parse_args(given)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One start or stop at a time. The lock ends with this process, however it ends."""
    with open(directory / _LOCK, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another script/cluster works on it; waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _start(arguments: argparse.Namespace, directory: Path) -> ClusterState:
    tools = KafkaTools.find()  # before anything is written
    wanted = {
        "controller": arguments.controllers,
        "kafka": arguments.kafka_brokers,
        "broker": arguments.brokers,
    }
    for kind, count in wanted.items():
        if count is not None and not 0 <= count <= 99:
            raise ClusterFailedError(f"{count} of {kind}: must be 0 to 99")
    if arguments.controllers == 0:
        raise ClusterFailedError("--controllers must be at least 1")
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / STATE).exists() and {*os.listdir(directory)} - {_LOCK}:
        raise ClusterFailedError(f"{directory} is not empty; choose another --dir")
    with _locked(directory):
        state = ClusterState.load(directory) or _planned(directory, wanted)
        for kind, count in wanted.items():
            found = len(list(state.of(kind)))
            if count is not None and count != found:
                raise ClusterFailedError(
                    f"the cluster in {directory} has {found} of {kind}, not {count}; "
                    "stop it with --delete, or choose another --dir"
                )
        start(state, tools, arguments.set)
    return state


def _planned(directory: Path, wanted: dict[str, int | None]) -> ClusterState:
    defaults = {"controller": 3, "kafka": 0, "broker": 3}
    counts = {
        kind: default if (count := wanted[kind]) is None else count
        for kind, default in defaults.items()
    }
    return planned(
        directory,
        controllers=counts["controller"],
        kafka=counts["kafka"],
        brokers=counts["broker"],
    )


def _stop(state: ClusterState, directory: Path, *, is_deleted: bool) -> None:
    with _locked(directory):
        end(state.nodes)
        if is_deleted:
            shutil.rmtree(directory)


def _print(state: ClusterState, *, as_json: bool) -> bool:
    """Whether all of it runs."""
    found = described(state)
    is_whole = all(node["is_running"] for node in found["nodes"])
    if as_json:
        print(json.dumps(found, indent=2))
        return is_whole
    print(f"cluster {found['cluster_id']} in {found['directory']}")
    print(f"bootstrap servers {found['bootstrap_servers'] or '(none)'}")
    for node in found["nodes"]:
        what = f"process {node['pid']}" if node["is_running"] else "stopped"
        print(f"  {node['name']:16} {node['address']:18} {what:16} {node['directory']}")
    return is_whole


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
            return 0 if _print(state, as_json=arguments.json) else 3
        _stop(state, directory, is_deleted=arguments.delete)
        return 0
    except KeyboardInterrupt:
        _say("script/cluster: interrupted; what it started was ended")
        return 130
    except (
        ClusterFailedError,
        KafkaFailedError,
        KafkaUnavailableError,
        CordwoodError,
        OSError,
    ) as error:
        _say(f"script/cluster: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The set-up of the cluster suite: a local cluster with brokers of two kinds, and their topics.

A topic is on the three brokers of one kind. Our brokers run with `log.durability=os`, so that a
topic means the same to both kinds: without a key a record is acknowledged once the operating
systems of the replicas have it, with `flush.messages=1` once it is on their disks.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from bench.broker_producers import ClientSettings, Workload, librdkafka_work
from bench.broker_servers import DISK, OS, find_kafka
from bench.broker_stage import CORDWOOD, Load
from bench.measure import Context
from bench.peer_process import ServerFailedError
from bench.process_tree import tree_cpu_seconds
from bench.workload import fresh_path
from cordwood.errors import CordwoodError
from cordwood.quantities import KIB, MIB
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.remote_operations import RemoteOperations, RemotePartition
from interop.kafka_peer import KafkaTools, KafkaUnavailableError, kafka_version
from interop.local_cluster import planned, start, start_again
from interop.local_nodes import HOST, ClusterState, Node

BROKERS: Final = 3  # of each kind; a topic has a replica on each
MIN_IN_SYNC: Final = 2

_PATIENCE_S: Final = 120.0
_STEP_S: Final = 0.02
_WARM_UP_S: Final = 30.0  # three Java servers share the cores
_WARM_UP_QUICK_S: Final = 12.0
_SETTINGS: Final = ("log.durability=os",)
# Kafka takes the delay of deletions from the broker, not from the topic. See `broker_servers`.
_KAFKA_SETTINGS: Final = {
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "1000",
}

_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The three brokers of one kind."""

    name: str
    nodes: tuple[Node, ...]

    @property
    def ids(self) -> list[int]:
        return [node.node_id for node in self.nodes]

    @property
    def client(self) -> ClientSettings:
        """Settings of every librdkafka client. Errors are raised, so nothing is logged."""
        servers = ",".join(node.address for node in self.nodes)
        return {"bootstrap.servers": servers, "log_level": 0}

    def label(self, durability: str) -> str:
        if self.name == CORDWOOD:
            return self.name
        return f"{self.name}, {'default' if durability == OS else 'flush.messages=1'}"

    def cpu_seconds(self) -> float | None:
        """Processor time of all its brokers so far; None if one of them is unknown."""
        used = [tree_cpu_seconds(node.pid) for node in self.nodes]
        known = [each for each in used if each is not None]
        return sum(known) if len(known) == len(used) else None

    def timed(self, work: Callable[[], tuple[int, int]]) -> Load:
        """Time `work`, which returns the number of records and value bytes."""
        before, started = self.cpu_seconds(), time.perf_counter()
        records, value_bytes = work()
        seconds, after = time.perf_counter() - started, self.cpu_seconds()
        return Load(
            records=records,
            value_bytes=value_bytes,
            seconds=seconds,
            server_cpu_s=None if before is None or after is None else after - before,
        )

    def partitions(self, topic: str) -> list[RemotePartition]:
        """The partitions as one of its brokers knows them; empty while it does not."""
        addresses = [(HOST, node.port) for node in self.nodes]
        with suppress(CordwoodError, OSError), RemoteCluster(addresses) as cluster:
            return RemoteOperations(cluster).partitions([topic])
        return []


def assignment(ids: Sequence[int], partitions: int, *, last: int | None = None) -> list[list[int]]:
    """The replicas of each partition, its leader first. `last` leads none."""
    leaders = [each for each in ids if each != last]
    return [
        [leader, *(each for each in ids if each != leader)]
        for leader in (leaders[number % len(leaders)] for number in range(partitions))
    ]


class ClusterStage:
    """The cluster of one run. It starts at the first call, and is killed at the end."""

    def __init__(self) -> None:
        self._tools: KafkaTools | None = None
        self._state: ClusterState | None = None
        self._sides: list[Side] = []
        self._absent = ""
        self._is_warm = False

    def sides(self, context: Context) -> list[Side]:
        """The same at each call, ours first. Empty if there is no Kafka."""
        sides = self.cold_sides(context)
        if not self._is_warm:
            self._is_warm = True
            for side in sides:
                _warm_up(side, seconds=_WARM_UP_QUICK_S if context.is_quick else _WARM_UP_S)
        return sides

    def cold_sides(self, context: Context) -> list[Side]:
        """The same before anything was produced. The controllers are Kafka's, too."""
        if self._absent or self._sides:
            return self._sides
        try:
            self._tools = find_kafka()
        except KafkaUnavailableError as error:
            self._absent = str(error)
            context.facts["kafka"] = f"skipped: {error}"
            context.say(f"skipped: a cluster needs Kafka's controllers: {error}")
            return []
        directory = fresh_path(context.directory, "cluster")
        directory.mkdir()
        state = planned(directory, controllers=1, kafka=BROKERS, brokers=BROKERS)
        context.resources.callback(_kill_all, state)
        self._state = state
        self.restore()
        kafka = f"Kafka {kafka_version()}"
        context.facts["kafka"] = f"{kafka_version()}, heap at most 512 MiB"
        context.facts["cluster"] = f"1 controller, {BROKERS} brokers of each kind, on all cores"
        self._sides = [
            Side(name=CORDWOOD, nodes=tuple(state.of("broker"))),
            Side(name=kafka, nodes=tuple(state.of("kafka"))),
        ]
        return self._sides

    def judge(self, durability: str) -> str:
        """The name of Kafka in a row of that durability."""
        return self._sides[1].label(durability)

    def restore(self) -> None:
        """Start brokers that do not run, and return when all may lead."""
        assert self._state is not None
        assert self._tools is not None
        start(self._state, self._tools, _SETTINGS, kafka_settings=_KAFKA_SETTINGS)

    def start_again(self, node: Node) -> None:
        """Start a broker that was stopped, and return at once."""
        assert self._state is not None
        assert self._tools is not None
        start_again(self._state, self._tools, node, _SETTINGS)


def kill(node: Node) -> None:
    """As `kill -9` does."""
    if pid := node.pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def await_end(node: Node) -> None:
    _await(lambda: not node.is_running, f"{node.name} did not end")


def _kill_all(state: ClusterState) -> None:
    """Brokers need not leave in order, because their data is removed."""
    for node in state.nodes:
        kill(node)
    for node in state.nodes:
        await_end(node)


# --- topics -----------------------------------------------------------------------------------


@contextmanager
def new_topic(
    side: Side, durability: str, *, partitions: int = 1, last: Node | None = None
) -> Iterator[str]:
    """A topic on all brokers of a side, deleted after the `with`. `last` leads no partition.

    After a failure all data is deleted anyway.
    """
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    topic = f"bench-{next(_numbers)}"
    replicas = assignment(side.ids, partitions, last=None if last is None else last.node_id)
    config = {"min.insync.replicas": str(MIN_IN_SYNC), "file.delete.delay.ms": "100"}
    if durability == DISK:
        config["flush.messages"] = "1"
    admin = AdminClient(side.client)
    wanted = NewTopic(topic, partitions, replica_assignment=replicas, config=config)
    admin.create_topics([wanted])[topic].result(_PATIENCE_S)
    await_in_sync(side, topic, partitions=partitions)
    _produce_once(side, topic, partitions=partitions)
    yield topic
    admin.delete_topics([topic])[topic].result(_PATIENCE_S)
    # Deleting a gigabyte would disturb the next sample.
    _await(
        lambda: not any(file for node in side.nodes for file in Path(node.data).glob(f"{topic}-*")),
        f"{side.name} did not delete {topic}",
    )


def _produce_once(side: Side, topic: str, *, partitions: int) -> None:
    """Return when every follower fetches.

    A follower that asks before its leader knows the topic tries again after a second, with both
    kinds (`replica.fetch.backoff.ms`). That second is no part of a sample.
    """
    from confluent_kafka import Producer

    producer = Producer({**side.client, "acks": "all"})
    for partition in range(partitions):
        producer.produce(topic, b"", partition=partition)
    if producer.flush(_PATIENCE_S):
        raise ServerFailedError(f"{topic} of {side.name} accepts no records")


def await_in_sync(side: Side, topic: str, *, partitions: int) -> None:
    """Return when every partition has a leader and all its replicas are in sync."""

    def is_whole() -> bool:
        found = side.partitions(topic)
        return len(found) == partitions and all(
            each.leader >= 0 and len(each.in_sync) == BROKERS for each in found
        )

    _await(is_whole, f"the replicas of {topic} on {side.name} did not get in sync")


def _await(is_so: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise ServerFailedError(f"{otherwise} in {_PATIENCE_S:.0f} s")
        time.sleep(_STEP_S)


def _warm_up(side: Side, *, seconds: float) -> None:
    """Run until a Java server has compiled the code that the rows use; the same for all."""
    work = Workload(value_size=KIB, records=16 * MIB // KIB)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with new_topic(side, OS, partitions=BROKERS) as topic:
            librdkafka_work(side.client, topic, work, partitions=BROKERS)()

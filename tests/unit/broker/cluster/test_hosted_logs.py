"""The logs that a broker has, as the images of its cluster say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest

from cordwood.broker.cluster.replicas.hosted_logs import HostedLogs
from cordwood.broker.cluster.replicas.replica_places import ReplicaPlaces
from cordwood.broker.dynamic_configs import DynamicConfigs
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.records.log_watch import LogWatch
from cordwood.cluster.image.metadata_image import ConfigResource, MetadataImage, TopicImage
from cordwood.cluster.replication.node_replicas import NodeReplicas
from cordwood.cluster.replication.replication_ports import NodePorts
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.topics.topic import Topic
from cordwood.log.topics.topic_hosting import HostedTopic
from cordwood.quantities import Offset
from fakes.handler_calls import CONFIG
from fakes.replication_bench import ME, ReplicationBench, partition
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, log_of, open_store

WAIT_S = 20.0


class HostingBench:
    """Node 1, whose store is real; the ports of its replicas are those of a bench."""

    def __init__(self) -> None:
        self.ports = ReplicationBench()
        self.store = open_store(SimulatedFileSystem(), role=AMONG_OTHERS)
        self.dynamic = DynamicConfigs(self.store, replace(CONFIG, node_id=ME))
        self.loop = EventLoop("hosting")
        self.replicas = NodeReplicas(
            NodePorts(
                node_id=ME,
                control=self.ports,
                disk=self.ports,
                transport=self.ports,
                scheduler=self.ports.scheduler,
                listener=self.ports,
            )
        )
        self.hosted = HostedLogs(
            self.store,
            self.replicas,
            node_id=ME,
            loop=self.loop,
            watch=LogWatch(self.loop),
            log_moved=lambda replica: replica.log_moved(),
            places=ReplicaPlaces({DATA: UUID(int=1)}, node_id=ME, assign=lambda *_: None),
            follow_settings=self.dynamic.follow,
            note_unsynced=self.note_unsynced,
        )
        self.promises: list[str] = []  # what existing topics promised when it was noted
        self.image = MetadataImage(brokers=self.ports.brokers)
        self.loop.start()

    def apply(self, *, topics: int = 1, **configs: dict[str, str]) -> None:
        """Apply an image, and wait until it is carried out."""
        resources: dict[str, ConfigResource] = {"orders": (2, "orders"), "brokers": (4, "")}
        self.image = replace(
            self.image,
            end=Offset(self.image.end + 1),
            topics={
                UUID(int=8 + number): TopicImage(
                    name="orders" if not number else f"orders{number}",
                    topic_id=UUID(int=8 + number),
                    partitions={0: partition(ME, 1)},
                )
                for number in range(topics)
            },
            configs={resources[name]: given for name, given in configs.items()},
        )
        self.wait(partial(self.hosted.apply, self.image))

    def wait(self, begin: Callable[[Callable[[], None]], None]) -> None:
        is_done = threading.Event()
        self.loop.call_soon(lambda: begin(is_done.set))
        assert is_done.wait(WAIT_S)

    def note_unsynced(self) -> None:
        topic = self.store.registry.find("orders")
        self.promises.append("" if topic is None else topic.config.durability)

    def min_in_sync(self) -> int:
        return log_of(self.store, "orders").config.min_insync_replicas

    def close(self) -> None:
        self.loop.stop()
        self.hosted.stop()
        self.replicas.close()
        self.store.close()
        self.ports.store.close()


@pytest.fixture
def bench() -> Iterator[HostingBench]:
    made = HostingBench()
    yield made
    made.close()


def test_a_topic_without_its_own_minimum_of_replicas_has_that_of_all_brokers(
    bench: HostingBench,
) -> None:
    bench.apply(brokers={"min.insync.replicas": "2"})
    assert bench.min_in_sync() == 2

    bench.apply(brokers={"min.insync.replicas": "3"})
    assert bench.min_in_sync() == 3

    bench.apply(brokers={"min.insync.replicas": "3"}, orders={"min.insync.replicas": "1"})
    assert bench.min_in_sync() == 1

    bench.apply()
    assert bench.min_in_sync() == 1


def test_the_minimum_of_all_brokers_is_in_force_when_a_replica_gets_its_first_role(
    bench: HostingBench,
) -> None:
    bench.apply(brokers={"min.insync.replicas": "2"})

    [replica] = bench.hosted.replicas()

    assert replica.leader is not None
    assert replica.leader.min_in_sync == 2


def test_a_topic_that_cannot_be_opened_for_any_reason_holds_up_no_other(
    bench: HostingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = bench.store.hosting.host

    def fails_for_orders(wanted: HostedTopic) -> Topic[PartitionLog]:
        if wanted.name == "orders":
            raise ValueError("a bug")
        return host(wanted)

    monkeypatch.setattr(bench.store.hosting, "host", fails_for_orders)

    bench.apply(topics=2)

    assert [replica.site.log.topic for replica in bench.hosted.replicas()] == ["orders1"]


def test_that_records_count_before_they_are_synced_is_noted_before_they_do(
    bench: HostingBench,
) -> None:
    bench.apply()
    assert bench.promises == []

    bench.apply(brokers={"cordwood.topic.orders.durability": "os"})
    assert bench.promises == ["disk"]
    bench.apply()
    bench.apply(brokers={"log.durability": "os"})

    assert bench.promises[1] == "disk"
    assert log_of(bench.store, "orders").config.durability == "os"


def test_each_topic_that_is_opened_is_a_step(bench: HostingBench) -> None:
    bench.apply()
    before = bench.hosted.steps

    bench.apply(topics=4)

    assert bench.hosted.steps >= before + 3

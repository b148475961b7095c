"""Which replicas move, in which order, and what ends a move."""

from __future__ import annotations

from uuid import UUID

import pytest

from cordwood.broker.cluster.replicas.copy_turns import COPIES_MAX
from cordwood.broker.cluster.replicas.replica_moves import ReplicaMoves
from cordwood.cluster.image.metadata_image import MetadataImage, TopicImage
from cordwood.cluster.replication.node_replicas import NodeReplicas
from cordwood.cluster.replication.replica_fetch import PartitionPlace
from cordwood.cluster.replication.replication_ports import NodePorts
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.topics.topic_hosting import HostedTopic
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import Offset
from fakes.replication_bench import ME, ReplicationBench, partition
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

ID = UUID(int=8)
ONE, TWO, THREE = "/one", "/two", "/three"
PARTITIONS = 4


class MovesBench:
    """Node 1 with three disks. It follows node 2 in partitions that have no records."""

    def __init__(self) -> None:
        self.ports = ReplicationBench()
        self.store = open_store(
            SimulatedFileSystem(), role=AMONG_OTHERS, directories=(ONE, TWO, THREE)
        )
        self.loop = self.ports.scheduler
        self.codes: list[ErrorCode] = []
        self.replicas = NodeReplicas(
            NodePorts(
                node_id=ME,
                control=self.ports,
                disk=self.ports,
                transport=self.ports,
                scheduler=self.loop,
                listener=self.ports,
            )
        )
        self.moves = ReplicaMoves(
            self.store.hosting.swaps,
            loop=self.loop,
            topic_name={ID: "orders"}.get,
            when_moved=self.moved,
        )
        self.moves.serve(self.replicas)
        topic = self.store.hosting.host(
            HostedTopic(
                name="orders",
                topic_id=ID,
                partitions=PARTITIONS,
                here=frozenset(range(PARTITIONS)),
                config={},
            )
        )
        for number in range(PARTITIONS):
            self.replicas.host(PartitionPlace(ID, number), topic.partition(number))
        self.follow()

    def follow(self, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
        images = {number: partition(2, 1, replicas=replicas) for number in range(PARTITIONS)}
        self.replicas.apply(
            MetadataImage(
                end=Offset(1),
                brokers=self.ports.brokers,
                topics={ID: TopicImage(name="orders", topic_id=ID, partitions=images)},
            )
        )

    def moved(self, place: PartitionPlace, log: PartitionLog) -> None:
        self.replicas.drop(place)
        self.replicas.host(place, log)

    def move(self, number: int, path: str) -> None:
        self.moves.begin(PartitionPlace(ID, number), path, self.codes.append)
        self.loop.run_ready()

    def place_of(self, number: int) -> str:
        return self.store.topic("orders").partition(number).directory.rpartition("/")[0]

    def futures(self) -> dict[str, list[int]]:
        found = self.store.directories.future_replicas()
        return {path: sorted(number for _, number in names) for path, names in found.items()}


@pytest.fixture
def bench() -> MovesBench:
    return MovesBench()


def hold_up(bench: MovesBench) -> None:
    """No copy goes on."""
    for replica in bench.replicas:
        replica.site.node.quotas.moves.limit = 0


def other_than(*paths: str) -> str:
    return next(path for path in (ONE, TWO, THREE) if path not in paths)


def test_a_replica_is_where_it_was_asked_to_be(bench: MovesBench) -> None:
    target = other_than(bench.place_of(0))

    bench.move(0, target)

    assert (bench.codes, bench.place_of(0), bench.futures()) == ([ErrorCode.none], target, {})


def test_what_is_under_way_is_shown_and_ended_by_a_request_for_where_it_is(
    bench: MovesBench,
) -> None:
    hold_up(bench)
    home = bench.place_of(0)
    target = other_than(home)

    bench.move(0, target)
    bench.move(0, target)
    assert bench.futures() == {target: [0]}
    bench.move(0, home)
    bench.loop.run_ready()

    assert bench.codes == [ErrorCode.none] * 3
    assert (bench.futures(), bench.place_of(0)) == ({}, home)


def test_the_newest_request_counts(bench: MovesBench) -> None:
    hold_up(bench)
    home = bench.place_of(0)
    first = other_than(home)
    second = other_than(home, first)

    bench.move(0, first)
    bench.move(0, second)
    bench.loop.run_ready()

    assert bench.codes == [ErrorCode.none] * 2
    assert bench.futures() == {second: [0]}


def test_moves_take_turns_and_all_of_them_end(bench: MovesBench) -> None:
    hold_up(bench)
    targets = [other_than(bench.place_of(number)) for number in range(PARTITIONS)]
    for number, target in enumerate(targets):
        bench.move(number, target)
    assert sum(map(len, bench.futures().values())) == PARTITIONS > COPIES_MAX

    for replica in bench.replicas:
        replica.site.node.quotas.moves.limit = 1 << 40
    bench.loop.advance(5)

    assert [bench.place_of(number) for number in range(PARTITIONS)] == targets
    assert bench.futures() == {}


def test_what_cannot_be_moved_is_refused(bench: MovesBench) -> None:
    bench.move(PARTITIONS, ONE)
    bench.move(0, "/nowhere")
    damaged = bench.replicas.get(PartitionPlace(ID, 1))
    assert damaged is not None
    damaged.site.log.replica._damage.first_offset = Offset(0)
    bench.move(1, other_than(bench.place_of(1)))

    assert bench.codes == [
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.kafka_storage_error,
    ]


def test_a_replica_that_is_assigned_elsewhere_does_not_move_any_more(bench: MovesBench) -> None:
    hold_up(bench)
    bench.move(0, other_than(bench.place_of(0)))

    bench.replicas.drop(PartitionPlace(ID, 0))
    bench.moves.image_changed()

    assert bench.futures() == {}


def test_after_the_end_nothing_begins(bench: MovesBench) -> None:
    hold_up(bench)
    bench.move(0, other_than(bench.place_of(0)))

    bench.moves.stop()
    bench.move(1, other_than(bench.place_of(1)))

    assert bench.futures() == {}
    assert bench.codes == [ErrorCode.none, ErrorCode.replica_not_available]

"""A broker as a member of a cluster: which replicas it counts as stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest

from cordwood.broker.cluster.cluster_member import ClusterMember
from cordwood.broker.config.cluster_config import ClusterConfig
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.outbound.outbound_target import Target
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.cluster.image.metadata_image import TopicImage
from cordwood.cluster.image.partition_image import PartitionImage
from cordwood.cluster.replication.replica_fetch import PartitionPlace
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.security.clients.client_security import PLAINTEXT
from fakes.replication_bench import ME, ReplicationBench, partition
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, open_store

ORDERS = PartitionPlace(UUID(int=8), 0)
WAIT_S = 20.0


class MemberBench:
    """Node 1 with a real store and a real loop; nobody else is there."""

    def __init__(self) -> None:
        self.control = ReplicationBench()
        self.store = open_store(SimulatedFileSystem(), role=AMONG_OTHERS)
        self.loop = EventLoop("member")
        self.syncs = DiskSyncs(self.loop)
        self.member = ClusterMember(
            store=self.store,
            config=ClusterConfig(),
            node_id=ME,
            listener="PLAINTEXT",
            control=self.control,
            target_of=lambda at: Target(at.host, at.port, PLAINTEXT, None),
            want_topic=lambda _name: None,
            when_disk_failed=lambda _directory, _error, *, is_last: None,
            assign_directory=lambda *_place: None,
            control_loop=self.loop,
            data_loop=self.loop,
            watch=LogWatch(self.loop),
            syncs=self.syncs,
        )
        self.loop.start()

    def apply(self, image: PartitionImage | None) -> None:
        """Apply an image with one partition or none, and wait until it is carried out."""
        topics = {}
        if image is not None:
            topic = TopicImage(name="orders", topic_id=ORDERS.topic_id, partitions={0: image})
            topics = {ORDERS.topic_id: topic}
        before = self.control.image
        self.control.image = replace(
            before, end=Offset(before.end + 1), brokers=self.control.brokers, topics=topics
        )
        self.wait(partial(self.member.apply, self.control.image))

    def wait(self, begin: Callable[[Callable[[], None]], None]) -> None:
        is_done = threading.Event()
        begin(is_done.set)
        assert is_done.wait(WAIT_S)

    def stopped(self) -> int:
        return self.member.facts().stopped

    def stop_replica(self) -> None:
        self.call(lambda: self.member.stopped(ORDERS, "it needs help"))

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the loop, and wait for it."""

        def begin(then: Callable[[], None]) -> None:
            self.loop.call_soon(function)
            self.loop.call_soon(then)

        self.wait(begin)

    def close(self) -> None:
        self.call(self.member.end_roles)
        self.loop.stop()
        self.syncs.stop()
        self.member.stop()
        self.store.close()
        self.control.store.close()


@pytest.fixture
def bench() -> Iterator[MemberBench]:
    made = MemberBench()
    yield made
    made.close()


def test_a_stopped_replica_counts_until_it_has_another_role(bench: MemberBench) -> None:
    bench.apply(partition(2, 1))
    bench.stop_replica()

    bench.apply(partition(2, 1, version=11))
    assert bench.stopped() == 1
    bench.apply(partition(3, 2))

    assert bench.stopped() == 0


def test_a_stopped_replica_of_a_deleted_topic_does_not_count(bench: MemberBench) -> None:
    bench.apply(partition(2, 1))
    bench.stop_replica()

    bench.apply(None)

    assert bench.stopped() == 0


@pytest.mark.parametrize(
    ("replicas", "code"),
    [((1,), ErrorCode.none), ((1, 2, 3), ErrorCode.request_timed_out)],
)
def test_a_deletion_is_known_to_be_everywhere_or_nobody_knows(
    bench: MemberBench, replicas: tuple[int, ...], code: ErrorCode
) -> None:
    bench.apply(partition(ME, 1, replicas=replicas, in_sync=replicas))
    log = log_of(bench.store, "orders")
    is_done, codes = threading.Event(), list[ErrorCode]()

    def done(found: ErrorCode) -> None:
        codes.append(found)
        is_done.set()

    bench.member.await_deleted(log, Offset(0), LeaderEpoch(1), 0.01, done)

    assert is_done.wait(WAIT_S)
    assert codes == [code]


def test_a_member_says_why_it_may_not_lead(bench: MemberBench) -> None:
    def reason() -> str | None:
        return bench.member.facts().fencing

    control = bench.control
    no_image = reason()
    bench.apply(None)
    running = reason()
    control.is_fenced_by_silence = True
    silent = reason()
    control.is_fenced_by_silence = False
    registered, control.broker_epoch = control.broker_epoch, -1
    unregistered = reason()
    control.broker_epoch = registered
    control.brokers = {ME: replace(control.brokers[ME], is_fenced=True)}
    bench.apply(None)
    fenced = reason()

    assert running is None
    assert "does not have the metadata of the cluster yet" in (no_image or "")
    assert "has answered for more than broker.session.timeout.ms = 9000" in (silent or "")
    assert "no controller of the cluster has accepted it yet" in (unregistered or "")
    assert "it is fenced" in (fenced or "")

"""Fetches for the followers of one leader: together, and without one that its disk holds up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cordwood.cluster.replication.follower_role import FollowerRole, Phase
from cordwood.cluster.replication.replica_fetch import (
    FetchedPartition,
    PartitionPlace,
    ReplicaFetch,
)
from cordwood.cluster.replication.replica_fetcher import ReplicaFetcher
from cordwood.cluster.replication.replication_ports import NodePorts, ReplicationConfig
from cordwood.cluster.replication.replication_quota import ReplicationQuotas
from fakes.manual_scheduler import ManualScheduler
from fakes.replication_bench import TOPIC_ID

LEADER = 2


class Follower:
    """What the fetcher sees of a follower. `change` is what its disk and its leader do."""

    def __init__(self, number: int, fetcher: ReplicaFetcher) -> None:
        self.position = number
        self.site = SimpleNamespace(place=PartitionPlace(TOPIC_ID, number))
        self.phase = Phase.READY
        self.is_held_up = self.is_over = False
        self._fetcher = fetcher
        fetcher.add(cast(FollowerRole, self))

    def take(self, answer: FetchedPartition | None) -> None:
        """It appends, and syncs."""
        self.phase = Phase.BUSY

    def change(self, phase: Phase) -> None:
        self.phase = phase
        self._fetcher.go_on()


class Node:
    """The ports of the fetcher, and the requests that it has sent."""

    def __init__(self) -> None:
        self.scheduler = ManualScheduler()
        self.sent: list[tuple[ReplicaFetch, Callable[[Any], None]]] = []
        self.fetcher = ReplicaFetcher(
            NodePorts(
                node_id=1,
                control=cast(Any, SimpleNamespace(broker_epoch=100)),
                disk=cast(Any, None),
                transport=cast(Any, self),
                scheduler=self.scheduler,
                listener=cast(Any, None),
                config=ReplicationConfig(),
                quotas=ReplicationQuotas(),
            ),
            LEADER,
        )

    def fetch(
        self,
        leader: int,
        fetch: ReplicaFetch,
        when_done: Callable[[Sequence[FetchedPartition] | None], None],
    ) -> None:
        self.sent.append((fetch, when_done))

    @property
    def asked(self) -> list[int]:
        """The partitions of the request under way."""
        return [cast(int, position) for position in self.sent[-1][0].positions]

    def answer(self, *numbers: int) -> None:
        _, when_done = self.sent.pop()
        when_done([FetchedPartition(place=PartitionPlace(TOPIC_ID, each)) for each in numbers])


@pytest.fixture
def node() -> Node:
    return Node()


def busy_pair(node: Node) -> tuple[Follower, Follower]:
    """Two followers whose batches have just arrived."""
    first, second = Follower(0, node.fetcher), Follower(1, node.fetcher)
    node.answer()  # the first request had one of them
    assert node.asked == [0, 1]
    node.answer(0, 1)
    assert node.sent == []
    return first, second


def test_followers_whose_disks_are_about_as_quick_are_fetched_together(node: Node) -> None:
    first, second = busy_pair(node)

    first.change(Phase.READY)
    node.scheduler.advance(0.02)
    assert node.sent == []
    second.change(Phase.READY)

    assert node.asked == [0, 1]
    assert node.sent[0][0].wait_max_ms == 500
    assert node.scheduler.timer_count == 0


def test_a_follower_whose_disk_stalls_does_not_hold_up_the_others(node: Node) -> None:
    first, _ = busy_pair(node)

    first.change(Phase.READY)
    node.scheduler.advance(0.06)

    assert node.asked == [0]
    assert node.sent[0][0].wait_max_ms == 50  # the other one joins soon after it is done


def test_a_late_follower_is_not_waited_for_again_until_it_was_ready(node: Node) -> None:
    first, second = busy_pair(node)
    first.change(Phase.READY)
    node.scheduler.advance(0.06)
    node.answer(0)

    first.change(Phase.READY)
    assert node.asked == [0]  # at once
    second.change(Phase.READY)
    assert node.asked == [0]
    node.answer()

    assert node.asked == [0, 1]
    assert node.sent[0][0].wait_max_ms == 500
    node.answer(0, 1)
    first.change(Phase.READY)
    assert node.sent == []  # it is waited for as before


def test_nothing_is_sent_while_all_are_busy(node: Node) -> None:
    busy_pair(node)

    node.scheduler.advance(10)

    assert (node.sent, node.scheduler.timer_count) == ([], 0)


def test_a_late_follower_that_leaves_changes_nothing_for_the_others(node: Node) -> None:
    first, second = busy_pair(node)
    first.change(Phase.READY)

    node.fetcher.remove(cast(FollowerRole, second))

    assert node.asked == [0]
    assert node.sent[0][0].wait_max_ms == 500


def test_a_closed_fetcher_waits_for_nobody(node: Node) -> None:
    first, _ = busy_pair(node)
    first.change(Phase.READY)

    node.fetcher.close()
    node.scheduler.advance(1)

    assert (node.sent, node.scheduler.timer_count) == ([], 0)

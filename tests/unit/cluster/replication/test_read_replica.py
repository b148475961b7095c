"""Which replica a consumer is sent to, and which replicas answer consumers (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordwood.broker.records.cluster_partitions import leader_refusal, reader_refusal
from cordwood.cluster.replication.read_replica import nearest_follower
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import Offset
from fakes.replication_bench import ReplicationBench

RACKS: dict[int, str | None] = {1: "a", 2: "b", 3: "b"}


@pytest.fixture
def bench() -> Iterator[ReplicationBench]:
    made = ReplicationBench()
    yield made
    made.store.close()


@pytest.fixture
def leading(bench: ReplicationBench) -> ReplicationBench:
    """Node 1 leads four records; node 2 has all of them, node 3 has two."""
    bench.lead()
    bench.append(b"1", b"2", b"3", b"4")
    bench.fetch_from(2, 4)
    bench.fetch_from(3, 2)
    return bench


def nearest(
    bench: ReplicationBench, rack: str, offset: int = 0, racks: dict[int, str | None] | None = None
) -> int | None:
    leader = bench.replica.leader
    assert leader is not None
    return nearest_follower(leader, Offset(offset), rack, (racks or RACKS).get)


def test_the_follower_in_the_rack_that_is_furthest_is_chosen(leading: ReplicationBench) -> None:
    assert nearest(leading, "b") == 2


def test_the_leader_answers_in_its_own_rack_and_where_nobody_is(leading: ReplicationBench) -> None:
    assert nearest(leading, "a") is None
    assert nearest(leading, "c") is None
    assert nearest(leading, "b", racks={1: "b", 2: "b", 3: "b"}) is None


def test_a_follower_that_does_not_have_the_offset_is_not_chosen(leading: ReplicationBench) -> None:
    only_third: dict[int, str | None] = {1: "a", 2: "a", 3: "b"}

    assert nearest(leading, "b", 2, only_third) == 3
    assert nearest(leading, "b", 3, only_third) is None


def test_a_follower_that_clients_cannot_reach_is_not_chosen(leading: ReplicationBench) -> None:
    assert nearest(leading, "b", racks={1: "a", 2: None, 3: "b"}) == 3


def test_a_follower_that_is_not_in_sync_is_not_chosen(bench: ReplicationBench) -> None:
    bench.lead(in_sync=(1, 3))
    bench.fetch_from(2, 0, life=999)  # its broker has another life, so it does not join

    assert nearest(bench, "b") is None


def test_a_follower_that_has_not_fetched_yet_is_not_chosen(bench: ReplicationBench) -> None:
    bench.lead()

    assert nearest(bench, "b") is None


def test_consumers_may_read_from_a_follower_that_knows_their_epoch(
    bench: ReplicationBench,
) -> None:
    bench.follow(epoch=3)

    assert leader_refusal(bench.replica, 3) is ErrorCode.not_leader_or_follower
    assert reader_refusal(bench.replica, 3) is None
    assert reader_refusal(bench.replica, -1) is None
    assert reader_refusal(bench.replica, 2) is ErrorCode.fenced_leader_epoch
    assert reader_refusal(bench.replica, 4) is ErrorCode.unknown_leader_epoch


def test_a_follower_that_stopped_answers_nobody(bench: ReplicationBench) -> None:
    bench.follow(epoch=3)
    follower = bench.replica.follower
    assert follower is not None

    follower.stop_reason = "it would lose records"

    assert reader_refusal(bench.replica, 3) is ErrorCode.not_leader_or_follower


def test_a_replica_without_a_role_answers_nobody(bench: ReplicationBench) -> None:
    assert reader_refusal(bench.replica, -1) is ErrorCode.not_leader_or_follower
    bench.follow(epoch=3, replicas=(2, 3), in_sync=(2, 3))

    assert reader_refusal(bench.replica, 3) is ErrorCode.not_leader_or_follower


def test_a_leader_that_the_controllers_do_not_hear_answers_nobody(
    leading: ReplicationBench,
) -> None:
    leading.is_fenced_by_silence = True

    assert reader_refusal(leading.replica, 1) is ErrorCode.not_leader_or_follower

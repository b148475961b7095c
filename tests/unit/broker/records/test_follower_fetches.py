"""What a leader answers followers, whose partitions share one answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordwood.broker.records.cluster_partitions import Fetcher
from cordwood.broker.records.fetch_plan import FetchPlan
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.fetch_request import FetchPartition
from cordwood.protocol.fetch_response import FetchedPart
from fakes.bench_cluster import BenchCluster
from fakes.replication_bench import ReplicationBench
from fakes.sessions import LOCAL_SESSION

FOLLOWER = Fetcher(2, 200)


@pytest.fixture
def bench() -> Iterator[ReplicationBench]:
    made = ReplicationBench()
    made.lead()
    made.append(b"one", b"two")
    for node in (2, 3):
        made.fetch_from(node, 2)
    assert made.log.high_watermark == 2
    yield made
    made.store.close()


def wanted(offset: int, *, epoch: int, last_epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        topic="events",
        partition=0,
        leader_epoch=epoch,
        offset=offset,
        last_fetched_epoch=last_epoch,
        log_start=0,
        max_bytes=1 << 20,
        high_watermark=0,
    )


def answered_when_full(bench: ReplicationBench, part: FetchPartition) -> FetchedPart:
    """The answer about `part`, behind a partition that takes all the room there is."""
    leader = bench.replica.leader
    assert leader is not None
    plan = FetchPlan(
        PartitionTable(bench.store, BenchCluster(bench)),
        version=17,
        is_committed=False,
        bytes_max=1,
        found={},
        session=LOCAL_SESSION,
        client_id=None,
        fetcher=FOLLOWER,
    )
    plan.add(wanted(0, epoch=leader.epoch))
    plan.add(part)
    first, answer = plan.parts
    assert first.size > 0
    assert answer.size == 0
    return answer


def test_a_full_answer_tells_a_follower_that_it_diverges(bench: ReplicationBench) -> None:
    bench.lead(3)

    answer = answered_when_full(bench, wanted(3, epoch=3, last_epoch=2))

    assert answer.diverging == (1, 2)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(0, ErrorCode.fenced_leader_epoch), (2, ErrorCode.unknown_leader_epoch)],
)
def test_a_full_answer_refuses_a_follower_of_another_epoch(
    bench: ReplicationBench, epoch: int, code: ErrorCode
) -> None:
    answer = answered_when_full(bench, wanted(2, epoch=epoch))

    assert answer.error_code == code


def test_the_position_of_a_follower_counts_although_the_answer_is_full(
    bench: ReplicationBench,
) -> None:
    bench.append(b"three")
    bench.fetch_from(3, 3)

    answer = answered_when_full(bench, wanted(3, epoch=1, last_epoch=1))

    assert (answer.error_code, answer.high_watermark) == (0, 3)

"""What a consumer gets from a leader and from a follower, depending on its rack (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordwood.broker.records.fetch_plan import FetchPlan
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.fetch_request import FetchPartition
from cordwood.protocol.fetch_response import FetchedPart
from fakes.bench_cluster import BenchCluster
from fakes.replication_bench import ReplicationBench
from fakes.sessions import LOCAL_SESSION


@pytest.fixture
def bench() -> Iterator[ReplicationBench]:
    made = ReplicationBench()
    yield made
    made.store.close()


def fetched(
    bench: ReplicationBench,
    *,
    rack: str = "",
    version: int = 12,
    offset: int = 0,
    epoch: int = -1,
    last_epoch: int = -1,
) -> tuple[FetchedPart, bool]:
    """The answer of the partition, and whether it must not wait."""
    plan = FetchPlan(
        PartitionTable(bench.store, BenchCluster(bench)),
        version=version,
        is_committed=False,
        bytes_max=1 << 20,
        found={},
        session=LOCAL_SESSION,
        client_id=None,
        rack=rack,
    )
    part = FetchPartition(
        topic="events",
        partition=0,
        leader_epoch=epoch,
        offset=offset,
        last_fetched_epoch=last_epoch,
        log_start=-1,
        max_bytes=1 << 20,
    )
    plan.add(part)
    [answer] = plan.parts
    return answer, plan.is_urgent


@pytest.fixture
def leading(bench: ReplicationBench) -> ReplicationBench:
    bench.lead()
    end = bench.append(b"one", b"two")
    for node in (2, 3):
        bench.fetch_from(node, end)
    assert bench.log.high_watermark == end
    return bench


def test_a_leader_names_the_replica_in_the_rack_and_sends_no_records(
    leading: ReplicationBench,
) -> None:
    answer, is_urgent = fetched(leading, rack="b")

    assert (answer.preferred_replica, answer.size, answer.error_code) == (2, 0, 0)
    assert answer.high_watermark == 2
    assert is_urgent


@pytest.mark.parametrize("rack", ["", "a", "nowhere"])
def test_a_leader_answers_consumers_that_nobody_is_nearer_to(
    leading: ReplicationBench, rack: str
) -> None:
    answer, _ = fetched(leading, rack=rack)

    assert answer.preferred_replica == -1
    assert answer.size > 0


def test_a_leader_says_that_an_offset_is_out_of_range_itself(leading: ReplicationBench) -> None:
    answer, _ = fetched(leading, rack="b", offset=99)

    assert answer.error_code == ErrorCode.offset_out_of_range
    assert answer.preferred_replica == -1


def test_an_epoch_is_checked_before_a_consumer_is_sent_away(leading: ReplicationBench) -> None:
    answer, _ = fetched(leading, rack="b", epoch=9)

    assert answer.error_code == ErrorCode.unknown_leader_epoch


def test_a_follower_answers_up_to_its_high_watermark(leading: ReplicationBench) -> None:
    leading.append(b"three")
    leading.follow(epoch=2)

    answer, _ = fetched(leading, rack="a")
    behind, is_urgent = fetched(leading, rack="a", offset=2)
    beyond, _ = fetched(leading, rack="a", offset=4)

    assert (answer.error_code, answer.high_watermark) == (0, 2)
    assert answer.size > 0
    assert (behind.error_code, behind.size, is_urgent) == (0, 0, False)
    assert beyond.error_code == ErrorCode.offset_out_of_range


def test_a_consumer_that_is_ahead_of_a_follower_goes_back_to_the_leader(
    leading: ReplicationBench,
) -> None:
    leading.follow(epoch=2)

    answer, _ = fetched(leading, rack="a", offset=2, epoch=2, last_epoch=2)

    assert answer.error_code == ErrorCode.offset_out_of_range
    assert answer.diverging is None


def test_a_consumer_that_knows_no_racks_is_sent_to_the_leader(leading: ReplicationBench) -> None:
    leading.follow(epoch=2)

    answer, _ = fetched(leading, version=10)

    assert answer.error_code == ErrorCode.not_leader_or_follower

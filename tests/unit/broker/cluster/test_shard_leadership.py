"""Whether records of a coordinator can be committed, as its replica sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from cordwood.broker.cluster.shard_leadership import ShardLeadership
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch
from fakes.replication_bench import ReplicationBench


@pytest.fixture
def bench() -> Iterator[ReplicationBench]:
    made = ReplicationBench()
    yield made
    made.store.close()


def refusal(bench: ReplicationBench, *, led_in: int = 1) -> ErrorCode | None:
    loop = cast("EventLoop", bench.scheduler)
    shards = ShardLeadership(
        "events",
        {0: bench.replica}.get,
        data=loop,
        control=loop,
        request_sync=lambda _log: None,
    )
    return shards.refusal(0, LeaderEpoch(led_in))


def test_a_leader_with_enough_replicas_commits(bench: ReplicationBench) -> None:
    bench.lead()

    assert refusal(bench) is None


def test_with_too_few_replicas_nothing_is_begun(bench: ReplicationBench) -> None:
    bench.lead(in_sync=(1,))

    assert refusal(bench) is ErrorCode.coordinator_not_available


@pytest.mark.parametrize("case", ["another epoch", "a follower", "silent controllers"])
def test_who_does_not_lead_any_more_does_not_coordinate(bench: ReplicationBench, case: str) -> None:
    bench.lead()
    bench.is_fenced_by_silence = case == "silent controllers"
    if case == "a follower":
        bench.follow(2)

    assert refusal(bench, led_in=0 if case == "another epoch" else 1) is ErrorCode.not_coordinator

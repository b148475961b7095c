"""The limits for throttled replicas: who is held up, for how long, and who never is."""

from __future__ import annotations

import pytest

from cordwood.cluster.replication.replication_quota import (
    NO_LIMIT,
    ReplicationQuota,
    ThrottledReplica,
)
from cordwood.quantities import Offset
from fakes.replication_bench import ReplicationBench
from unit.cluster.replication.test_follower_role import placed

# --- the limit ---------------------------------------------------------------------------------


def test_without_a_limit_there_is_always_room() -> None:
    quota = ReplicationQuota()

    quota.count(1 << 60, 0.0, is_in_sync=False)

    assert quota.room(0.0) == NO_LIMIT


def test_what_was_taken_beyond_the_room_is_paid_back_at_the_limit() -> None:
    quota = ReplicationQuota(limit=100)
    assert quota.room(5.0) == 100

    quota.count(350, 5.0, is_in_sync=False)

    assert quota.room(7.4) == pytest.approx(-10, abs=1)
    assert quota.room(7.6) == pytest.approx(10, abs=1)
    assert quota.room(99.0) == 100


def test_in_the_long_run_exactly_the_limit_is_copied() -> None:
    quota = ReplicationQuota(limit=1_000)
    copied, now_s = 0, 0.0
    while now_s < 100:
        if quota.room(now_s) > 0:
            quota.count(3_300, now_s, is_in_sync=False)
            copied += 3_300
        now_s += max(quota.wait_s(now_s), 0.001)

    assert copied == pytest.approx(100_000, rel=0.05)


def test_replicas_in_sync_owe_ten_seconds_at_most() -> None:
    quota = ReplicationQuota(limit=100)

    quota.count(1_000_000, 0.0, is_in_sync=True)

    assert quota.room(9.9) <= 0 < quota.room(10.1)


def test_replicas_in_sync_do_not_take_back_what_others_owe() -> None:
    quota = ReplicationQuota(limit=100)
    quota.count(5_000, 0.0, is_in_sync=False)

    quota.count(10, 0.0, is_in_sync=True)

    assert quota.room(0.0) == -4_900


@pytest.mark.parametrize(("limit", "wait_s"), [(0, 1.0), (10, 1.0), (1_000, 0.601), (10**6, 0.01)])
def test_a_wait_is_as_long_as_the_debt_but_a_raised_limit_is_seen_soon(
    limit: int, wait_s: float
) -> None:
    quota = ReplicationQuota(limit=limit)
    quota.room(0.0)

    quota.count(limit + 600, 0.0, is_in_sync=False)

    assert quota.wait_s(0.0) == pytest.approx(wait_s)


def test_a_limit_that_is_changed_counts_at_once() -> None:
    quota = ReplicationQuota(limit=10)
    quota.count(1_010, 0.0, is_in_sync=False)

    quota.limit = 1_000

    assert quota.room(1.1) == 100


def test_the_rate_is_that_of_the_last_ten_seconds() -> None:
    quota = ReplicationQuota()
    assert quota.rate(0.0) == 0

    for second in range(30):
        quota.count(500 if second < 20 else 0, float(second), is_in_sync=True)

    assert quota.rate(0.5) <= 500
    assert quota.rate(29.9) == pytest.approx(500 / 10.9, rel=0.05)
    assert quota.rate(99.0) == 0


@pytest.mark.parametrize(
    ("listed", "is_listed"),
    [((), False), (("*",), True), (("0:1", "3:7"), True), (("3:1", "0:17", "7:3"), False)],
)
def test_a_list_names_partitions_with_their_brokers(
    listed: tuple[str, ...], is_listed: bool
) -> None:
    replica = ThrottledReplica(partition=3, node_id=7)

    assert replica.is_in(listed) is is_listed
    assert not replica.is_in(("0:0",))


# --- leaders -----------------------------------------------------------------------------------


def led(listed: str = "0:1", *, limit: int = 1) -> ReplicationBench:
    """A leader with three committed batches, and node 3 not in sync."""
    bench = ReplicationBench({"leader.replication.throttled.replicas": listed})
    bench.lead(in_sync=(1, 2))  # node 3 is not in sync
    for value in (b"a", b"b", b"c"):
        bench.append(value)
    bench.fetch_from(2, 3)
    assert bench.log.high_watermark == 3
    bench.replica.site.node.quotas.leader.limit = limit
    return bench


def test_a_follower_that_is_behind_gets_a_batch_and_then_waits_for_room() -> None:
    bench = led()

    first, second = bench.fetch_from(3, 0), bench.fetch_from(3, 1)
    bench.scheduler.advance(200)
    third = bench.fetch_from(3, 1)

    assert first.batches is not None
    assert first.batches.length < 100
    assert (second.error, second.batches) == (0, None)
    assert third.batches is not None


def test_followers_that_the_leader_waits_for_are_never_held_up() -> None:
    bench = led()
    bench.fetch_from(3, 0)

    assert bench.fetch_from(2, 0).batches is not None
    bench.fetch_from(3, 3)  # caught up: it is asked in, and counts from now on
    bench.append(b"d")

    assert bench.fetch_from(3, 3, last_epoch=1).batches is not None


def test_replicas_that_are_not_listed_are_never_held_up() -> None:
    bench = led("0:2,1:1")

    assert bench.fetch_from(3, 0).batches is not None
    assert bench.fetch_from(3, 1).batches is not None
    assert bench.replica.site.node.quotas.leader.rate(1.0) == 0


def test_a_follower_that_is_held_up_still_learns_what_is_committed() -> None:
    bench = led()
    bench.fetch_from(3, 0)

    read = bench.fetch_from(3, 1)

    assert (read.high_watermark, read.is_news, read.batches) == (3, True, None)


# --- followers ---------------------------------------------------------------------------------


def following(*, in_sync: tuple[int, ...]) -> ReplicationBench:
    bench = ReplicationBench({"follower.replication.throttled.replicas": "*"})
    bench.replica.site.node.quotas.follower.limit = 40
    bench.follow(1, in_sync=in_sync)
    return bench


def test_a_follower_that_is_behind_fetches_again_when_there_is_room() -> None:
    bench = following(in_sync=(2, 3))

    bench.answer_fetch(data=placed(0, b"a" * 200), high_watermark=Offset(9))
    assert bench.fetches == []
    bench.scheduler.advance(2)
    assert bench.fetches == []
    bench.scheduler.advance(8)

    assert bench.position.offset == 1


def test_a_follower_that_is_behind_asks_for_no_more_than_there_is_room_for() -> None:
    bench = following(in_sync=(2, 3))
    assert bench.position.bytes_max == 40

    bench.answer_fetch(data=placed(0, b"a" * 200), high_watermark=Offset(1))

    assert bench.position.bytes_max is None  # it has all that is committed


def test_a_follower_in_sync_is_not_held_up() -> None:
    bench = following(in_sync=(1, 2, 3))

    bench.answer_fetch(data=placed(0, b"a" * 200), high_watermark=Offset(9))

    assert bench.position.offset == 1
    assert bench.replica.site.node.quotas.follower.rate(1.0) > 200


def test_a_follower_that_has_all_that_is_committed_is_not_held_up() -> None:
    bench = following(in_sync=(2, 3))

    bench.answer_fetch(data=placed(0, b"a" * 200), high_watermark=Offset(1))

    assert bench.position.offset == 1


def test_a_follower_that_comes_in_sync_goes_on_within_a_second() -> None:
    bench = following(in_sync=(2, 3))
    bench.answer_fetch(data=placed(0, b"a" * 4_000), high_watermark=Offset(9))
    assert bench.fetches == []

    bench.follow(1, in_sync=(1, 2, 3), version=11)
    bench.scheduler.advance(1)

    assert bench.position.offset == 1


def test_a_role_that_ends_while_it_is_held_up_fetches_no_more() -> None:
    bench = following(in_sync=(2, 3))
    bench.answer_fetch(data=placed(0, b"a" * 200), high_watermark=Offset(9))

    bench.lead(2)
    bench.scheduler.advance(60)

    assert bench.fetches == []

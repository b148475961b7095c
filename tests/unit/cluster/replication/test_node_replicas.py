"""Roles come from images, in their order, and only for this life of the broker."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from cordwood.cluster.image.partition_image import NO_LEADER
from cordwood.cluster.replication.node_replicas import assigned_places
from cordwood.errors import NotLeaderError
from cordwood.quantities import LeaderEpoch
from fakes.client_batches import client_batch
from fakes.replication_bench import PLACE, ReplicationBench, partition


@pytest.fixture
def bench() -> ReplicationBench:
    return ReplicationBench()


def test_an_image_of_an_earlier_life_gives_no_role(bench: ReplicationBench) -> None:
    bench.broker_epoch = 101

    bench.lead(5)

    assert bench.replica.leader is None
    with pytest.raises(NotLeaderError):
        bench.log.append(b"a")


def test_an_older_image_does_not_change_the_role(bench: ReplicationBench) -> None:
    bench.lead(3, version=9)

    bench.apply(partition(2, 4, version=8))
    bench.apply(partition(2, 2, version=10))

    assert bench.replica.leader is not None
    assert bench.replica.leader.epoch == 3


def test_appends_end_with_the_image_whatever_the_disk_does(bench: ReplicationBench) -> None:
    bench.lead(1)
    bench.waiting_jobs = []

    bench.lead(2)

    with pytest.raises(NotLeaderError):
        bench.log.batches.append_batch(client_batch(b"a"), wait=False, led_in=LeaderEpoch(1))
    assert bench.replica.leader is None
    bench.run_jobs()
    assert bench.replica.leader is not None


def test_a_leader_whose_disk_is_full_leads_once_there_is_room(bench: ReplicationBench) -> None:
    full = OSError(errno.ENOSPC, "no space")
    bench.fs.fail_next("create", full, path_ends="leader-epoch-checkpoint.tmp")

    bench.lead(4)
    led_at_first = bench.replica.leader
    bench.scheduler.advance(0.1)

    assert led_at_first is None
    assert bench.replica.leader is not None
    assert bench.replica.leader.epoch == 4
    assert bench.reasons == []


def test_a_leader_says_once_that_it_waits_for_room(bench: ReplicationBench) -> None:
    full = OSError(errno.ENOSPC, "no space")
    for epoch in (4, 5):
        bench.troubles.clear()
        bench.fs.fail_next("create", full, path_ends="leader-epoch-checkpoint.tmp")
        bench.lead(epoch)
        bench.fs.fail_next("create", full, path_ends="leader-epoch-checkpoint.tmp")
        bench.scheduler.advance(0.1)

        assert len(bench.troubles) == 1
        assert f"without room on the disk it cannot lead in epoch {epoch}" in bench.troubles[0]


def test_a_leader_whose_disk_is_full_does_not_lead_in_an_epoch_that_is_over(
    bench: ReplicationBench,
) -> None:
    full = OSError(errno.ENOSPC, "no space")
    bench.fs.fail_next("create", full, path_ends="leader-epoch-checkpoint.tmp")
    bench.lead(4)

    bench.follow(5)
    bench.scheduler.advance(0.1)

    assert bench.replica.leader is None
    assert bench.replica.follower is not None


def test_a_leadership_that_was_overtaken_before_it_began_never_begins(
    bench: ReplicationBench,
) -> None:
    bench.waiting_jobs = []
    bench.lead(1)
    bench.follow(2)

    bench.run_jobs()

    assert bench.replica.leader is None
    assert bench.log.replica.last_epoch == -1


def test_without_a_leader_a_replica_neither_leads_nor_follows(bench: ReplicationBench) -> None:
    bench.lead(1)

    bench.apply(partition(NO_LEADER, 2, in_sync=()))

    assert (bench.replica.leader, bench.replica.follower) == (None, None)
    with pytest.raises(NotLeaderError):
        bench.log.append(b"a")


def test_a_replica_that_was_moved_away_has_no_role(bench: ReplicationBench) -> None:
    bench.follow(1)

    bench.apply(partition(2, 1, version=11, replicas=(2, 3), in_sync=(2, 3)))

    assert bench.replica.follower is None
    assert PLACE not in set(assigned_places(bench.image, 1))


def test_a_replica_that_is_hosted_late_takes_the_role_of_the_image(
    bench: ReplicationBench,
) -> None:
    bench.replicas.drop(PLACE)
    bench.lead(4)

    again = bench.replicas.host(PLACE, bench.log)

    assert again.leader is not None
    assert again.leader.epoch == 4


def test_brokers_that_change_are_known_without_a_change_of_the_topic(
    bench: ReplicationBench,
) -> None:
    bench.brokers[3] = replace(bench.brokers[3], is_fenced=True)
    bench.lead(in_sync=(1, 2))
    bench.fetch_from(3, 0)
    assert bench.asked == []
    brokers = {**bench.brokers, 3: replace(bench.brokers[3], is_fenced=False)}
    bench.replicas.apply(replace(bench.image, brokers=brokers))

    bench.fetch_from(3, 0)

    assert len(bench.asked) == 1


def test_after_the_end_of_the_node_nothing_is_led(bench: ReplicationBench) -> None:
    bench.lead(1)

    bench.replicas.close()

    with pytest.raises(NotLeaderError):
        bench.log.append(b"a")
    assert bench.scheduler.timer_count == 0


def test_the_lag_of_followers_is_looked_at_although_a_look_failed(
    bench: ReplicationBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.replicas.start()
    bench.lead()
    bench.append(b"a")
    assert bench.replica.leader is not None

    def fails() -> None:
        raise ValueError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(bench.replica.leader, "check_lag", fails)
        with pytest.raises(ValueError, match="a bug"):
            bench.scheduler.advance(0.5)
    bench.scheduler.advance(1.0)

    assert [replica.node_id for replica in bench.asked[-1][0].in_sync] == [1]

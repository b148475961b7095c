"""The leader of a partition: the high watermark, the in-sync replicas, acknowledgements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cordwood.cluster.cluster_control import IsrAnswer
from cordwood.cluster.replication.replica_fetch import ReplicaError
from cordwood.errors import NotLeaderError
from cordwood.quantities import LeaderEpoch, Offset
from fakes.replication_bench import ReplicationBench, partition


@pytest.fixture
def bench() -> ReplicationBench:
    return ReplicationBench()


def in_sync(bench: ReplicationBench) -> set[int]:
    """What the controllers are asked for."""
    return {replica.node_id for replica in bench.asked[-1][0].in_sync}


# --- the high watermark ------------------------------------------------------------------------


def test_a_record_is_committed_when_every_in_sync_replica_has_fetched_past_it(
    bench: ReplicationBench,
) -> None:
    bench.lead()
    bench.append(b"a")

    bench.fetch_from(2, 1)
    assert bench.log.high_watermark == 0
    bench.fetch_from(3, 1)

    assert bench.log.high_watermark == 1


def test_the_leader_counts_only_what_is_on_its_own_disk(bench: ReplicationBench) -> None:
    bench.lead()
    bench.append(b"a", sync=False)
    bench.fetch_from(2, 1)
    bench.fetch_from(3, 1)
    assert bench.log.high_watermark == 0

    bench.sync_log()

    assert bench.log.high_watermark == 1


def test_nothing_is_committed_while_too_few_replicas_are_in_sync(bench: ReplicationBench) -> None:
    bench.lead(in_sync=(1,))

    bench.append(b"a")

    assert bench.log.high_watermark == 0


def test_a_partition_with_fewer_replicas_than_the_minimum_needs_all_it_has() -> None:
    bench = ReplicationBench({"min.insync.replicas": 3})
    bench.lead(replicas=(1, 2), in_sync=(1, 2))
    bench.append(b"a")

    bench.fetch_from(2, 1)

    assert bench.log.high_watermark == 1


def test_a_replica_that_is_about_to_join_is_waited_for(bench: ReplicationBench) -> None:
    bench.lead(in_sync=(1, 2))
    bench.fetch_from(3, 0)
    bench.answer_isr(IsrAnswer.REFUSED)
    bench.append(b"a")

    bench.fetch_from(2, 1)
    assert bench.log.high_watermark == 0
    bench.fetch_from(3, 1)

    assert bench.log.high_watermark == 1


def test_a_replica_that_was_asked_out_is_waited_for_until_that_is_decided(
    bench: ReplicationBench,
) -> None:
    bench.replicas.start()
    bench.lead()
    bench.append(b"a")
    bench.scheduler.advance(0.9)
    bench.fetch_from(2, 1)
    bench.scheduler.advance(0.7)
    assert in_sync(bench) == {1, 2}
    assert bench.log.high_watermark == 0

    bench.answer_isr(IsrAnswer.MADE, in_sync=(1, 2), partition_epoch=11)

    assert bench.log.high_watermark == 1


# --- acknowledgements --------------------------------------------------------------------------


def test_a_wait_is_answered_when_its_records_are_committed(bench: ReplicationBench) -> None:
    answers: list[bool] = []
    bench.lead()
    end = bench.append(b"a", b"b")
    assert bench.replica.leader is not None
    bench.replica.await_committed(end, bench.replica.leader.epoch, answers.append)

    bench.fetch_from(2, 2)
    assert answers == []
    bench.fetch_from(3, 2)

    assert answers == [True]


def test_a_wait_is_refused_when_its_leadership_ends_even_if_the_broker_leads_again(
    bench: ReplicationBench,
) -> None:
    answers: list[bool] = []
    bench.lead(1)
    end = bench.append(b"a")
    assert bench.replica.leader is not None
    first = bench.replica.leader
    first.await_committed(end, answers.append)

    bench.lead(2)
    assert answers == [False]
    bench.replica.await_committed(end, first.epoch, answers.append)

    assert answers == [False, False]


def test_appends_are_refused_below_the_minimum_and_after_a_long_silence(
    bench: ReplicationBench,
) -> None:
    bench.lead(in_sync=(1,))
    leader = bench.replica.leader
    assert leader is not None

    assert leader.produce_refusal(is_acks_all=True) is ReplicaError.NOT_ENOUGH_REPLICAS
    assert leader.produce_refusal(is_acks_all=False) is None
    bench.is_fenced_by_silence = True
    assert leader.produce_refusal(is_acks_all=False) is ReplicaError.NOT_LEADER_OR_FOLLOWER


def test_the_latest_offset_is_unknown_until_earlier_epochs_are_committed(
    bench: ReplicationBench,
) -> None:
    bench.lead(1)
    bench.append(b"a")
    bench.lead(2)
    assert bench.replica.leader is not None
    assert not bench.replica.leader.knows_committed_end

    for node in (2, 3):
        bench.fetch_from(node, 1, epoch=2, last_epoch=1)

    assert bench.replica.leader.knows_committed_end


# --- followers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(1, ReplicaError.FENCED_LEADER_EPOCH), (3, ReplicaError.UNKNOWN_LEADER_EPOCH)],
)
def test_a_fetch_of_another_epoch_is_refused(
    bench: ReplicationBench, epoch: int, error: ReplicaError
) -> None:
    bench.lead(2)

    assert bench.fetch_from(2, 0, epoch=epoch).error is error


def test_a_follower_that_diverges_is_told_where_and_does_not_count(
    bench: ReplicationBench,
) -> None:
    bench.lead(1)
    bench.append(b"a")
    bench.lead(3)

    read = bench.fetch_from(2, 5, epoch=3, last_epoch=2)

    assert read.diverging == (1, 1)
    assert bench.replica.leader is not None
    assert bench.replica.leader.replicas[2].end == -1


def test_a_follower_past_the_end_of_its_epoch_diverges(bench: ReplicationBench) -> None:
    bench.lead(1)
    bench.append(b"a")

    assert bench.fetch_from(2, 4, last_epoch=1).diverging == (1, 1)


def test_a_follower_reads_batches_before_they_are_synced(bench: ReplicationBench) -> None:
    bench.lead()
    bench.append(b"a", sync=False)

    read = bench.fetch_from(2, 0)

    assert read.batches is not None
    assert read.is_news


# --- the in-sync replicas ----------------------------------------------------------------------


def test_a_follower_joins_at_the_high_watermark(bench: ReplicationBench) -> None:
    bench.lead(in_sync=(1, 2))
    bench.append(b"a")
    bench.fetch_from(2, 1)

    bench.fetch_from(3, 0)
    assert bench.asked == []
    bench.fetch_from(3, 1)

    assert in_sync(bench) == {1, 2, 3}
    assert bench.asked[0][0].in_sync[2].broker_epoch == 300


def test_a_follower_joins_only_with_the_start_of_the_epoch(bench: ReplicationBench) -> None:
    bench.lead(1)
    bench.append(b"a", b"b")
    bench.lead(2, in_sync=(1, 2))
    assert bench.log.high_watermark == 0

    bench.fetch_from(3, 1, epoch=2, last_epoch=1)
    assert bench.asked == []
    bench.fetch_from(3, 2, epoch=2, last_epoch=1)

    assert in_sync(bench) == {1, 2, 3}


@pytest.mark.parametrize("fields", [{"is_fenced": True}, {"is_leaving": True}, {"epoch": 301}])
def test_a_broker_that_may_not_join_is_not_asked_for(
    bench: ReplicationBench, fields: dict[str, object]
) -> None:
    bench.brokers[3] = replace(bench.brokers[3], **fields)  # type: ignore[arg-type]
    bench.lead(in_sync=(1, 2))

    bench.fetch_from(3, 0)

    assert bench.asked == []


def test_a_fetch_of_an_earlier_life_of_a_broker_does_not_count(bench: ReplicationBench) -> None:
    bench.lead(in_sync=(1, 2))
    bench.fetch_from(3, 0, life=300)

    read = bench.fetch_from(3, 0, life=299)

    assert read.error is ReplicaError.NOT_LEADER_OR_FOLLOWER


def test_one_change_is_under_way_at_a_time_and_an_image_decides_it(
    bench: ReplicationBench,
) -> None:
    bench.lead(in_sync=(1,))
    bench.fetch_from(2, 0)
    bench.fetch_from(3, 0)
    assert len(bench.asked) == 1
    assert bench.replica.leader is not None
    assert bench.replica.leader.isr.maximal == {1, 2}
    bench.answer_isr(IsrAnswer.OVERTAKEN)
    assert bench.replica.leader.isr.maximal == {1, 2}

    bench.apply(partition(1, 1, in_sync=(1,), version=12))

    assert bench.replica.leader.isr.maximal == {1}


def test_a_change_that_was_overtaken_is_asked_again_if_no_image_explains_it(
    bench: ReplicationBench,
) -> None:
    bench.lead(in_sync=(1,))
    bench.fetch_from(2, 0)
    change = bench.asked[0][0]

    bench.answer_isr(IsrAnswer.OVERTAKEN)
    bench.scheduler.advance(1)
    assert bench.asked == []
    bench.scheduler.advance(2)

    assert bench.asked[0][0] is change


def test_a_change_without_an_answer_is_asked_again(bench: ReplicationBench) -> None:
    bench.lead(in_sync=(1,))
    bench.fetch_from(2, 0)
    change = bench.asked[0][0]

    bench.answer_isr(IsrAnswer.RETRY)
    bench.scheduler.advance(1)

    assert bench.asked[0][0] is change


def test_a_change_that_changed_nothing_leaves_nothing_pending(bench: ReplicationBench) -> None:
    bench.lead(in_sync=(1,))
    bench.fetch_from(2, 0)

    bench.answer_isr(IsrAnswer.MADE, in_sync=(1, 2), partition_epoch=10)

    assert bench.replica.leader is not None
    assert bench.replica.leader.isr.pending is None
    assert bench.replica.leader.isr.committed == {1, 2}


def test_an_answer_that_an_image_has_overtaken_changes_nothing(bench: ReplicationBench) -> None:
    bench.lead(in_sync=(1,))
    bench.fetch_from(2, 0)
    bench.apply(partition(1, 1, in_sync=(1, 3), version=15))

    bench.answer_isr(IsrAnswer.MADE, in_sync=(1, 2), partition_epoch=11)

    assert bench.replica.leader is not None
    assert bench.replica.leader.isr.committed == {1, 3}
    assert bench.replica.leader.partition_epoch == 15


def test_a_fetch_that_waits_at_the_leader_is_no_news_of_the_follower(
    bench: ReplicationBench,
) -> None:
    bench.lead()
    bench.fetch_from(2, 0)
    assert bench.replica.leader is not None
    caught_up_s = bench.replica.leader.replicas[2].caught_up_s
    bench.scheduler.advance(5)

    bench.fetch_from(2, 0, is_again=True)

    assert bench.replica.leader.replicas[2].caught_up_s == caught_up_s


# --- deletions ---------------------------------------------------------------------------------


def leading_three_records(bench: ReplicationBench) -> None:
    bench.lead()
    end = bench.append(b"a", b"b", b"c")
    for node in (2, 3):
        bench.fetch_from(node, end)
    assert bench.log.delete_before(2, led_in=LeaderEpoch(1)) == 2


def deletion(bench: ReplicationBench) -> list[bool]:
    answers: list[bool] = []
    bench.replica.await_deleted(Offset(2), LeaderEpoch(1), answers.append)
    return answers


@pytest.mark.parametrize("follows", [True, False])
def test_a_leader_that_was_deposed_deletes_nothing(bench: ReplicationBench, follows: bool) -> None:
    bench.lead()
    end = bench.append(b"a", b"b", b"c")
    for node in (2, 3):
        bench.fetch_from(node, end)
    if follows:
        bench.follow(2)
    else:
        bench.lead(2)

    with pytest.raises(NotLeaderError):
        bench.log.delete_before(2, led_in=LeaderEpoch(1))

    assert bench.log.start_offset == 0


def test_records_are_deleted_when_the_logs_of_all_replicas_start_behind_them(
    bench: ReplicationBench,
) -> None:
    leading_three_records(bench)
    answers = deletion(bench)

    bench.fetch_from(2, 3, log_start=2)
    assert answers == []
    bench.fetch_from(3, 3, log_start=2)

    assert answers == [True]
    assert deletion(bench) == [True]


def test_a_broker_that_is_not_alive_is_not_waited_for(bench: ReplicationBench) -> None:
    leading_three_records(bench)
    answers = deletion(bench)
    bench.fetch_from(2, 3, log_start=2)

    bench.brokers[3] = replace(bench.brokers[3], is_fenced=True)
    bench.lead(in_sync=(1, 2), version=11)

    assert answers == [True]


def test_nobody_knows_what_became_of_a_deletion_whose_leadership_ended(
    bench: ReplicationBench,
) -> None:
    leading_three_records(bench)
    answers = deletion(bench)

    bench.follow(2)

    assert answers == [False]
    assert deletion(bench) == [False]

"""A follower: it fetches from its safe end, appends verbatim, and cuts by epoch."""

from __future__ import annotations

import pytest

from cordwood.cluster.image.partition_image import LeaderRecovery
from cordwood.cluster.replication.epoch_truncation import cut_for
from cordwood.cluster.replication.follower_role import Phase
from cordwood.cluster.replication.replica_fetch import LogBounds, ReplicaError
from cordwood.log.rules.leader_epochs import UNKNOWN_EPOCH_END, EpochEnd
from cordwood.quantities import LeaderEpoch, Offset
from fakes.client_batches import client_batch
from fakes.replication_bench import ReplicationBench


@pytest.fixture
def bench() -> ReplicationBench:
    return ReplicationBench()


def placed(base: int, *values: bytes, epoch: int = 1) -> bytes:
    data = bytearray(client_batch(*values))
    data[0:8], data[12:16] = base.to_bytes(8, "big"), epoch.to_bytes(4, "big")
    return bytes(data)


def end_of(epoch: int, end: int) -> EpochEnd:
    return EpochEnd(LeaderEpoch(epoch), Offset(end))


def test_a_follower_fetches_from_its_end_with_its_last_epoch(bench: ReplicationBench) -> None:
    bench.follow(4)
    assert (bench.position.offset, bench.position.last_epoch) == (0, -1)

    bench.answer_fetch(data=placed(0, b"a", b"b", epoch=3), high_watermark=Offset(1))

    position = bench.position
    assert (position.offset, position.last_epoch, position.leader_epoch) == (2, 3, 4)
    assert (position.high_watermark, bench.log.state.durable) == (1, 2)
    assert bench.fetches[-1][1].broker_epoch == 100


def test_nothing_is_fetched_while_a_tail_is_unsynced(bench: ReplicationBench) -> None:
    bench.follow()
    bench.waiting_jobs = []

    bench.answer_fetch(data=placed(0, b"a"), high_watermark=Offset(0))
    assert bench.fetches == []
    bench.run_jobs()

    assert bench.position.offset == 1


def test_the_high_watermark_of_a_follower_is_not_above_what_it_has_synced(
    bench: ReplicationBench,
) -> None:
    bench.follow()

    bench.answer_fetch(data=placed(0, b"a"), high_watermark=Offset(9))

    assert bench.log.high_watermark == 1


def test_with_durability_os_a_follower_does_not_wait_for_its_disk() -> None:
    bench = ReplicationBench({"durability": "os"})
    bench.follow()

    bench.answer_fetch(data=placed(0, b"a"), high_watermark=Offset(1))

    assert (bench.position.offset, bench.log.state.durable, bench.log.high_watermark) == (1, 0, 1)


def test_a_follower_that_diverges_cuts_by_epoch_and_asks_again(bench: ReplicationBench) -> None:
    bench.follow(1)
    bench.answer_fetch(data=placed(0, b"a") + placed(1, b"b"), high_watermark=Offset(1))
    bench.follow(3)

    bench.answer_fetch(diverging=end_of(1, 1))

    assert (bench.position.offset, bench.position.last_epoch) == (1, 1)
    assert bench.reasons == []


def test_a_follower_stops_rather_than_cuts_what_was_committed(bench: ReplicationBench) -> None:
    bench.follow(1)
    bench.answer_fetch(data=placed(0, b"a") + placed(1, b"b"), high_watermark=Offset(2))
    bench.follow(3)

    bench.answer_fetch(diverging=end_of(1, 1))

    assert bench.log.end_offset == 2
    assert bench.replica.follower is not None
    assert bench.replica.follower.phase is Phase.STOPPED
    assert "records below 2 were committed" in bench.reasons[0]
    assert bench.position.leader_epoch == 1  # the fetch of the role before


@pytest.mark.parametrize("way", ["image", "topic"])
def test_after_an_unclean_election_it_cuts_what_was_committed(way: str) -> None:
    bench = ReplicationBench({"unclean.leader.election.enable": str(way == "topic").lower()})
    bench.follow(1)
    bench.answer_fetch(data=placed(0, b"a") + placed(1, b"b"), high_watermark=Offset(2))
    recovery = LeaderRecovery.RECOVERING if way == "image" else LeaderRecovery.RECOVERED
    bench.follow(3, recovery=recovery)

    bench.answer_fetch(diverging=end_of(1, 1))

    assert (bench.log.end_offset, bench.log.high_watermark, bench.reasons) == (1, 1, [])


def test_a_follower_below_the_leaders_start_starts_again_there(bench: ReplicationBench) -> None:
    bench.follow()
    bench.answer_fetch(error=ReplicaError.OFFSET_OUT_OF_RANGE)

    bench.queries.pop()(LogBounds(Offset(50), Offset(60)))

    assert (bench.log.state.start, bench.position.offset) == (50, 50)


def test_a_follower_adopts_the_start_of_the_leader(bench: ReplicationBench) -> None:
    bench.follow()

    bench.answer_fetch(
        data=placed(0, b"a") + placed(1, b"b"), high_watermark=Offset(2), log_start=Offset(1)
    )

    assert bench.log.state.start == 1


def test_a_follower_whose_leader_starts_inside_of_a_batch_behind_it_starts_with_that_batch(
    bench: ReplicationBench,
) -> None:
    bench.follow()
    bench.answer_fetch(data=placed(0, b"a") + placed(1, b"b"), high_watermark=Offset(1))
    answer = {"data": placed(1, b"x", b"y", b"z"), "high_watermark": Offset(4)}

    bench.answer_fetch(**answer, log_start=Offset(2))
    assert (bench.position.offset, bench.position.last_epoch) == (2, -1)
    bench.answer_fetch(**answer, log_start=Offset(2))

    assert (bench.log.state.start, bench.log.high_watermark, bench.position.offset) == (2, 4, 4)


def test_an_error_is_tried_again_after_a_while(bench: ReplicationBench) -> None:
    bench.follow()

    bench.answer_fetch(error=ReplicaError.UNKNOWN_LEADER_EPOCH)
    assert bench.fetches == []
    bench.scheduler.advance(0.2)

    assert len(bench.fetches) == 1


def test_a_batch_that_does_not_fit_is_fetched_again(bench: ReplicationBench) -> None:
    bench.follow()

    bench.answer_fetch(data=placed(7, b"a"), high_watermark=Offset(0))
    bench.scheduler.advance(0.2)

    assert bench.position.offset == 0


def test_an_answer_for_an_earlier_role_is_ignored(bench: ReplicationBench) -> None:
    bench.follow(1)
    late = bench.fetches.pop()
    bench.follow(2)

    late[2]([])

    assert bench.log.end_offset == 0
    assert bench.position.leader_epoch == 2


@pytest.mark.parametrize(
    ("told", "own", "end", "cut"),
    [
        (end_of(3, 40), end_of(3, 60), 90, 40),  # the leader wrote less of that epoch
        (end_of(3, 70), end_of(3, 60), 90, 60),  # this log has less of it, then another epoch
        (end_of(3, 70), end_of(2, 30), 90, 30),  # this log does not have that epoch
        (end_of(3, 70), UNKNOWN_EPOCH_END, 50, 50),
    ],
)
def test_logs_are_the_same_up_to_the_smaller_end_of_a_shared_epoch(
    told: EpochEnd, own: EpochEnd, end: int, cut: int
) -> None:
    assert cut_for(told, own, Offset(end)) == cut

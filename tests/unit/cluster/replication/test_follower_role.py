"""A follower: it fetches from its safe end, appends verbatim, and cuts by epoch."""

from __future__ import annotations

import pytest

from cordwood.cluster.image.partition_image import LeaderRecovery
from cordwood.cluster.replication.epoch_truncation import cut_for
from cordwood.cluster.replication.follower_role import Phase
from cordwood.cluster.replication.replica_fetch import LogBounds, ReplicaError
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.rules.leader_epochs import UNKNOWN_EPOCH_END, EpochEnd
from cordwood.quantities import LeaderEpoch, Offset
from fakes.client_batches import client_batch
from fakes.replication_bench import ReplicationBench
from fakes.simulated_store import log_of, open_store


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


def test_a_follower_in_sync_appends_without_a_job() -> None:
    bench = ReplicationBench({"durability": "os"})
    bench.follow()
    bench.answer_fetch(data=placed(0, b"a"), high_watermark=Offset(1))  # begins the epoch
    bench.waiting_jobs = []

    bench.answer_fetch(data=placed(1, b"b") + placed(2, b"c"), high_watermark=Offset(2))

    assert bench.waiting_jobs == []
    assert (bench.position.offset, bench.log.high_watermark) == (3, 2)


def test_a_follower_that_catches_up_appends_by_a_job() -> None:
    bench = ReplicationBench({"durability": "os"})
    bench.follow(in_sync=(2, 3))
    bench.answer_fetch(data=placed(0, b"a"), high_watermark=Offset(1))
    bench.waiting_jobs = []

    bench.answer_fetch(data=placed(1, b"b"), high_watermark=Offset(2))
    assert (bench.log.end_offset, bench.fetches) == (1, [])
    bench.run_jobs()

    assert bench.position.offset == 2


def test_what_must_wait_for_the_disk_is_appended_by_a_job() -> None:
    bench = ReplicationBench({"durability": "os", "internal.segment.bytes": 250})
    bench.follow()
    batches = [placed(number, b"v%02d" % number) for number in range(9)]
    bench.answer_fetch(data=batches[0], high_watermark=Offset(1))
    bench.waiting_jobs = []

    bench.answer_fetch(data=b"".join(batches[1:]), high_watermark=Offset(1))
    assert bench.fetches == []
    bench.run_jobs()

    assert (bench.position.offset, bench.log.end_offset) == (9, 9)


def test_a_batch_that_the_loop_cannot_append_pauses_the_follower() -> None:
    bench = ReplicationBench({"durability": "os"})
    bench.follow()
    bench.answer_fetch(data=placed(0, b"a"), high_watermark=Offset(1))

    bench.answer_fetch(data=placed(5, b"b"), high_watermark=Offset(1))

    assert bench.replica.follower is not None
    assert bench.replica.follower.phase is Phase.PAUSED
    assert "a batch begins at offset 5" in bench.troubles[0]


def test_a_follower_waits_while_its_disk_is_short_of_room(bench: ReplicationBench) -> None:
    bench.follow()
    bench.note_room(is_short=True)

    for _ in range(3):
        bench.answer_fetch(data=placed(0, b"a", b"b"), high_watermark=Offset(2))
        assert (bench.log.end_offset, bench.fetches) == (0, [])
        bench.scheduler.advance(1)
        assert bench.position.bytes_max == 1
    bench.note_room(is_short=False)
    bench.answer_fetch(data=placed(0, b"a", b"b"), high_watermark=Offset(2))

    assert (bench.position.offset, bench.position.bytes_max) == (2, None)
    [trouble] = bench.troubles
    assert "less disk space left than log.dir.free.bytes.min = 1000" in trouble


def test_a_follower_that_has_everything_stays_in_sync_without_room(
    bench: ReplicationBench,
) -> None:
    bench.follow()
    bench.answer_fetch(data=placed(0, b"a"), high_watermark=Offset(0))
    bench.note_room(is_short=True)

    bench.answer_fetch(high_watermark=Offset(1))

    assert bench.log.high_watermark == 1
    assert bench.position.offset == 1  # it asks again, without a pause
    assert bench.troubles == []


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


def test_a_follower_that_cannot_read_an_answer_tries_again_and_says_why(
    bench: ReplicationBench,
) -> None:
    bench.follow()
    bench.answer_fetch(data=placed(0, b"a"), high_watermark=Offset(1))
    old_format = bytearray(placed(0, b"a"))
    old_format[16] = 1

    bench.answer_fetch(data=bytes(old_format), log_start=Offset(1), high_watermark=Offset(1))
    assert bench.fetches == []
    assert "magic" in bench.troubles[0]
    bench.scheduler.advance(0.1)

    bench.answer_fetch(data=placed(1, b"b"), high_watermark=Offset(2))
    assert bench.position.offset == 2


def test_the_same_trouble_is_told_once_until_it_is_over(bench: ReplicationBench) -> None:
    bench.follow()
    damaged = placed(0, b"a")[:-1] + b"x"

    for _ in range(3):
        bench.answer_fetch(data=damaged, high_watermark=Offset(0))
        bench.scheduler.advance(0.1)
    assert len(bench.troubles) == 1

    bench.answer_fetch(data=placed(0, b"a"), high_watermark=Offset(0))
    bench.answer_fetch(data=placed(1, b"a")[:-1] + b"x", high_watermark=Offset(0))
    assert len(bench.troubles) == 2


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_follower_takes_what_compaction_left_whatever_the_topic_is_now(policy: str) -> None:
    bench = ReplicationBench({"cleanup.policy": policy})
    bench.follow()
    values = [(3, b"a"), (4, b"b"), (9, b"c")]
    data = b"".join(placed(offset, value) for offset, value in values)

    bench.answer_fetch(data=data, high_watermark=Offset(10))

    assert bench.troubles == []
    assert bench.position.offset == 10
    assert [(record.offset, record.value) for record in bench.log.read()] == values
    bench.store.close()
    with open_store(bench.fs, role=AMONG_OTHERS) as store:
        again = log_of(store)
        assert again.damages == []
        assert again.source.allows_gaps  # also if the topic is never compacted again
        assert [(record.offset, record.value) for record in again.read()] == values


def test_a_gap_is_noted_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ReplicationBench()
    bench.follow()
    bench.answer_fetch(data=placed(0, b"a"), high_watermark=Offset(1))
    ends: list[int] = []
    directory = next(iter(bench.store.directories))
    save = directory.save_cleaned

    def noted() -> None:
        ends.append(bench.log.end_offset)
        save()

    monkeypatch.setattr(directory, "save_cleaned", noted)
    bench.answer_fetch(data=placed(1, b"b") + placed(5, b"c"), high_watermark=Offset(6))
    bench.answer_fetch(data=placed(8, b"d"), high_watermark=Offset(9))

    assert ends == [2]
    assert bench.log.end_offset == 9


def test_a_leader_that_does_not_lead_yet_is_asked_again_at_once(bench: ReplicationBench) -> None:
    bench.follow()

    bench.answer_fetch(error=ReplicaError.NOT_LEADER_OR_FOLLOWER)
    bench.scheduler.advance(0.01)

    assert len(bench.fetches) == 1


def test_refusals_that_go_on_are_asked_again_ever_less_often(bench: ReplicationBench) -> None:
    bench.follow()
    pauses: list[float] = []

    for _ in range(7):
        bench.answer_fetch(error=ReplicaError.UNKNOWN_LEADER_EPOCH)
        before_s, due_s = bench.scheduler.now_s(), bench.scheduler.next_due_s
        assert due_s is not None
        bench.scheduler.advance(due_s - before_s)
        pauses.append(round(due_s - before_s, 3))

    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.1, 0.1, 0.1]  # the backoff of the bench

"""A replica moves to another directory, as a leader and as a follower."""

from __future__ import annotations

import pytest

from cordwood.cluster.cluster_control import IsrAnswer
from cordwood.cluster.replication.new_log import Phase
from cordwood.cluster.replication.replica_fetch import ReplicaError
from cordwood.cluster.replication.replica_move import ReplicaMove, copy_part
from cordwood.errors import NotLeaderError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.topics.replica_swap import NewReplica
from cordwood.quantities import LeaderEpoch, Offset
from fakes.client_batches import client_batch
from fakes.replication_bench import PLACE, ReplicationBench
from fakes.simulated_store import TOPIC
from unit.cluster.replication.test_follower_role import placed

FIRST = LeaderEpoch(1)


class MoveBench:
    """Node 1 of three. The files of the move are this object."""

    def __init__(self) -> None:
        self.node = ReplicationBench({"segment.records": "2"})
        self.outcomes: list[PartitionLog | str | None] = []
        self.made = 0
        self.swap_error: OSError | None = None
        self.new: NewReplica | None = None

    def move(self, *, may_part_as_leader: bool = True) -> ReplicaMove:
        def made() -> None:
            self.made += 1

        move = ReplicaMove(
            self.node.replica,
            self,
            may_part_as_leader=may_part_as_leader,
            when_made=made,
            when_over=self.outcomes.append,
        )
        move.start()
        return move

    def begin(self) -> PartitionLog:
        topic = self.node.store.topic(TOPIC)
        self.new = self.node.store.hosting.swaps.begin(TOPIC, topic.topic_id, 0)
        return self.new.log

    def swap(self) -> PartitionLog:
        assert self.new is not None
        if self.swap_error is not None:
            raise self.swap_error
        return self.node.store.hosting.swaps.swap(self.new)

    def give_up(self) -> None:
        if self.new is not None:
            self.node.store.hosting.swaps.give_up(self.new)

    @property
    def outcome(self) -> PartitionLog:
        [found] = self.outcomes
        assert isinstance(found, PartitionLog), found
        return found

    def host(self) -> None:
        """The broker takes the new log in, as `HostedLogs` does."""
        self.node.replicas.drop(PLACE)
        self.node.log = self.outcome
        self.node.replica = self.node.replicas.host(PLACE, self.outcome)


@pytest.fixture
def bench() -> MoveBench:
    return MoveBench()


def values(log: PartitionLog) -> list[bytes | None]:
    log.replica.raise_high_watermark(log.end_offset)
    return [record.value for record in log.read()]


def test_a_leader_moves_with_all_its_records_and_leads_on_in_its_epoch(bench: MoveBench) -> None:
    node = bench.node
    node.lead()
    for value in (b"a", b"b", b"c"):
        node.append(value)
    old = node.log
    node.fetch_from(2, 2)
    node.fetch_from(3, 2)

    bench.move().copy()
    assert bench.outcome.high_watermark == 2
    bench.host()
    node.append(b"d")

    assert old.is_closed
    assert node.replica.leader is not None
    assert node.replica.leader.epoch == 1
    assert values(bench.outcome) == [b"a", b"b", b"c", b"d"]
    assert bench.outcome.replica.end_of(FIRST).end_offset == 4


def test_a_late_fetch_of_an_earlier_life_does_not_count_at_the_leader_that_moved(
    bench: MoveBench,
) -> None:
    node = bench.node
    node.lead()
    node.append(b"a")
    bench.move().copy()
    bench.host()

    late = node.fetch_from(2, 1, life=199)

    assert late.error is ReplicaError.NOT_LEADER_OR_FOLLOWER
    assert node.replica.leader is not None
    assert node.replica.leader.replicas[2].end == -1
    assert node.fetch_from(2, 1, life=200).error is ReplicaError.NONE


def test_nothing_is_copied_before_its_turn(bench: MoveBench) -> None:
    bench.node.lead()
    bench.node.append(b"a")

    move = bench.move()

    assert (move.new.phase, bench.made) == (Phase.WAITING, 1)
    assert bench.node.replica.leader is not None


def test_whoever_waits_for_records_is_told_that_the_leadership_ended(bench: MoveBench) -> None:
    answers: list[bool] = []
    bench.node.lead()
    end = bench.node.append(b"a")
    bench.node.replica.await_committed(end, FIRST, answers.append)

    bench.move().copy()

    assert answers == [False]


def test_a_log_that_was_set_aside_takes_no_more_records(bench: MoveBench) -> None:
    bench.node.lead()
    bench.node.append(b"a")

    bench.node.replica.set_aside()

    with pytest.raises(NotLeaderError):
        bench.node.log.batches.append_batch(client_batch(b"b"), wait=False, led_in=FIRST)


def test_a_leader_does_not_part_before_its_image_has_every_replica_in_sync(
    bench: MoveBench,
) -> None:
    node = bench.node
    node.lead(in_sync=(1, 2))
    node.append(b"a")
    node.fetch_from(2, 1)
    node.fetch_from(3, 1)  # caught up: the controllers are asked to let it in
    move = bench.move()
    move.copy()
    assert move.new.phase is Phase.COPYING

    node.answer_isr(IsrAnswer.MADE, in_sync=(1, 2, 3), partition_epoch=11)
    node.scheduler.advance(1)
    assert move.new.phase is Phase.COPYING  # the image does not have it yet
    node.lead(in_sync=(1, 2, 3), version=11)
    node.scheduler.advance(1)

    assert values(bench.outcome) == [b"a"]


def test_a_coordinator_moves_once_another_broker_leads(bench: MoveBench) -> None:
    node = bench.node
    node.lead()
    node.append(b"a")
    move = bench.move(may_part_as_leader=False)
    move.copy()
    node.append(b"b")
    node.scheduler.advance(5)
    assert move.new.phase is Phase.COPYING

    node.follow(2)
    node.scheduler.advance(1)

    assert values(bench.outcome) == [b"a", b"b"]


def test_a_follower_moves_and_fetches_on_from_where_it_was(bench: MoveBench) -> None:
    node = bench.node
    node.follow(1)
    node.answer_fetch(data=placed(0, b"a", b"b"), high_watermark=Offset(1), log_start=Offset(0))

    bench.move().copy()
    assert bench.outcome.high_watermark == 1
    bench.host()

    position = node.position
    assert (position.offset, position.last_epoch, position.high_watermark) == (2, 1, 1)
    assert values(bench.outcome) == [b"a", b"b"]


def test_what_the_old_log_deleted_meanwhile_is_not_in_the_new_one(bench: MoveBench) -> None:
    node = bench.node
    node.lead(in_sync=(1, 2))
    for value in (b"a", b"b", b"c", b"d"):
        node.append(value)
    node.fetch_from(2, 4)
    move = bench.move(may_part_as_leader=False)
    move.copy()
    node.log.delete_before(3)

    node.follow(2)
    node.scheduler.advance(1)

    assert (bench.outcome.start_offset, values(bench.outcome)) == (3, [b"d"])


def test_what_the_old_log_cut_off_is_cut_from_the_new_one(bench: MoveBench) -> None:
    node = bench.node
    node.follow(1)
    node.answer_fetch(
        data=placed(0, b"a") + placed(1, b"b"), high_watermark=Offset(1), log_start=Offset(0)
    )
    new = bench.begin()
    new.replica.follow(LeaderEpoch(3))
    copy_part(node.log, new, LeaderEpoch(3))
    assert new.end_offset == 2

    node.log.replica.follow(LeaderEpoch(3))
    node.log.replica.truncate(Offset(1), leader_epoch=LeaderEpoch(3))
    node.log.replica.append(placed(1, b"B", epoch=2), leader_epoch=LeaderEpoch(3))
    while copy_part(node.log, new, LeaderEpoch(3)):
        pass

    assert values(new) == [b"a", b"B"]


def test_a_copy_keeps_to_the_limit_until_it_has_caught_up(bench: MoveBench) -> None:
    node = bench.node
    node.lead()
    for number in range(6):
        node.append(b"%d" % number)
    node.replica.site.node.quotas.moves.limit = 10

    move = bench.move()
    move.copy()
    assert move.new.phase is Phase.COPYING
    copied = move.new.log.end_offset
    node.scheduler.advance(1)
    assert move.new.log.end_offset == copied
    node.scheduler.advance(200)

    assert 0 < copied < 6
    assert len(values(bench.outcome)) == 6


def test_a_copy_waits_while_the_disk_is_short_of_room(bench: MoveBench) -> None:
    node = bench.node
    node.lead()
    node.append(b"a")

    node.note_room(is_short=True)
    move = bench.move()
    move.copy()
    node.scheduler.advance(5)
    copied = move.new.log.end_offset
    node.note_room(is_short=False)
    node.scheduler.advance(1)

    assert copied == 0
    assert values(bench.outcome) == [b"a"]


def test_a_swap_that_fails_leaves_the_old_replica_leading(bench: MoveBench) -> None:
    node = bench.node
    node.lead()
    node.append(b"a")
    bench.swap_error = OSError(5, "Input/output error")

    bench.move().copy()
    node.append(b"b")

    assert bench.outcomes == ["[Errno 5] Input/output error"]
    assert values(node.log) == [b"a", b"b"]
    futures = [entry for entry in node.fs.list("/data") if entry.name.endswith("-future")]
    assert futures == []


def test_a_move_that_is_given_up_leaves_nothing(bench: MoveBench) -> None:
    node = bench.node
    node.follow(1)
    move = bench.move()

    move.give_up()
    move.copy()

    assert bench.outcomes == [None]
    assert node.replica.follower is not None
    assert not [entry for entry in node.fs.list("/data") if entry.name.endswith("-future")]

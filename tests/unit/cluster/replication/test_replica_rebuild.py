"""A replica that is fetched again beside its old files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cordwood.cluster.image.partition_image import LeaderRecovery
from cordwood.cluster.replication.new_log import Phase
from cordwood.cluster.replication.replica_fetch import (
    BoundsQuery,
    FetchedPartition,
    LogBounds,
    ReplicaError,
)
from cordwood.cluster.replication.replica_rebuild import CopyQuery, ReplicaRebuild
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.topics.replica_swap import NewReplica
from cordwood.quantities import LeaderEpoch, Offset
from fakes.client_batches import client_batch
from fakes.replication_bench import PLACE, ReplicationBench
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC, log_of, new_log, open_store

VALUES = [b"%d" % number for number in range(10)]


class RebuildBench:
    """Node 1 follows node 2, whose log is real, too. The rebuild asks this object for copies."""

    def __init__(self, *, old_values: int = 0) -> None:
        self.node = ReplicationBench()
        self.copies: list[tuple[CopyQuery, Callable[[FetchedPartition | None], None]]] = []
        self.queries: list[Callable[[LogBounds | None], None]] = []
        self.outcomes: list[PartitionLog | str | None] = []
        self.new: NewReplica | None = None
        self.high_watermark = len(VALUES)
        _, self.leader = new_log(SimulatedFileSystem(), role=AMONG_OTHERS)
        self.leader.replica.lead(LeaderEpoch(1))
        for value in VALUES:
            self.leader.batches.append_batch(client_batch(value), led_in=LeaderEpoch(1))
        self.leader.sync()
        self.node.follow(in_sync=(1, 2))
        if old_values:
            self.node.answer_fetch(
                data=self.batches(0, old_values), high_watermark=Offset(0), log_start=Offset(0)
            )

    def rebuild(self, *, is_forced: bool = False) -> ReplicaRebuild:
        rebuild = ReplicaRebuild(
            self.node.replica, self, self, is_forced=is_forced, when_over=self.outcomes.append
        )
        rebuild.start()
        rebuild.copy()
        return rebuild

    def batches(self, start: int, stop: int) -> bytes:
        out = b""
        while start < stop:
            found = self.leader.replica.read(Offset(start), max_bytes=1)
            assert found is not None
            out += bytes(found.file.read_at(found.position, found.length))
            start += 1
        return out

    # --- the source ------------------------------------------------------------------------------

    def copy(
        self, leader: int, query: CopyQuery, when_done: Callable[[FetchedPartition | None], None]
    ) -> None:
        assert leader == 2
        self.copies.append((query, when_done))

    def bounds(
        self, leader: int, query: BoundsQuery, when_done: Callable[[LogBounds | None], None]
    ) -> None:
        self.queries.append(when_done)

    def answer_bounds(self, start: int = 0, end: int = len(VALUES)) -> None:
        self.queries.pop()(LogBounds(Offset(start), Offset(end)))

    def answer_copy(self, count: int = 0, **fields: Any) -> None:
        query, when_done = self.copies.pop()
        when_done(
            FetchedPartition(
                **{
                    "place": PLACE,
                    "data": self.batches(query.offset, query.offset + count),
                    "high_watermark": Offset(self.high_watermark),
                    "log_start": Offset(0),
                    **fields,
                }
            )
        )

    # --- the files -------------------------------------------------------------------------------

    def begin(self) -> PartitionLog:
        topic = self.node.store.topic(TOPIC)
        self.new = self.node.store.hosting.swaps.begin(TOPIC, topic.topic_id, 0)
        return self.new.log

    def swap(self) -> PartitionLog:
        assert self.new is not None
        return self.node.store.hosting.swaps.swap(self.new)

    def give_up(self) -> None:
        if self.new is not None:
            self.node.store.hosting.swaps.give_up(self.new)

    @property
    def outcome(self) -> PartitionLog:
        [found] = self.outcomes
        assert isinstance(found, PartitionLog), found
        return found


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.read()]


def is_following(bench: RebuildBench) -> bool:
    return bench.node.replica.follower is not None


def damaged(bench: RebuildBench) -> None:
    bench.node.log.replica._damage.first_offset = Offset(1)


def test_a_new_replica_has_what_is_committed_and_takes_the_place_of_the_old_one() -> None:
    bench = RebuildBench(old_values=4)
    old = bench.node.log

    bench.rebuild()
    bench.answer_bounds()
    bench.answer_copy(6)
    assert bench.copies[-1][0].offset == 6
    bench.answer_copy(4)

    assert values(bench.outcome) == VALUES
    assert bench.outcome.high_watermark == 10
    assert old.is_closed
    assert bench.node.store.topic(TOPIC).partition(0) is bench.outcome


def test_a_sound_replica_follows_until_the_copy_has_caught_up() -> None:
    bench = RebuildBench(old_values=4)
    rebuild = bench.rebuild()
    bench.answer_bounds()

    assert is_following(bench)  # it still fetches
    bench.high_watermark = 2
    bench.answer_copy(2)

    assert not is_following(bench)
    assert rebuild.new.phase is Phase.COPYING  # the leader counts four records of this replica
    bench.high_watermark = 4
    bench.node.scheduler.advance(0.1)
    bench.answer_copy(2)
    assert values(bench.outcome) == VALUES[:4]


def test_a_sound_replica_goes_on_if_the_new_one_does_not_reach_its_end_soon() -> None:
    bench = RebuildBench(old_values=4)
    rebuild = bench.rebuild()
    bench.answer_bounds()
    bench.high_watermark = 2
    bench.answer_copy(2)

    for _ in range(100):
        bench.node.scheduler.advance(0.02)
        if bench.copies:
            bench.answer_copy()
        if is_following(bench):
            break

    assert is_following(bench)
    assert rebuild.new.phase is Phase.COPYING
    assert not bench.outcomes


def test_a_damaged_replica_is_swapped_only_when_no_clean_election_takes_it() -> None:
    bench = RebuildBench(old_values=4)
    damaged(bench)
    rebuild = bench.rebuild()
    assert not is_following(bench)  # it does not fetch with a damaged log
    bench.answer_bounds()
    bench.high_watermark = 2
    bench.answer_copy(2)
    assert rebuild.new.phase is Phase.COPYING  # it is in sync, and two records are missing

    bench.node.follow(in_sync=(2,), version=11)
    bench.node.scheduler.advance(0.1)
    bench.answer_copy()

    assert values(bench.outcome) == VALUES[:2]


@pytest.mark.parametrize("is_eligible", [True, False])
def test_an_eligible_replica_may_be_elected_too(is_eligible: bool) -> None:
    bench = RebuildBench(old_values=4)
    damaged(bench)
    bench.rebuild()
    bench.answer_bounds()
    bench.high_watermark = 2
    bench.node.follow(in_sync=(2,), eligible=(1,) if is_eligible else (), version=11)

    bench.answer_copy(2)

    assert bool(bench.outcomes) is not is_eligible


def test_a_leader_that_lost_records_does_not_replace_the_last_copy() -> None:
    bench = RebuildBench(old_values=4)
    bench.node.log.replica.raise_high_watermark(Offset(4))
    bench.rebuild()

    bench.answer_bounds(end=3)

    [reason] = bench.outcomes
    assert isinstance(reason, str)
    assert "ends at 3, before the committed end 4" in reason
    assert not bench.node.log.is_closed
    assert is_following(bench)


def test_an_operator_may_accept_that_the_leader_has_less() -> None:
    bench = RebuildBench(old_values=4)
    bench.node.log.replica.raise_high_watermark(Offset(4))
    damaged(bench)
    bench.node.follow(in_sync=(2,), version=11)
    bench.rebuild(is_forced=True)

    bench.answer_bounds(end=3)
    bench.high_watermark = 3
    bench.answer_copy(3)

    assert values(bench.outcome) == VALUES[:3]


def test_a_replica_that_is_elected_gives_up_and_leads_with_its_old_log() -> None:
    bench = RebuildBench(old_values=4)
    rebuild = bench.rebuild()
    bench.answer_bounds()

    bench.node.lead(2)
    rebuild.image_changed()

    assert bench.outcomes == [None]
    assert bench.node.replica.leader is not None
    assert bench.node.store.directories.future_replicas() == {}


def test_a_log_that_is_about_to_be_replaced_does_not_lead_any_more() -> None:
    bench = RebuildBench(old_values=4)
    rebuild = bench.rebuild()
    bench.answer_bounds()
    bench.high_watermark = 4
    bench.answer_copy(3)
    node = bench.node
    node.waiting_jobs = []  # the disk takes its time
    bench.answer_copy(1)
    node.waiting_jobs[0]()  # the append, after which the swap waits for the disk
    assert rebuild.new.phase is Phase.SWAPPING

    node.lead(2)
    rebuild.image_changed()
    swap, *others = node.waiting_jobs[1:]
    for job in others:
        job()
    assert node.replica.leader is None  # or it would take records that the new one lacks
    swap()
    node.waiting_jobs = None
    node.replicas.drop(PLACE)
    replica = node.replicas.host(PLACE, bench.outcome)

    assert replica.leader is not None
    assert replica.leader.epoch_start == 4


def test_a_log_that_was_set_aside_leads_if_it_is_not_replaced_after_all() -> None:
    bench = RebuildBench(old_values=4)
    rebuild = bench.rebuild()
    bench.answer_bounds()
    bench.high_watermark = 2
    bench.answer_copy(2)
    assert not is_following(bench)
    assert rebuild.new.phase is Phase.COPYING

    bench.node.lead(2)
    rebuild.image_changed()

    assert bench.outcomes == [None]
    assert bench.node.replica.leader is not None


def test_another_leader_is_asked_after_an_election() -> None:
    bench = RebuildBench(old_values=4)
    bench.rebuild()
    bench.answer_bounds()
    bench.node.follow(2, in_sync=(1, 2))

    bench.answer_copy(error=ReplicaError.FENCED_LEADER_EPOCH, data=b"")
    bench.node.scheduler.advance(1)

    assert bench.copies[-1][0].leader_epoch == 2
    bench.answer_copy(10)
    assert values(bench.outcome) == VALUES


def test_an_unclean_election_and_a_deletion_start_the_copy_again() -> None:
    bench = RebuildBench(old_values=4)
    bench.rebuild()
    bench.answer_bounds()
    bench.answer_copy(2)
    bench.node.follow(2, in_sync=(2,), recovery=LeaderRecovery.RECOVERING)
    bench.answer_copy(error=ReplicaError.FENCED_LEADER_EPOCH, data=b"")
    bench.node.scheduler.advance(1)
    bench.answer_bounds()
    assert bench.copies[-1][0].offset == 0

    bench.answer_copy(error=ReplicaError.OFFSET_OUT_OF_RANGE, data=b"")
    bench.answer_bounds(start=3)

    assert bench.copies[-1][0].offset == 3


def test_a_silent_leader_is_asked_again() -> None:
    bench = RebuildBench(old_values=4)
    bench.rebuild()
    bench.queries.pop()(None)
    bench.node.scheduler.advance(1)
    bench.answer_bounds()
    bench.copies.pop()[1](None)
    bench.node.scheduler.advance(1)

    bench.answer_copy(10)

    assert values(bench.outcome) == VALUES


def test_a_new_replica_may_lack_offsets_that_the_leader_compacted_away() -> None:
    bench = RebuildBench()
    bench.rebuild()
    bench.answer_bounds()
    gap = bytearray(bench.batches(0, 1))
    gap[0:8] = (7).to_bytes(8, "big")  # the offset is not part of the checksum

    bench.high_watermark = 8
    bench.answer_copy(data=bytes(gap))

    assert [record.offset for record in bench.outcome.read()] == [7]
    assert bench.outcome.damages == []
    bench.node.store.close()
    with open_store(bench.node.fs, role=AMONG_OTHERS) as store:
        assert log_of(store).damages == []


def test_a_rebuild_waits_while_the_disk_is_short_of_room() -> None:
    bench = RebuildBench()
    rebuild = bench.rebuild()
    bench.node.note_room(is_short=True)

    bench.answer_bounds()
    bench.node.scheduler.advance(5)
    asked = len(bench.copies)
    bench.node.note_room(is_short=False)
    bench.node.scheduler.advance(1)

    assert asked == 0
    assert len(bench.copies) == 1
    assert rebuild.new.phase is Phase.COPYING

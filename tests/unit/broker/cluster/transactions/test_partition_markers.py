"""Markers in partitions that this broker leads: they count when the replicas in sync have them."""

from __future__ import annotations

from typing import Any

from cordwood.broker.cluster.transactions.partition_markers import PartitionMarkers
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.log.rules.transaction_rules import TransactionRules
from cordwood.log.transactions.marker_writer import WantedMarker
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch, ProducerId
from fakes.client_batches import client_batch
from fakes.replication_bench import ReplicationBench

EVENTS = ("events", 0)


class Leader(ReplicationBench):
    """A replica that may lead, and the markers that it is told to write."""

    def __init__(self) -> None:
        super().__init__()
        self.markers = PartitionMarkers(
            PartitionTable(self.store, self),  # type: ignore[arg-type]
            self.store.committed_offsets,
            data=self.scheduler,
            request_sync=lambda _log: self.sync_log(),
            clock=self.clock,
        )

    def replica_of(self, log: object) -> Any:
        return self.replica if log is self.log else None

    def why_absent(self, wanted: object, partition: int) -> ErrorCode:
        return ErrorCode.unknown_topic_or_partition

    def begin(self) -> None:
        """A transaction of producer 7 is open in the log."""
        self.lead()
        batch = client_batch(b"a", producer_id=7, sequence=0, transactional=True)
        rules = TransactionRules(may_begin=True, starts_at_zero=False)
        self.log.batches.append_batch(batch, wait=False, transaction=rules, led_in=LeaderEpoch(1))
        self.sync_log()

    def write(self, *, place: tuple[str, int] = EVENTS, coordinator: int = 3) -> list[ErrorCode]:
        codes: list[ErrorCode] = []
        marker = WantedMarker(
            place=place,
            producer_id=ProducerId(7),
            epoch=0,
            is_commit=True,
            version=0,
            coordinator_epoch=coordinator,
        )
        self.markers.write([marker], codes.extend)
        self.scheduler.run_ready()
        return codes


def test_a_marker_counts_when_the_replicas_in_sync_have_it() -> None:
    leader = Leader()
    leader.begin()

    codes = leader.write()
    before = list(codes)
    for node in (2, 3):
        leader.fetch_from(node, 2)

    assert before == []
    assert codes == [ErrorCode.none]
    assert leader.log.last_stable_offset == 2


def test_a_marker_of_a_leadership_that_ends_does_not_count() -> None:
    leader = Leader()
    leader.begin()
    codes = leader.write()

    leader.follow(2)

    assert codes == [ErrorCode.not_leader_or_follower]


def test_a_follower_and_a_stranger_are_no_place_for_markers() -> None:
    leader = Leader()
    leader.follow()

    assert leader.write() == [ErrorCode.not_leader_or_follower]
    assert leader.write(place=("gone", 0)) == [ErrorCode.unknown_topic_or_partition]
    assert leader.log.end_offset == 0


def test_with_too_few_replicas_in_sync_nothing_is_written() -> None:
    leader = Leader()
    leader.begin()
    leader.lead(in_sync=(1,), version=11)

    assert leader.write() == [ErrorCode.not_enough_replicas]
    assert leader.log.end_offset == 1


def test_a_coordinator_that_was_replaced_is_refused() -> None:
    leader = Leader()
    leader.begin()
    leader.write(coordinator=5)
    for node in (2, 3):
        leader.fetch_from(node, 2)

    assert leader.write(coordinator=4) == [ErrorCode.transaction_coordinator_fenced]
    assert leader.log.end_offset == 2


def test_a_marker_that_is_not_replicated_for_long_is_told_to_be_late() -> None:
    leader = Leader()
    leader.begin()
    codes = leader.write()

    leader.scheduler.advance(19)
    before = list(codes)
    leader.scheduler.advance(2)
    for node in (2, 3):
        leader.fetch_from(node, 2)

    assert before == []
    assert codes == [ErrorCode.request_timed_out]

"""Which replicas are fetched again, and in which order."""

from __future__ import annotations

from collections.abc import Callable

from cordwood.broker.cluster.replicas.copy_turns import COPIES_MAX
from cordwood.broker.cluster.replicas.replica_rebuilds import ReplicaRebuilds
from cordwood.cluster.replication.replica_fetch import (
    BoundsQuery,
    FetchedPartition,
    LogBounds,
    PartitionPlace,
)
from cordwood.cluster.replication.replica_rebuild import CopyQuery
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import Offset
from unit.broker.cluster.replicas.test_replica_moves import ID, PARTITIONS, MovesBench


class RebuildsBench(MovesBench):
    """All ports of the copies are this object."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: dict[int, Callable[[LogBounds | None], None]] = {}
        self.failures: list[str] = []
        self.rebuilds = ReplicaRebuilds(
            self.store.hosting.swaps,
            self,
            loop=self.loop,
            topic_name={ID: "orders"}.get,
            when_replaced=self.moved,
            when_failed=lambda _place, reason: self.failures.append(reason),
        )
        self.rebuilds.serve(self.replicas)

    def bounds(
        self, leader: int, query: BoundsQuery, when_done: Callable[[LogBounds | None], None]
    ) -> None:
        self.queries[query.place.partition] = when_done

    def copy(
        self, leader: int, query: CopyQuery, when_done: Callable[[FetchedPartition | None], None]
    ) -> None:
        when_done(
            FetchedPartition(place=query.place, high_watermark=Offset(0), log_start=Offset(0))
        )

    def rebuild(self, number: int) -> None:
        self.rebuilds.begin(PartitionPlace(ID, number), self.codes.append)
        self.loop.run_ready()

    def log(self, number: int) -> PartitionLog:
        return self.store.topic("orders").partition(number)


def test_every_rebuild_is_shown_until_it_is_over_although_they_take_turns() -> None:
    bench = RebuildsBench()
    old = [bench.log(number) for number in range(PARTITIONS)]

    for number in range(PARTITIONS):
        bench.rebuild(number)
    begun = sorted(number for numbers in bench.futures().values() for number in numbers)
    asked_at_first = set(bench.queries)
    while bench.queries:
        number = next(iter(bench.queries))
        bench.queries.pop(number)(LogBounds(Offset(0), Offset(0)))
        bench.loop.run_ready()

    assert bench.codes == [ErrorCode.none] * PARTITIONS
    assert begun == list(range(PARTITIONS))
    assert len(asked_at_first) == COPIES_MAX < PARTITIONS
    assert bench.futures() == {}
    assert all(bench.log(number) is not old[number] for number in range(PARTITIONS))
    assert not bench.failures

"""The files of a replica that takes the place of another: fetched again, or moved."""

from cordwood.cluster.replication.replica_fetch import PartitionPlace
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.topics.replica_swap import NewReplica, ReplicaSwap


class SwapFiles:
    """A `NewLogFiles`. The new log is in the data directory `into`, or in that of the old one."""

    def __init__(
        self, swaps: ReplicaSwap, topic: str, place: PartitionPlace, *, into: str | None = None
    ) -> None:
        self._swaps = swaps
        self._topic = topic
        self._place = place
        self._into = into
        self._new: NewReplica | None = None

    def begin(self) -> PartitionLog:
        place = self._place
        self._new = self._swaps.begin(self._topic, place.topic_id, place.partition, into=self._into)
        return self._new.log

    def swap(self) -> PartitionLog:
        assert self._new is not None
        return self._swaps.swap(self._new)

    def give_up(self) -> None:
        if self._new is not None:
            self._swaps.give_up(self._new)

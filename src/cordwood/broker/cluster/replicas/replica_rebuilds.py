"""Replicas of this broker that are fetched again: which, why, and what becomes of them.

A replica that was damaged when it was opened is rebuilt by itself, once another broker leads. One
that stopped because its leader has other records is rebuilt only if an operator says so: it may
have the last copy.

The new directory is there before a request is answered, so DescribeLogDirs shows every rebuild
that is not over. Then they take turns to copy.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import UUID

from cordwood.broker.cluster.replicas.copy_turns import CopyTurns
from cordwood.broker.cluster.replicas.swap_files import SwapFiles
from cordwood.broker.net.loop.scheduler import Scheduler
from cordwood.cluster.image.partition_image import NO_LEADER
from cordwood.cluster.replication.new_log import Phase
from cordwood.cluster.replication.node_replicas import NodeReplicas
from cordwood.cluster.replication.replica_fetch import PartitionPlace
from cordwood.cluster.replication.replica_rebuild import CopySource, ReplicaRebuild
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.topics.replica_swap import ReplicaSwap
from cordwood.protocol.error_code import ErrorCode

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 60.0


class ReplicaRebuilds:
    """Belongs to the data loop; `want` and `begin` may be called by any thread.

    `when_replaced` is called with a log that took the place of another, `when_failed` with the
    reason if that was not possible.
    """

    def __init__(
        self,
        swaps: ReplicaSwap,
        source: CopySource,
        *,
        loop: Scheduler,
        topic_name: Callable[[UUID], str | None],
        when_replaced: Callable[[PartitionPlace, PartitionLog], None],
        when_failed: Callable[[PartitionPlace, str], None],
    ) -> None:
        self._swaps = swaps
        self._source = source
        self._loop = loop
        self._topic_name = topic_name
        self._when_replaced = when_replaced
        self._when_failed = when_failed
        self._replicas: NodeReplicas | None = None
        self._running: dict[PartitionPlace, ReplicaRebuild] = {}
        self._turns = CopyTurns()
        self._failed_s: dict[PartitionPlace, float] = {}
        self._begun: dict[PartitionPlace, list[Callable[[ErrorCode], None]]] = {}
        self._is_stopped = False

    def serve(self, replicas: NodeReplicas) -> None:
        self._replicas = replicas

    def stop(self) -> None:
        """Begin nothing more. What was not complete is removed at the next start."""
        self._is_stopped = True
        self._turns.stop()

    # --- wishes ------------------------------------------------------------------------------

    def want(self, place: PartitionPlace) -> None:
        """A follower found its log damaged. It is rebuilt soon, or a while after a failure."""
        self._loop.call_soon(partial(self._want, place))

    def _want(self, place: PartitionPlace) -> None:
        failed_s = self._failed_s.get(place)
        wait_s = 0.0 if failed_s is None else failed_s + _AGAIN_S - self._loop.now_s()
        if wait_s > 0:
            self._loop.call_later(wait_s, partial(self._want_still, place))
        else:
            self._begin(place, is_forced=False)

    def _want_still(self, place: PartitionPlace) -> None:
        replica = None if self._replicas is None else self._replicas.get(place)
        if replica is not None and replica.site.log.replica.damaged_from is not None:
            self._begin(place, is_forced=False)

    def begin(self, place: PartitionPlace, when_begun: Callable[[ErrorCode], None]) -> None:
        """An operator wants it. `when_begun` is called in the data loop: with the reason if it
        cannot be, or once there is a new log.
        """

        def begin() -> None:
            self._failed_s.pop(place, None)
            code = self._begin(place, is_forced=True)
            rebuild = self._running.get(place)
            if rebuild is None or rebuild.new.phase is not Phase.MAKING:
                when_begun(code)
            else:
                self._begun.setdefault(place, []).append(when_begun)

        self._loop.call_soon(begin)

    def _made(self, place: PartitionPlace) -> None:
        for when_begun in self._begun.pop(place, ()):
            when_begun(ErrorCode.none)
        self._turns.wait(place, self._running[place].copy)

    def _begin(self, place: PartitionPlace, *, is_forced: bool) -> ErrorCode:
        replica = None if self._replicas is None else self._replicas.get(place)
        name = self._topic_name(place.topic_id)
        if self._is_stopped or replica is None or replica.image is None or name is None:
            return ErrorCode.replica_not_available
        if replica.image.leader == NO_LEADER:
            return ErrorCode.leader_not_available
        if replica.image.leader == replica.site.node.node_id:
            return ErrorCode.invalid_replica_assignment
        if place in self._running:
            return ErrorCode.none
        logger.warning(
            "%s-%d is fetched again from broker %d", name, place[1], replica.image.leader
        )
        files = SwapFiles(self._swaps, name, place)
        rebuild = ReplicaRebuild(
            replica,
            self._source,
            files,
            is_forced=is_forced,
            when_over=partial(self._over, place),
            when_made=partial(self._made, place),
        )
        self._running[place] = rebuild
        rebuild.start()
        return ErrorCode.none

    # --- events ------------------------------------------------------------------------------

    def image_changed(self) -> None:
        """The newest image was applied to all replicas."""
        assert self._replicas is not None
        for place, rebuild in list(self._running.items()):
            if self._replicas.get(place) is rebuild.replica:
                rebuild.image_changed()
            else:
                rebuild.give_up()  # it was moved away

    def _over(self, place: PartitionPlace, outcome: PartitionLog | str | None) -> None:
        self._running.pop(place, None)
        self._turns.leave(place)
        for when_begun in self._begun.pop(place, ()):
            when_begun(ErrorCode.kafka_storage_error)  # there never was a new log
        name = f"{self._topic_name(place.topic_id) or place.topic_id}-{place.partition}"
        if isinstance(outcome, PartitionLog):
            logger.warning("%s was fetched again: it ends at %d", name, outcome.end_offset)
            self._when_replaced(place, outcome)
        elif outcome is not None:
            self._failed_s[place] = self._loop.now_s()
            self._when_failed(place, f"it could not be fetched again: {outcome}")

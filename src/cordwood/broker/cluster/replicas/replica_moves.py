"""Replicas of this broker that move to another of its data directories (AlterReplicaLogDirs).

A request is answered when the new directory is there, so that DescribeLogDirs shows the move. Then
the moves take turns to copy. The newest request for a replica counts: it ends the one before. A
request for the directory that the replica is in already ends it, too, as in Kafka.
"""

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from cordwood.broker.cluster.replicas.copy_turns import CopyTurns
from cordwood.broker.cluster.replicas.swap_files import SwapFiles
from cordwood.broker.net.loop.scheduler import Scheduler
from cordwood.cluster.replication.node_replicas import NodeReplicas
from cordwood.cluster.replication.replica_fetch import PartitionPlace
from cordwood.cluster.replication.replica_move import ReplicaMove
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.topics.replica_swap import ReplicaSwap
from cordwood.protocol.error_code import ErrorCode

logger = logging.getLogger(__name__)

_COORDINATED: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})

WhenBegun = Callable[[ErrorCode], None]


class _Wish(NamedTuple):
    """Where a replica should be, and who asked."""

    path: str
    when_begun: WhenBegun


class ReplicaMoves:
    """Belongs to the data loop; `begin` may be called by any thread.

    `when_moved` is called with a log that took the place of another.
    """

    def __init__(
        self,
        swaps: ReplicaSwap,
        *,
        loop: Scheduler,
        topic_name: Callable[[UUID], str | None],
        when_moved: Callable[[PartitionPlace, PartitionLog], None],
    ) -> None:
        self._swaps = swaps
        self._loop = loop
        self._topic_name = topic_name
        self._when_moved = when_moved
        self._replicas: NodeReplicas | None = None
        self._moves: dict[PartitionPlace, ReplicaMove] = {}
        self._paths: dict[PartitionPlace, str] = {}  # where those under way go
        self._begun: dict[PartitionPlace, WhenBegun] = {}  # who waits for the new directory
        self._next: dict[PartitionPlace, _Wish] = {}  # after the move that is under way
        self._turns = CopyTurns()
        self._is_stopped = False

    def serve(self, replicas: NodeReplicas) -> None:
        self._replicas = replicas

    def stop(self) -> None:
        """Begin nothing more. What was not complete is removed at the next start."""
        self._is_stopped = True
        self._next.clear()
        self._turns.stop()
        for move in list(self._moves.values()):
            move.give_up()

    # --- wishes ------------------------------------------------------------------------------

    def begin(self, place: PartitionPlace, path: str, when_begun: WhenBegun) -> None:
        """Move a replica to the data directory `path`.

        `when_begun` is called in the data loop once that is under way, refused or done.
        """
        self._loop.call_soon(partial(self._begin, place, _Wish(path, when_begun)))

    def _begin(self, place: PartitionPlace, wish: _Wish) -> None:
        running = self._moves.get(place)
        if running is not None and self._paths[place] == wish.path:
            wish.when_begun(ErrorCode.none)
            return
        if running is not None:
            overtaken = self._next.pop(place, None)
            if overtaken is not None:
                overtaken.when_begun(ErrorCode.none)
            self._next[place] = wish
            running.give_up()  # unless it is nearly done; then it moves on afterwards
            return
        replica = None if self._replicas is None else self._replicas.get(place)
        name = self._topic_name(place.topic_id)
        if self._is_stopped or replica is None or name is None:
            wish.when_begun(ErrorCode.replica_not_available)
            return
        log = replica.site.log
        if os.path.dirname(log.directory) == wish.path:
            wish.when_begun(ErrorCode.none)
            return
        if log.replica.damaged_from is not None:
            wish.when_begun(ErrorCode.kafka_storage_error)  # it is fetched again first
            return
        logger.info("%s-%d moves to %s", name, place.partition, wish.path)
        self._begun[place] = wish.when_begun
        self._paths[place] = wish.path
        move = self._moves[place] = ReplicaMove(
            replica,
            SwapFiles(self._swaps, name, place, into=wish.path),
            may_part_as_leader=name not in _COORDINATED,
            when_made=partial(self._made, place),
            when_over=partial(self._over, place),
        )
        move.start()

    # --- events ------------------------------------------------------------------------------

    def image_changed(self) -> None:
        """The newest image was applied to all replicas."""
        assert self._replicas is not None
        for place, move in list(self._moves.items()):
            if self._replicas.get(place) is move.replica:
                move.image_changed()
            else:
                move.give_up()  # the replica was moved away, or its disk failed

    def _made(self, place: PartitionPlace) -> None:
        self._begun.pop(place)(ErrorCode.none)
        self._turns.wait(place, self._moves[place].copy)

    def _over(self, place: PartitionPlace, outcome: PartitionLog | str | None) -> None:
        self._moves.pop(place, None)
        path = self._paths.pop(place)
        self._turns.leave(place)
        name = f"{self._topic_name(place.topic_id) or place.topic_id}-{place.partition}"
        if isinstance(outcome, PartitionLog):
            logger.info("%s is in %s now", name, path)
            self._when_moved(place, outcome)
        elif outcome is not None:
            logger.error("%s could not be moved to %s: %s", name, path, outcome)
        else:
            logger.info("%s does not move to %s any more", name, path)
        begun = self._begun.pop(place, None)
        if begun is not None:  # there never was a new log
            is_given_up = outcome is None and not self._is_stopped
            begun(ErrorCode.none if is_given_up else ErrorCode.kafka_storage_error)
        wish = self._next.pop(place, None)
        if wish is not None:
            self._begin(place, wish)

"""Producers, consumers and coordinators of a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cordwood.cluster.replication.replica_fetch import ReplicaError
from cordwood.errors import OutOfOrderSequenceError
from fakes.client_batches import client_batch
from simulation import invariants
from simulation.network import Reply
from simulation.node import WALL_MS, Life

if TYPE_CHECKING:
    from simulation.cluster import Cluster

REQUEST_TIMEOUT_MS = 250.0


class Producer:
    """Sends batches one after the other. An idempotent one sends again until it is answered.

    `sent` and `acknowledged` have the checksums of the batches.
    """

    def __init__(
        self, cluster: Cluster, number: int, client: int, *, acks_all: bool, is_idempotent: bool
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self.number = number
        self.client = client
        self._acks_all = acks_all
        self.is_idempotent = is_idempotent
        self.sent: list[int] = []
        self.acknowledged: set[int] = set()
        self.acknowledged_end = 0
        self._data = b""
        self._target = 0
        self._is_resending = False
        self.is_stopping = False
        self.is_done = False

    def start(self) -> None:
        self._next()

    def _next(self) -> None:
        if self.is_stopping:
            self.is_done = True
            return
        count = self._world.rng.randint(1, 3)
        values = [b"%d:%d:%d" % (self.client, len(self.sent), n) for n in range(count)]
        self._data = bytes(
            client_batch(
                *values,
                timestamps=[WALL_MS] * count,
                producer_id=self.client if self.is_idempotent else -1,
                sequence=self._sequence if self.is_idempotent else -1,
            )
        )
        self._record_count = count
        self.sent.append(int.from_bytes(self._data[17:21], "big"))
        self._is_resending = False
        self._send()

    _sequence = 0
    _record_count = 0

    def _send(self) -> None:
        number, data, crc = self.number, self._data, self.sent[-1]
        target = self._leader() if self._world.chance(0.8) else self._any_node()

        def serve(life: Life, reply: Reply) -> None:
            life.serve_produce(number, data, acks_all=self._acks_all, reply=reply)

        self._cluster.ask(
            self.client,
            target,
            serve,
            lambda answer: self._answered(crc, answer),
            REQUEST_TIMEOUT_MS,
        )

    def _leader(self) -> int:
        leader = self._cluster.controller.partitions[self.number].leader
        return leader if leader >= 0 else self._any_node()

    def _any_node(self) -> int:
        return self._world.rng.choice(list(self._cluster.nodes))

    def _answered(self, crc: int, answer: Any) -> None:
        assert crc == self.sent[-1]
        error, base = (ReplicaError.NOT_LEADER_OR_FOLLOWER, -1) if answer is None else answer
        if error is None:
            self.acknowledged.add(crc)
            self.acknowledged_end = max(self.acknowledged_end, base + self._record_count)
            self._sequence += self._record_count
            self._world.at(self._pause_ms(), self._next)
        elif isinstance(error, OutOfOrderSequenceError):
            if not self._cluster.history.of(self.number).is_lossy:
                raise invariants.Violation(12, f"producer {self.client}: {error}")
            self.is_done = True
        elif self.is_idempotent:
            self._world.at(self._world.between(3, 30), self._send)
        else:
            self._world.at(self._pause_ms(), self._next)  # it may be stored or not

    def _pause_ms(self) -> float:
        return self._world.between(1, self._cluster.produce_pause_ms)


class Consumer:
    """Reads committed batches from any replica, in order."""

    def __init__(self, cluster: Cluster, number: int, client: int) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._number = number
        self._client = client
        self._offset = 0

    def start(self) -> None:
        number, offset = self._number, self._offset
        target = self._world.rng.choice(list(self._cluster.nodes))

        def serve(life: Life, reply: Reply) -> None:
            life.serve_read(number, offset, reply)

        self._cluster.ask(self._client, target, serve, self._answered, REQUEST_TIMEOUT_MS)

    def _answered(self, entries: Any) -> None:
        if entries:
            self._offset = entries[-1].next
            if self._world.chance(0.03):
                self._offset = 0  # it reads everything again
        self._world.at(self._world.between(20, 60), self.start)


class CoordinatorCheck:
    """Loads the commits from the leader's log, as a coordinator does that takes over."""

    def __init__(self, cluster: Cluster, producers: list[Producer]) -> None:
        self._cluster = cluster
        self._producers = producers

    def start(self) -> None:
        for producer in self._producers:
            self._check(producer)
        self._cluster.world.at(self._cluster.world.between(40, 120), self.start)

    def _check(self, producer: Producer) -> None:
        cluster, number = self._cluster, producer.number
        image = cluster.controller.partitions[number]
        if not image.has_leader or cluster.history.of(number).is_lossy:
            return
        life = cluster.nodes[image.leader].life
        for replica in () if life is None else life.replicas:
            role = replica.leader
            if replica.site.place.partition != number or role is None:
                continue
            if role.epoch == image.leader_epoch and role.knows_committed_end:
                who = f"the coordinator on node {image.leader}"
                invariants.check_commits(
                    who, producer.acknowledged_end, replica.site.log.high_watermark
                )

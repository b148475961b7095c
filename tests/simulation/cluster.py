"""One simulated cluster: what the seed decides about it, its faults, and its end.

    simulate(seed)    runs the faults, heals everything, waits, and checks the rest

The seed decides the size, the settings, the clients, and every fault. The same seed gives the same
run, event for event.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest import mock

from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.cluster.replication import replica_move
from cordwood.cluster.replication.replication_quota import NO_LIMIT, ReplicationQuotas
from simulation import invariants
from simulation.clients import Consumer, CoordinatorCheck, Producer
from simulation.controller import Controller
from simulation.history import History, entries_of
from simulation.network import Network, Reply
from simulation.node import Life, Node, topic_config
from simulation.world import World

FAULTS_MS = 1300.0
HEALING_MS = 300.0  # with clients
CONVERGENCE_MS_MAX = 20_000.0  # until nothing more is to be done


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one run has seen."""

    seed: int
    events: int
    commits: int
    elections: int
    cuts: int
    faults: int


class Cluster:
    """Owns everything of one run."""

    def __init__(self, seed: int, *, has_moves: bool = False) -> None:
        world = self.world = World(seed)
        rng = world.rng
        # With chances of their own: the runs without them stay as they are.
        self._move_rng = Random(seed) if has_moves else None
        self.is_throttled = self._move_rng is not None and self._move_rng.random() < 0.5
        self.move_count = 0
        node_count = rng.choice((3, 3, 3, 4))
        self.min_isr = rng.choice((1, 2, 2, 2, 3))
        self.is_disk = rng.random() < 0.75
        self.is_unclean_allowed = rng.random() < 0.06
        self.has_disk_faults = rng.random() < 0.1
        self.has_bad_clocks = rng.random() < 0.3
        self.cannot_vouch: set[int] = set()  # nodes that may have to register without vouching
        self.failed_disks: set[int] = set()
        self.session_ms = 250.0
        self.lag_max_ms = rng.choice((100, 200))
        self.fetch_bytes = rng.choice((300, 1 << 20))
        self.disk_max_ms = rng.choice((1.0, 1.0, 8.0, 25.0))
        self.produce_pause_ms = rng.choice((15.0, 40.0, 150.0, 900.0))
        self.topic_config = topic_config(
            "disk" if self.is_disk else "os",
            self.min_isr,
            is_unclean_allowed=self.is_unclean_allowed,
            is_throttled=self.is_throttled,
        )
        self.network = Network(world)
        self.controller = Controller(
            world,
            session_ms=self.session_ms,
            min_isr=self.min_isr,
            is_unclean_allowed=self.is_unclean_allowed,
        )
        self.history = History(self)
        self.nodes = {number: Node(self, number) for number in range(node_count)}
        self.controller.when_changed = self._publish
        self.controller.when_isr_made = self.history.note_isr_made
        self.partition_count = rng.choice((1, 1, 1, 2))
        self.producers: list[Producer] = []
        self.is_healed = False
        self.fault_count = 0

    # --- running -------------------------------------------------------------------------------

    def run(self) -> Report:
        world = self.world
        for node in self.nodes.values():
            node.start()
        self._check_sessions()
        world.run_until(120)
        for number in range(self.partition_count):
            shifted = [(number + n) % len(self.nodes) for n in range(3)]
            self.controller.create(number, tuple(shifted))
        world.run_until(200)
        self._start_clients()
        self._plan_faults()
        if self._move_rng is not None:
            self._plan_moves(self._move_rng)
        world.run_until(200 + FAULTS_MS)
        self._heal()
        world.run_until(world.now_ms + HEALING_MS)
        for producer in self.producers:
            producer.is_stopping = True
        last_ms = world.now_ms + CONVERGENCE_MS_MAX
        while world.now_ms < last_ms and not self._has_converged():
            world.run_until(world.now_ms + 60)
        self._check_end()
        return Report(
            seed=world.seed,
            events=world.event_count,
            commits=self.history.commit_count,
            elections=self.history.election_count,
            cuts=self.history.cut_count,
            faults=self.fault_count,
        )

    def _start_clients(self) -> None:
        client = 1000
        for number in range(self.partition_count):
            for acks_all, is_idempotent in ((True, True), (True, True), (False, False)):
                client += 1
                self.producers.append(
                    Producer(self, number, client, acks_all=acks_all, is_idempotent=is_idempotent)
                )
            consumer = Consumer(self, number, client + 500)
            self.world.at(self.world.between(0, 30), consumer.start)
        for producer in self.producers:
            self.world.at(self.world.between(0, 30), producer.start)
        CoordinatorCheck(self, [p for p in self.producers if p.is_idempotent]).start()

    def _check_sessions(self) -> None:
        self.controller.check_sessions()
        self.world.at(15, self._check_sessions)

    def _publish(self) -> None:
        """Every change is sent to all nodes; who misses it, asks."""
        self.history.note_image()
        image = self.controller.image
        for node_id in self.nodes:
            self.network.send(-1, node_id, self._delivery(node_id, image))

    def _delivery(self, node_id: int, image: MetadataImage) -> Callable[[], None]:
        return lambda: self.deliver(node_id, lambda life: life.take_image(image))

    def image_as_of(self, image: Any) -> Any:
        """The image that a node has when it learns of its registration."""
        return image

    def deliver(self, node_id: int, event: Callable[[Life], None]) -> None:
        life = self.nodes[node_id].life
        if life is not None:
            life.at(0, lambda: event(life))

    def ask(
        self,
        client: int,
        target: int,
        serve: Callable[[Life, Reply], None],
        when_done: Reply,
        timeout_ms: float,
    ) -> None:
        """A request of a client."""
        self.network.call(
            client,
            target,
            lambda reply: self.deliver(target, lambda life: serve(life, reply)),
            when_done,
            at=self.world.at,
            timeout_ms=timeout_ms,
        )

    # --- faults --------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        rng = self.world.rng
        network = self.network
        network.loss = rng.choice((0.0, 0.0, 0.02, 0.08))
        network.duplication = rng.choice((0.0, 0.05))
        network.slow_share = rng.choice((0.0, 0.03, 0.2))
        network.slow_ms = rng.choice((200.0, 900.0))
        kinds = [
            self._crash,
            self._crash,
            self._lose_power,
            self._lose_power,
            self._isolate,
            self._cut_one_way,
            self._pause,
            self._leave,
            self._reassign,
            self._delete_records,
            self._lose_all_power,
            self._jump_clock,
        ]
        if self.has_disk_faults:
            kinds.append(self._fail_sync)
        chosen = rng.sample(kinds, rng.randint(3, len(kinds)))
        for _ in range(rng.randint(2, 14)):
            self.world.at(rng.random() * FAULTS_MS, self._fault(rng.choice(chosen)))

    def _plan_moves(self, rng: Random) -> None:
        """Replicas move to other directories all the time, leaders and followers."""
        for _ in range(rng.randint(5, 40)):
            node_id = rng.choice(list(self.nodes))
            number = rng.randrange(self.partition_count)
            self.world.at(
                rng.random() * (FAULTS_MS + HEALING_MS),
                lambda node_id=node_id, number=number: self.deliver(  # type: ignore[misc]
                    node_id, lambda life: life.moves.begin(number)
                ),
            )

    def new_quotas(self) -> ReplicationQuotas:
        """The limits of a broker, small enough to be felt."""
        quotas = ReplicationQuotas()
        if self._move_rng is not None:
            if self.is_throttled:
                quotas.leader.limit = self._move_rng.choice((3_000, 30_000))
                quotas.follower.limit = self._move_rng.choice((3_000, 30_000))
            quotas.moves.limit = self._move_rng.choice((NO_LIMIT, 30_000))
        return quotas

    def _fault(self, kind: Callable[[Node], None]) -> Callable[[], None]:
        def happen() -> None:
            if not self.is_healed:
                self.fault_count += 1
                kind(self.nodes[self.world.rng.choice(list(self.nodes))])

        return happen

    def _note_down(self, life: Life) -> None:
        """A life ends. Copies of its last fetch may be on the way for long."""
        self.history.note_down(life)
        if not self.is_disk and not life.node.was_orderly:
            self.cannot_vouch.add(life.node_id)  # what it counted may be gone
        known = self.controller.brokers.get(life.node_id)
        if (
            known is not None
            and known.image.incarnation == life.incarnation
            and life.broker_epoch != known.image.epoch
        ):
            # It was registered and never learned its epoch: the next life cannot name it.
            self.cannot_vouch.add(life.node_id)
        if life.last_fetch is not None and self.world.chance(0.5):
            leader, fetch = life.last_fetch
            for _ in range(4):
                self.world.at(
                    self.world.between(0, 900),
                    lambda: self.deliver(
                        leader, lambda other: other.serve_fetch(fetch, lambda _answer: None)
                    ),
                )

    def kill(self, node: Node) -> None:
        if node.life is not None:
            self._note_down(node.life)
            node.kill()
            self._restart_later(node)

    def stop_orderly(self, node: Node) -> None:
        """The controller let it go: it syncs everything and ends."""
        life = node.life
        if life is None:
            return
        life.replicas.close()
        for log in life.owner.logs.values():
            log.close()
        node.was_orderly = all(log.state.failure is None for log in life.owner.logs.values())
        self.kill(node)

    def _restart_later(self, node: Node) -> None:
        delay_ms = self.world.between(5, 500)

        def restart() -> None:
            if node.life is None:
                node.start()

        self.world.at(delay_ms, restart)

    def _crash(self, node: Node) -> None:
        self.kill(node)

    def _lose_power(self, node: Node) -> None:
        if node.life is not None:
            self._note_down(node.life)
            node.cut_power()
            self._restart_later(node)

    def _lose_all_power(self, _node: Node) -> None:
        for node in self.nodes.values():
            self._lose_power(node)

    def _isolate(self, node: Node) -> None:
        """Cut off from the controller, from the other nodes, or from all."""
        others = [other for other in self.nodes if other != node.node_id]
        away = self.world.rng.choice(([-1], others, [-1, *others]))
        cuts = {(node.node_id, n) for n in away} | {(n, node.node_id) for n in away}
        self._cut_for_a_while(cuts)

    def _cut_one_way(self, node: Node) -> None:
        others = [-1, *[other for other in self.nodes if other != node.node_id]]
        other = self.world.rng.choice(others)
        cut = (node.node_id, other) if self.world.chance(0.5) else (other, node.node_id)
        self._cut_for_a_while({cut})

    def _cut_for_a_while(self, cuts: set[tuple[int, int]]) -> None:
        self.network.cuts |= cuts
        mend_ms = self.world.between(50, 700)
        self.world.at(mend_ms, lambda: self.network.cuts.difference_update(cuts))

    def _pause(self, node: Node) -> None:
        if node.life is not None:
            node.life.paused_until_ms = self.world.now_ms + self.world.between(50, 600)

    def _leave(self, node: Node) -> None:
        if node.life is not None:
            node.life.wants_shutdown = True

    def _jump_clock(self, node: Node) -> None:
        if node.life is not None:
            node.life.clock.wall_error_ms += self.world.between(-1e8, 1e8)

    def _reassign(self, node: Node) -> None:
        if len(self.nodes) < 4:
            return
        number = self.world.rng.randrange(self.partition_count)
        wanted = self.world.rng.sample(sorted(self.nodes), 3)
        self.controller.reassign(number, tuple(wanted))

    def _delete_records(self, node: Node) -> None:
        for replica in () if node.life is None else node.life.replicas:
            log = replica.site.log
            if replica.leader is not None and log.high_watermark > log.state.start:
                cut = self.world.rng.randint(log.state.start, log.high_watermark)
                self.history.of(log.partition).note_deletion(cut)
                log.deletion.drop_local_before(cut)

    def _fail_sync(self, node: Node) -> None:
        node.fs.fail_next("sync", OSError(errno.EIO, "the disk failed"), path_ends=".log")

    def _heal(self) -> None:
        self.is_healed = True
        self.network.heal()
        for node in self.nodes.values():
            node.fs.clear_faults()
            if node.life is not None:
                node.life.paused_until_ms = -1.0

    # --- the end -------------------------------------------------------------------------------

    def _has_converged(self) -> bool:
        stopped = {number for _, number in self.history.stopped}
        for number, image in self.controller.partitions.items():
            if number in stopped:
                continue
            if set(image.in_sync) != set(image.replicas) or not image.has_leader:
                return False
            lives = [self.nodes[node_id].life for node_id in image.replicas]
            logs = [life.owner.logs.get(number) for life in lives if life is not None]
            ends = {(log.end_offset, log.high_watermark) for log in logs if log is not None}
            if len(logs) < len(lives) or None in logs or len(ends) != 1:
                return False
            if any(end != high_watermark for end, high_watermark in ends):
                return False
        return all(p.is_done for p in self.producers if p.number not in stopped)

    def _check_end(self) -> None:
        for number, image in self.controller.partitions.items():
            is_whole = set(image.in_sync) == set(image.replicas) and image.has_leader
            stopped = {key: why for key, why in self.history.stopped.items() if key[1] == number}
            if stopped and self.history.of(number).is_lossy:
                continue  # it was down during an unclean election, and waits for help
            invariants.check_converged(
                f"partition {number} is {image}; stopped: {stopped}", holds=is_whole
            )
            self._check_replicas(number, image.leader, image.replicas)
        for producer in self.producers:
            if any(number == producer.number for _, number in self.history.stopped):
                continue
            invariants.check_converged(
                f"producer {producer.client} waits for an answer", holds=producer.is_done
            )
            if not self.history.of(producer.number).is_lossy:
                self._check_producer(producer)

    def _check_replicas(self, number: int, leader: int, replicas: tuple[int, ...]) -> None:
        history = self.history.of(number)
        logs = {}
        for node_id in replicas:
            life = self.nodes[node_id].life
            assert life is not None
            logs[node_id] = life.owner.logs[number]
            self.history.check_epochs(node_id, number, logs[node_id])
        start = max(log.state.start for log in logs.values())
        expected = {entry.base: entry for entry in entries_of(logs[leader], start)}
        for node_id, log in logs.items():
            entries = entries_of(log, start)
            invariants.check_agreement(f"node {node_id}", entries, expected)
            invariants.check_converged(
                f"node {node_id} ends at {log.end_offset} with the high watermark "
                f"{log.high_watermark}, the leader ends at {logs[leader].end_offset}",
                holds=log.high_watermark == log.end_offset == logs[leader].end_offset,
            )
        if not history.is_lossy:
            for entry in history.committed.values():
                if entry.base >= start:
                    invariants.check_read([entry], expected)

    def _check_producer(self, producer: Producer) -> None:
        if not producer.is_idempotent:
            return
        committed = self.history.of(producer.number).committed
        own = set(producer.sent)
        base_of: dict[int, int] = {}
        deleted_to = self.history.of(producer.number).deleted_to
        stored: list[int] = []
        for base in sorted(committed):
            crc = committed[base].crc
            if crc not in own:
                continue
            if crc in stored and base_of[crc] < deleted_to:
                # With its records, a log forgets a producer at the next start, as in Kafka.
                stored.remove(crc)
            stored.append(crc)
            base_of[crc] = base
        invariants.check_exactly_once(producer.client, producer.sent, producer.acknowledged, stored)


def simulate(seed: int) -> Report:
    """One run. Raises `Violation` if something must not happen."""
    return Cluster(seed).run()


def simulate_moves(seed: int) -> int:
    """One run in which replicas move between directories, in small parts; how many did."""
    cluster = Cluster(seed, has_moves=True)
    with mock.patch.object(replica_move, "_PART_BYTES_MAX", 400):
        cluster.run()
    return cluster.move_count

"""A simulated broker: the real machines and the real log, on a simulated disk and network.

A node has lives. A kill ends a life and leaves everything that was written; a power cut leaves
what was synced, and any part of the rest. Events of a life that ended are not run; events of a
life that is paused wait.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cordwood.cluster.cluster_control import IsrAnswer, IsrChange, IsrOutcome
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage
from cordwood.cluster.replication.node_replicas import NodeReplicas, assigned_places
from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.cluster.replication.replica_fetch import (
    BoundsQuery,
    FetchedPartition,
    FollowerRead,
    LogBounds,
    PartitionPlace,
    ReplicaError,
    ReplicaFetch,
)
from cordwood.cluster.replication.replica_move import ReplicaMove
from cordwood.cluster.replication.replication_ports import NodePorts, ReplicationConfig
from cordwood.cluster.replication.vouching import BrokerEpochFile, vouched_epoch
from cordwood.errors import (
    CordwoodError,
    NotLeaderError,
    OutOfOrderSequenceError,
    StorageError,
)
from cordwood.format.file_names import LOG_START, RECOVERY_POINT
from cordwood.log.partition.log_loader import LoadRequest, load_log
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.disk_health import DiskHealth
from cordwood.log.partition.state.log_parts import LogParts, segment_limits
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.rules.duration_histogram import SharedHistogram
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import LeaderEpoch, Offset, TimestampMs
from cordwood.storage.disk.flusher import Syncable
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.small_files.checkpoint_file import (
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from cordwood.storage.small_files.high_watermark_file import HighWatermarkFile
from fakes.simulated_fs import SimulatedFileSystem
from simulation import invariants
from simulation.controller import TOPIC, TOPIC_ID
from simulation.network import CONTROLLER, Reply

if TYPE_CHECKING:
    from simulation.cluster import Cluster

DATA = "/data"
WALL_MS = 1_700_000_000_000
HEARTBEAT_MS = 70.0
RPC_TIMEOUT_MS = 150.0
FETCH_WAIT_MS = 60
FUTURE = ".future"


class LifeClock:
    """Wall time with an error, and monotonic time at a pace of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._world = cluster.world
        self.wall_error_ms = 0.0
        self.pace = 1.0

    def now_ms(self) -> TimestampMs:
        return TimestampMs(int(WALL_MS + self._world.now_ms + self.wall_error_ms))

    def monotonic(self) -> float:
        return self._world.now_ms * self.pace / 1000


class NoFlusher:
    def request(self, log: Syncable) -> None:
        """Whoever needs a sync asks the life for it."""


class LogOwner:
    """Keeps the checkpoints of one node, as a log directory does."""

    def __init__(self, fs: SimulatedFileSystem) -> None:
        self._fs = fs
        self.health = DiskHealth(DATA)
        self.logs: dict[int, PartitionLog] = {}

    def save_recovery_points(self) -> None:
        points = {(TOPIC, number): log.state.recovery_point for number, log in self.logs.items()}
        write_offset_checkpoint(self._fs, DATA, RECOVERY_POINT, points)

    def save_unsaved_recovery_points(self) -> None:
        self.save_recovery_points()

    def save_log_starts(self) -> None:
        starts = {(TOPIC, number): log.state.start for number, log in self.logs.items()}
        write_offset_checkpoint(self._fs, DATA, LOG_START, starts)

    def save_cleaned(self) -> None:
        """Nothing is compacted here."""

    def delete_later(self, paths: Sequence[str], delay_ms: int) -> None:
        for path in paths:
            self._fs.remove(path)


class Timer:
    def __init__(self, function: Callable[[], None]) -> None:
        self.function: Callable[[], None] | None = function

    def cancel(self) -> None:
        self.function = None

    def __call__(self) -> None:
        function, self.function = self.function, None
        if function is not None:
            function()


class Node:
    """One machine: a disk, and the life that runs on it, if one does."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.fs = SimulatedFileSystem()
        self.fs.make_directory(DATA)
        self.fs.sync_directory("/")
        self.life: Life | None = None
        self.life_count = 0
        self.was_orderly = False  # the last life closed its logs, as the marker on the disk says

    def start(self) -> None:
        assert self.life is None
        self.life_count += 1
        self.life = Life(self)
        try:
            self.life.start()
        except OSError:  # a disk that fails while a log is opened
            self.life.disk_failed()

    def kill(self) -> None:
        """The process ends: what was written stays."""
        if self.life is not None:
            self.life.is_alive = False
            self.life = None
            self.fs = self.fs.kill()

    def cut_power(self) -> None:
        if self.life is not None:
            self.life.is_alive = False
            self.life = None
        self.fs = self.fs.crash(Random(self.cluster.world.rng.getrandbits(32)))


class Life:
    """One life of a node. It is the scheduler, the disk and the transport of its machines."""

    def __init__(self, node: Node) -> None:
        cluster = node.cluster
        self.node = node
        self.node_id = node.node_id
        self.cluster = cluster
        self.world = cluster.world
        self.fs = node.fs
        self.is_alive = True
        self.paused_until_ms = -1.0
        self.clock = LifeClock(cluster)
        if cluster.has_bad_clocks:
            self.clock.pace = self.world.between(0.8, 1.25)
            self.clock.wall_error_ms = self.world.between(-1e7, 1e7)
        self.incarnation = UUID(int=self.world.rng.getrandbits(128))
        self.owner = LogOwner(self.fs)
        self.epoch_file = BrokerEpochFile(self.fs, DATA)
        self.image: MetadataImage = NO_METADATA
        self.broker_epoch = -1
        self.heard_s = 0.0
        self.wants_shutdown = False
        self.seen_high_watermark: dict[int, Offset] = {}
        self.led: set[tuple[int, int]] = set()
        self.last_fetch: tuple[int, ReplicaFetch] | None = None
        self._waiting_fetches: list[_WaitingFetch] = []
        self.moves = Moves(self)
        self._syncing: set[int] = set()
        self._moved: set[int] = set()
        self.replicas = NodeReplicas(
            NodePorts(
                node_id=self.node_id,
                control=self,
                disk=self,
                transport=self,
                scheduler=self,
                listener=self,
                config=ReplicationConfig(
                    lag_max_ms=cluster.lag_max_ms,
                    fetch_wait_max_ms=FETCH_WAIT_MS,
                    partition_bytes_max=cluster.fetch_bytes,
                    backoff_ms=20,
                    isr_retry_ms=20,
                ),
                quotas=cluster.new_quotas(),
            ),
            when_moved=self._leader_moved,
        )

    # --- time ----------------------------------------------------------------------------------

    def at(self, delay_ms: float, event: Callable[[], None]) -> None:
        """Run `event` in this life, later: not if it ended, and not while it is paused."""

        def run() -> None:
            if not self.is_alive:
                return
            left_ms = self.paused_until_ms - self.world.now_ms
            if left_ms > 0:
                self.world.at(left_ms, run)
            else:
                event()

        self.world.at(delay_ms, run)

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        timer = Timer(function)
        self.at(delay_s * 1000 / self.clock.pace, timer)
        return timer

    def now_s(self) -> float:
        return self.clock.monotonic()

    # --- starting ------------------------------------------------------------------------------

    def start(self) -> None:
        for entry in self.fs.list(DATA):
            if entry.name.endswith(("-delete", FUTURE)):
                self.fs.remove_tree(os.path.join(DATA, entry.name))
            elif entry.is_directory and entry.name.startswith(TOPIC):
                self._open(int(entry.name.rpartition("-")[2]))
        was_orderly, self.node.was_orderly = self.node.was_orderly, False
        saved = self.epoch_file.read(was_orderly=was_orderly)
        self.previous_epoch = vouched_epoch(
            saved, self.owner.logs.values(), was_orderly=was_orderly
        )
        self.replicas.start()
        self._register()
        self._poll_image()
        self._checkpoint()

    def _open(self, number: int) -> PartitionLog:
        path = os.path.join(DATA, f"{TOPIC}-{number}")
        if not self.fs.exists(path):
            self.fs.make_directory(path)
            self.fs.sync_directory(DATA)
        log = open_log(self, path, number)
        self.take_log(number, log)
        return log

    def take_log(self, number: int, log: PartitionLog) -> None:
        """A log was opened, and is the one of its partition."""
        self.owner.logs[number] = log
        self.cluster.history.note_opened(self.node_id, number, log)
        log.promises.watch(lambda: self._log_changed(number))

    def _register(self) -> None:
        def serve(reply: Reply) -> None:
            if self.is_alive:  # the connection of a dead process is reset
                reply(
                    self.cluster.controller.register(
                        self.node_id, self.incarnation, self.previous_epoch
                    )
                )

        def registered(epoch: int | None) -> None:
            if epoch is None:
                self.at(self.world.between(20, 60), self._register)
                return
            self.epoch_file.save(epoch)
            self.broker_epoch = epoch
            self.heard_s = self.now_s()
            self._apply(self.cluster.image_as_of(self.image))
            self._heartbeat()

        self._ask_controller(serve, registered)

    def _ask_controller(self, serve: Callable[[Reply], None], when_done: Reply) -> None:
        self.cluster.network.call(
            self.node_id, CONTROLLER, serve, when_done, at=self.at, timeout_ms=RPC_TIMEOUT_MS
        )

    # --- the control side ------------------------------------------------------------------------

    @property
    def is_fenced_by_silence(self) -> bool:
        return (self.now_s() - self.heard_s) * 1000 > self.cluster.session_ms

    def _heartbeat(self) -> None:
        epoch, applied, leaves = self.broker_epoch, self.image.end, self.wants_shutdown
        sent_s = self.now_s()

        def serve(reply: Reply) -> None:
            reply(
                self.cluster.controller.heartbeat(
                    self.node_id, epoch, applied, wants_shutdown=leaves
                )
            )

        def heard(answer: str | None) -> None:
            if answer in ("running", "fenced", "leaving"):
                self.heard_s = sent_s  # as `BrokerLifecycle` does: an answer may take long
            elif answer == "stop":
                self.cluster.stop_orderly(self.node)

        self._ask_controller(serve, heard)
        self.at(HEARTBEAT_MS, self._heartbeat)

    def _poll_image(self) -> None:
        self._ask_controller(lambda reply: reply(self.cluster.controller.image), self.take_image)
        self.at(self.world.between(80, 160), self._poll_image)

    def take_image(self, image: MetadataImage | None) -> None:
        if image is not None and image.end > self.image.end:
            self._apply(image)

    def _apply(self, image: MetadataImage) -> None:
        self.image = image
        own = image.brokers.get(self.node_id)
        if own is not None and own.epoch == self.broker_epoch:
            wanted = set(assigned_places(image, self.node_id))
            for replica in list(self.replicas):
                if replica.site.place not in wanted:
                    self._give_up(replica.site.place)
            for place in sorted(wanted):
                if self.replicas.get(place) is None:
                    log = self.owner.logs.get(place.partition)
                    self.replicas.host(place, log or self._open(place.partition))
        self.replicas.apply(image)
        self.moves.image_changed()

    def _give_up(self, place: PartitionPlace) -> None:
        self.replicas.drop(place)
        log = self.owner.logs.pop(place.partition)
        log.close(is_orderly=False)
        self.owner.save_recovery_points()
        self.owner.save_log_starts()
        # As a log directory does it: a power cut leaves all of the replica, or nothing.
        gone = f"{log.directory}.{self.world.rng.getrandbits(32)}-delete"
        self.fs.rename(log.directory, gone)
        self.fs.sync_directory(DATA)
        self.fs.remove_tree(gone)
        self.cluster.history.note_dropped(self.node_id, place.partition)

    def change_isr(self, change: IsrChange, when_done: Callable[[IsrOutcome], None]) -> None:
        epoch = self.broker_epoch

        def serve(reply: Reply) -> None:
            reply(self.cluster.controller.alter_partition(self.node_id, epoch, change))

        def answered(outcome: IsrOutcome | None) -> None:
            when_done(outcome or IsrOutcome(answer=IsrAnswer.RETRY))

        self._ask_controller(serve, answered)

    # --- the disk --------------------------------------------------------------------------------

    def run(
        self, log: PartitionLog, job: Callable[[], Any], when_done: Callable[[Any], None]
    ) -> None:
        def work() -> None:
            before = log.state
            is_damaged = log.replica.damaged_from is not None
            result: Any
            try:
                result = job()
            except (OSError, CordwoodError) as error:
                result = error
            if not is_damaged:  # then it is filled again, from a leader that has everything
                self.cluster.history.note_job(self, log, before)
            self.at(self.world.between(0, 0.5), lambda: self._worked(when_done, result))

        self.at(self._disk_ms(), work)

    def _worked(self, when_done: Callable[[Any], None], result: Any) -> None:
        when_done(result)
        for replica in self.replicas:
            if replica.leader is not None:
                led = (replica.site.place.partition, int(replica.leader.epoch))
                if led not in self.led:
                    self.led.add(led)
                    self.cluster.history.note_led(self, replica)

    def sync(self, log: PartitionLog, when_done: Callable[[], None]) -> None:
        def work() -> None:
            if not log.is_closed:
                log.syncing.sync_pending()
            if log.state.failure is not None:
                self.disk_failed()
            else:
                self.at(self.world.between(0, 0.5), when_done)

        self.at(self._disk_ms(), work)

    def sync_soon(self, number: int) -> None:
        """Sync what clients have appended; several appends share a sync."""
        if number not in self._syncing:
            self._syncing.add(number)
            self.sync(self.owner.logs[number], lambda: None)
            self.at(2.0, lambda: self._syncing.discard(number))

    def _disk_ms(self) -> float:
        return self.world.between(0.2, self.cluster.disk_max_ms)

    def disk_failed(self) -> None:
        """As a broker does whose only data directory failed: it stops, and vouches no more."""
        self.cluster.cannot_vouch.add(self.node_id)
        self.cluster.failed_disks.add(self.node_id)
        self.epoch_file.withdraw()
        self.cluster.kill(self.node)

    def _checkpoint(self) -> None:
        for log in self.owner.logs.values():
            if self.world.chance(0.5) and log.state.is_writable:
                if log.syncing.checkpoint():
                    self.owner.save_recovery_points()
                log.syncing.sync_marks()
            if log.state.failure is not None:
                self.disk_failed()
                return
        self.at(self.world.between(200, 500), self._checkpoint)

    # --- moves of the log ------------------------------------------------------------------------

    def _log_changed(self, number: int) -> None:
        if number not in self._moved:
            self._moved.add(number)
            self.at(0, lambda: self._log_moved(number))

    def _log_moved(self, number: int) -> None:
        self._moved.discard(number)
        log = self.owner.logs.get(number)
        if log is None:
            return
        self.cluster.history.note_high_watermark(self, number, log)
        self.replicas.log_moved(PartitionPlace(TOPIC_ID, number))
        for waiting in list(self._waiting_fetches):
            waiting.look_again()

    def _leader_moved(self, replica: PartitionReplica) -> None:
        self.cluster.history.note_committed(self, replica)

    def paused(self, place: PartitionPlace, reason: str) -> None:
        """It tries again: invariants tell whether that helps."""

    def stopped(self, place: PartitionPlace, reason: str) -> None:
        self.cluster.history.note_stopped(self, place.partition, reason)
        if self.owner.logs[place.partition].state.failure is not None:
            self.disk_failed()

    # --- replication -----------------------------------------------------------------------------

    def fetch(
        self,
        leader: int,
        fetch: ReplicaFetch,
        when_done: Callable[[Sequence[FetchedPartition] | None], None],
    ) -> None:
        self.last_fetch = (leader, fetch)
        self._ask_node(
            leader, lambda life, reply: life.serve_fetch(fetch, reply), when_done, extra_ms=60
        )

    def bounds(
        self, leader: int, query: BoundsQuery, when_done: Callable[[LogBounds | None], None]
    ) -> None:
        def serve(life: Life, reply: Reply) -> None:
            replica = life.replicas.get(query.place)
            bounds = None if replica is None else replica.bounds(query.leader_epoch)
            reply(bounds if isinstance(bounds, LogBounds) else None)

        self._ask_node(leader, serve, when_done)

    def _ask_node(
        self,
        target: int,
        serve: Callable[[Life, Reply], None],
        when_done: Callable[[Any], None],
        *,
        extra_ms: float = 0,
    ) -> None:
        self.cluster.network.call(
            self.node_id,
            target,
            lambda reply: self.cluster.deliver(target, lambda life: serve(life, reply)),
            when_done,
            at=self.at,
            timeout_ms=RPC_TIMEOUT_MS + extra_ms,
        )

    def serve_fetch(self, fetch: ReplicaFetch, reply: Reply) -> None:
        _WaitingFetch(self, fetch, reply).start()

    # --- clients ---------------------------------------------------------------------------------

    def serve_produce(self, number: int, data: bytes, *, acks_all: bool, reply: Reply) -> None:
        """Append a batch; the answer is (error or None, base offset)."""
        replica = self.replicas.get(PartitionPlace(TOPIC_ID, number))
        leader = None if replica is None else replica.leader
        if replica is None or leader is None:
            reply((ReplicaError.NOT_LEADER_OR_FOLLOWER, -1))
            return
        refusal = leader.produce_refusal(is_acks_all=acks_all)
        if refusal is not None:
            reply((refusal, -1))
            return
        log, epoch = replica.site.log, leader.epoch
        before = log.end_offset
        try:
            appended = log.batches.append_batch(data, wait=False, led_in=epoch)
        except NotLeaderError:
            reply((ReplicaError.NOT_LEADER_OR_FOLLOWER, -1))
            return
        except OutOfOrderSequenceError as error:
            # A leader that was deposed and does not know it has missed batches of the producer.
            is_deposed = self.cluster.controller.partitions[number].leader_epoch > epoch
            reply((ReplicaError.NOT_LEADER_OR_FOLLOWER if is_deposed else error, -1))
            return
        except (CordwoodError, OSError) as error:
            reply((error, -1))
            return
        end = Offset(appended.last_offset + 1)
        if log.end_offset > before:
            self.cluster.history.note_appended(self, number, epoch, before, log)
        self.sync_soon(number)
        answer = (None, appended.base_offset)
        if acks_all:
            crc = int.from_bytes(data[17:21], "big")
            self._answer_committed(replica, end, epoch, appended.base_offset, crc, reply)
        elif log.promises.is_kept(end):
            reply(answer)
        else:
            moved = (ReplicaError.NOT_LEADER_OR_FOLLOWER, -1)
            self.sync(log, lambda: reply(moved if log.is_closed else answer))

    def _answer_committed(
        self,
        replica: PartitionReplica,
        end: Offset,
        epoch: LeaderEpoch,
        base: Offset,
        crc: int,
        reply: Reply,
    ) -> None:
        def committed(is_committed: bool) -> None:
            if is_committed:
                self.cluster.history.note_acknowledged(self, replica, epoch, base, crc)
                reply((None, base))
            else:
                reply((ReplicaError.NOT_LEADER_OR_FOLLOWER, -1))

        replica.await_committed(end, epoch, committed)

    def serve_read(self, number: int, offset: int, reply: Reply) -> None:
        """Committed batches from `offset` on, as a consumer sees them; None: ask elsewhere."""
        replica = self.replicas.get(PartitionPlace(TOPIC_ID, number))
        if replica is None or (replica.leader is None and replica.follower is None):
            reply(None)
            return
        reply(self.cluster.history.read(self, number, replica.site.log, offset))


class Moves:
    """Replicas of one life that move to another directory, as `ReplicaMoves` has them."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._moves: dict[int, ReplicaMove] = {}

    def begin(self, number: int) -> None:
        life = self._life
        replica = life.replicas.get(PartitionPlace(TOPIC_ID, number))
        if (
            number in self._moves
            or replica is None
            or replica.site.log.replica.damaged_from is not None
        ):
            return

        def made() -> None:
            move.copy()

        move = self._moves[number] = ReplicaMove(
            replica,
            _MoveFiles(life, number),
            may_part_as_leader=True,
            when_made=made,
            when_over=lambda outcome: self._over(number, outcome),
        )
        move.start()

    def image_changed(self) -> None:
        for number, move in list(self._moves.items()):
            if self._life.replicas.get(PartitionPlace(TOPIC_ID, number)) is move.replica:
                move.image_changed()
            else:
                move.give_up()

    def _over(self, number: int, outcome: PartitionLog | str | None) -> None:
        del self._moves[number]
        life, place = self._life, PartitionPlace(TOPIC_ID, number)
        if life.owner.health.failure is not None:
            life.disk_failed()  # the new log met it first
            return
        if isinstance(outcome, PartitionLog):
            life.cluster.move_count += 1
            image = life.image.partition(*place)
            life.replicas.drop(place)
            if image is not None and life.node_id in image.replicas:
                life.replicas.host(place, outcome)
                life._log_changed(number)


class _MoveFiles:
    """A `NewLogFiles`. The directory has the name of a future replica until the swap."""

    def __init__(self, life: Life, number: int) -> None:
        self._life = life
        self._number = number
        self._live = os.path.join(DATA, f"{TOPIC}-{number}")
        self._path = f"{self._live}{FUTURE}"
        self._new: PartitionLog | None = None

    def begin(self) -> PartitionLog:
        fs = self._life.fs
        if fs.exists(self._path):
            fs.remove_tree(self._path)
        fs.make_directory(self._path)
        self._new = open_log(self._life, self._path, self._number, is_new=True)
        return self._new

    def swap(self) -> PartitionLog:
        life, fs, new = self._life, self._life.fs, self._new
        assert new is not None
        old = life.owner.logs.get(self._number)
        if old is None or old.is_closed:
            raise StorageError("the replica is gone")
        new.syncing.sync_marks()
        if not new.close():
            raise StorageError("it could not be synced")
        committed, start = old.high_watermark, new.state.start
        del life.owner.logs[self._number]
        old.close(is_orderly=False)
        try:
            fs.sync_directory(self._path)
            life.owner.save_recovery_points()
            life.owner.save_log_starts()
            fs.rename(self._live, f"{self._live}.{life.world.rng.getrandbits(32)}-delete")
            fs.sync_directory(DATA)
            fs.rename(self._path, self._live)
            fs.sync_directory(DATA)
            log = open_log(life, self._live, self._number, is_new=True)
        except OSError:
            life.disk_failed()
            raise
        life.take_log(self._number, log)
        invariants.check_moved(f"node {life.node_id}", log, committed=committed, start=start)
        return log

    def give_up(self) -> None:
        if self._new is not None and not self._new.is_closed:
            self._new.close(is_orderly=False)
        if self._life.fs.exists(self._path):
            self._life.fs.remove_tree(self._path)


class _WaitingFetch:
    """A follower's fetch at its leader: it waits for batches or a higher high watermark."""

    def __init__(self, life: Life, fetch: ReplicaFetch, reply: Reply) -> None:
        self._life = life
        self._fetch = fetch
        self._reply = reply
        self._is_answered = False

    def start(self) -> None:
        if not self._look(is_again=False):
            self._life._waiting_fetches.append(self)
            self._life.at(self._fetch.wait_max_ms, self._give_in)

    def look_again(self) -> None:
        if not self._is_answered and self._look(is_again=True):
            self._life._waiting_fetches.remove(self)

    def _give_in(self) -> None:
        if not self._is_answered:
            self._life._waiting_fetches.remove(self)
            self._look(is_again=True, is_last=True)

    def _look(self, *, is_again: bool, is_last: bool = False) -> bool:
        fetch = self._fetch
        reads: list[tuple[PartitionPlace, FollowerRead]] = []
        for asked in fetch.positions:
            replica = self._life.replicas.get(asked.place)
            if replica is None:
                reads.append((asked.place, FollowerRead(error=ReplicaError.NOT_LEADER_OR_FOLLOWER)))
                continue
            read = replica.fetch(
                asked,
                replica=fetch.replica,
                broker_epoch=fetch.broker_epoch,
                bytes_max=fetch.partition_bytes_max,
                is_again=is_again,
            )
            reads.append((asked.place, read))
            self._life.cluster.history.note_fetch(self._life, replica, fetch.replica)
        if not is_last and not any(read.is_news for _, read in reads):
            return False
        self._is_answered = True
        self._reply([_fetched(place, read) for place, read in reads])
        return True


def _fetched(place: PartitionPlace, read: FollowerRead) -> FetchedPartition:
    batches = read.batches
    return FetchedPartition(
        place=place,
        error=read.error,
        high_watermark=read.high_watermark,
        log_start=read.log_start,
        diverging=read.diverging,
        data=b"" if batches is None else batches.file.read_at(batches.position, batches.length),
    )


_HANDLES = HandleCache()
_TIMES = SharedHistogram()


def open_log(life: Life, path: str, number: int, *, is_new: bool = False) -> PartitionLog:
    """Open the real log of one replica, with the checkpoints of the node unless it is new."""
    fs, config = life.fs, life.cluster.topic_config
    marks = HighWatermarkFile(fs, path, writable=True)
    points = {} if is_new else read_offset_checkpoint(fs, DATA, RECOVERY_POINT)
    starts = {} if is_new else read_offset_checkpoint(fs, DATA, LOG_START)
    now_ms = life.clock.now_ms()
    loaded = load_log(
        LoadRequest(
            fs=fs,
            directory=path,
            handles=_HANDLES,
            limits=segment_limits(config, allows_gaps=False),
            marks=marks.read(),
            now_ms=now_ms,
            steady_ms=now_ms,
            recovery_point=points.get((TOPIC, number)),
            log_start=starts.get((TOPIC, number)),
            is_clean=False,
            is_durable_exact=config.durability == "disk",
            allows_gaps=False,
        )
    )
    return PartitionLog(
        LogParts(
            topic=TOPIC,
            partition=number,
            directory=path,
            config=config,
            fs=fs,
            clock=life.clock,
            steady_clock=life.clock,
            handles=_HANDLES,
            flusher=NoFlusher(),
            owner=life.owner,
            marks=marks,
            random=life.world.rng,
            sync_times=_TIMES,
            role=AMONG_OTHERS,
        ),
        loaded,
    )


def topic_config(
    durability: str, min_isr: int, *, is_unclean_allowed: bool, is_throttled: bool = False
) -> TopicConfig:
    throttled = "*" if is_throttled else ""
    return TopicConfig.parse(
        {
            "leader.replication.throttled.replicas": throttled,
            "follower.replication.throttled.replicas": throttled,
            "durability": durability,
            "min.insync.replicas": min_isr,
            "unclean.leader.election.enable": str(is_unclean_allowed).lower(),
            "internal.segment.bytes": 2000,
            "index.interval.bytes": 200,
            "message.timestamp.after.max.ms": 2**62,
            "file.delete.delay.ms": 0,
        }
    )

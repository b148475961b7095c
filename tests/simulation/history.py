"""What a simulation has seen, and the checks of `invariants` at the moment that matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordwood.cluster.cluster_control import IsrChange
from cordwood.cluster.image.partition_image import PartitionImage
from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.errors import CorruptSegmentError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.log_state import LogState
from cordwood.quantities import Offset
from simulation import invariants
from simulation.invariants import Entry

if TYPE_CHECKING:
    from simulation.cluster import Cluster
    from simulation.node import Life

_DECODER = BatchDecoder()


def entries_of(log: PartitionLog, start: int, stop: int | None = None) -> list[Entry]:
    """The batches of a log in [start, stop), committed or not."""
    state = log.state
    stop = state.end if stop is None else min(stop, state.end)
    offset = max(start, state.start)
    found: list[Entry] = []
    while offset < stop:
        try:
            batches = log.replica.read(Offset(offset), max_bytes=1 << 20)
        except CorruptSegmentError as error:
            if error.next_offset is None:
                break
            offset = error.next_offset
            continue
        if batches is None:
            break
        data = memoryview(batches.file.read_at(batches.position, batches.length))
        count = _DECODER.scan(data, 0, len(data))
        if not count:
            break
        rows, width = _DECODER.rows, tables.BATCH_ROW
        for at in range(0, count * width, width):
            base = rows[at + tables.B_BASE_OFFSET]
            if base >= stop:
                return found
            offset = rows[at + tables.B_NEXT_OFFSET]
            if offset > start:
                found.append(
                    Entry(base, offset, rows[at + tables.B_LEADER_EPOCH], rows[at + tables.B_CRC])
                )
    return found


class PartitionHistory:
    """One partition. `committed` has every batch that was ever below a leader's high watermark."""

    def __init__(self) -> None:
        self.committed: dict[int, Entry] = {}
        self.end = 0
        self.appenders: dict[int, tuple[int, int]] = {}
        self.end_at_election: dict[int, int] = {}
        self.acknowledged: dict[int, Entry] = {}
        self.deleted_to = 0  # records below were deleted by request
        self.is_lossy = False  # an election was unclean: what was committed may be gone

    def note_deletion(self, end: int) -> None:
        self.deleted_to = max(self.deleted_to, end)


class History:
    """Told by the nodes and the controller what happens; raises if it must not happen."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.partitions: dict[int, PartitionHistory] = {}
        self.safe_ends: dict[tuple[int, int], int] = {}  # of nodes that are down
        self.stopped: dict[tuple[int, int], str] = {}
        self.commit_count = self.cut_count = self.election_count = 0

    def of(self, number: int) -> PartitionHistory:
        return self.partitions.setdefault(number, PartitionHistory())

    # --- the controller ------------------------------------------------------------------------

    def note_image(self) -> None:
        controller = self._cluster.controller
        for number, image in controller.partitions.items():
            history = self.of(number)
            if image.leader_epoch not in history.end_at_election:
                self.election_count += 1
                history.end_at_election[image.leader_epoch] = history.end
                if (number, image.leader_epoch) in controller.unclean_epochs:
                    # Nothing was left but the last leader, which could not vouch for its records.
                    is_allowed = (
                        self._cluster.is_unclean_allowed
                        or image.leader in self._cluster.cannot_vouch
                    )
                    invariants.check_clean(number, image.leader_epoch, is_allowed=is_allowed)
                    history.is_lossy = True

    def note_isr_made(self, leader: int, change: IsrChange, image: PartitionImage) -> None:
        life = self._cluster.nodes[leader].life
        if life is None:
            return
        for replica in life.replicas:
            role = replica.leader
            if replica.site.place.partition != change.partition or role is None:
                continue
            if role.epoch != change.leader_epoch:
                continue
            for joined in change.in_sync:
                node_id = joined.node_id
                known = role.replicas.get(node_id)
                if known is not None and node_id not in role.isr.committed:
                    registered = self._cluster.controller.brokers[node_id].image.epoch
                    invariants.check_joined(node_id, known.broker_epoch, registered)
                    history = self.of(change.partition)
                    if not history.is_lossy:
                        self._check_safe(change.partition, node_id, history.end, history.end)

    # --- logs ----------------------------------------------------------------------------------

    def note_opened(self, node_id: int, number: int, log: PartitionLog) -> None:
        self.safe_ends.pop((node_id, number), None)
        if log.replica.damaged_from is None:
            self.check_epochs(node_id, number, log)
        else:
            invariants.check_sound(
                f"node {node_id}",
                log.replica.damaged_from,
                is_allowed=not self._cluster.is_disk or node_id in self._cluster.failed_disks,
            )

    def note_dropped(self, node_id: int, number: int) -> None:
        self.stopped.pop((node_id, number), None)

    def note_down(self, life: Life) -> None:
        """A life ends: remember how far its logs are safe."""
        for number, log in life.owner.logs.items():
            self.safe_ends[life.node_id, number] = log.state.durable
            self.stopped.pop((life.node_id, number), None)

    def note_stopped(self, life: Life, number: int, reason: str) -> None:
        self.stopped[life.node_id, number] = reason
        if "were committed" in reason and not self.of(number).is_lossy:
            raise invariants.Violation(7, f"node {life.node_id} stopped: {reason}")

    def check_epochs(self, node_id: int, number: int, log: PartitionLog) -> None:
        checkpoint = [(entry.epoch, entry.start_offset) for entry in log.epochs.known.entries]
        entries = entries_of(log, 0)
        invariants.check_epochs(f"node {node_id}", entries, checkpoint, log.state.start)

    def note_job(self, life: Life, log: PartitionLog, before: LogState) -> None:
        """A job of a role was done: it may have cut the log, or made it the leader's."""
        number, history = log.partition, self.of(log.partition)
        state = log.state
        who = f"node {life.node_id}"
        if state.cut_count != before.cut_count:
            self.cut_count += 1
            if not history.is_lossy:
                invariants.check_cut(who, state.end, before.high_watermark)
            seen = life.seen_high_watermark.get(number, Offset(0))
            life.seen_high_watermark[number] = min(seen, state.high_watermark)

    def note_led(self, life: Life, replica: PartitionReplica) -> None:
        """A leadership began."""
        role, number = replica.leader, replica.site.place.partition
        assert role is not None
        history = self.of(number)
        if not history.is_lossy:
            committed = history.end_at_election.get(role.epoch, 0)
            who = f"node {life.node_id}"
            invariants.check_elected(who, role.epoch, role.epoch_start, committed)

    def note_appended(
        self, life: Life, number: int, epoch: int, base: int, log: PartitionLog
    ) -> None:
        appenders = self.of(number).appenders
        now = (life.node_id, life.node.life_count)
        invariants.check_one_appender(epoch, appenders.get(epoch), now)
        appenders[epoch] = now

    def note_high_watermark(self, life: Life, number: int, log: PartitionLog) -> None:
        """The log of any replica moved: what is newly committed there is what is committed."""
        history = self.of(number)
        seen = life.seen_high_watermark.get(number, Offset(0))
        high_watermark = log.high_watermark
        if high_watermark <= seen or history.is_lossy or log.replica.damaged_from is not None:
            return
        entries = entries_of(log, seen, high_watermark)
        invariants.check_agreement(f"node {life.node_id}", entries, history.committed)
        life.seen_high_watermark[number] = high_watermark

    def note_committed(self, life: Life, replica: PartitionReplica) -> None:
        """A leader moved its high watermark."""
        log, number = replica.site.log, replica.site.place.partition
        history = self.of(number)
        role = replica.leader
        if history.is_lossy:
            return
        before = history.end
        fresh = entries_of(log, history.end, log.high_watermark)
        for entry in fresh:
            history.committed[entry.base] = entry
            history.end = entry.next
        self.commit_count += len(fresh)
        self.note_high_watermark(life, number, log)
        image = self._cluster.controller.partitions[number]
        if role is None or role.epoch != image.leader_epoch:
            return
        if not fresh:
            return
        decided = {*image.in_sync, *image.eligible}
        if len(image.in_sync) >= min(self._cluster.controller.min_isr, len(image.replicas)):
            invariants.check_maximal(role.epoch, role.isr.maximal, decided)
        for node_id in decided:
            self._check_safe(number, node_id, before, log.high_watermark)

    def _check_safe(self, number: int, node_id: int, before: int, end: int) -> None:
        cluster = self._cluster
        life = cluster.nodes[node_id].life
        who = f"node {node_id}"
        log = None if life is None else life.owner.logs.get(number)
        if self._will_not_vouch(node_id):
            return
        if log is not None:
            safe = log.state.durable if cluster.is_disk else log.state.end
            invariants.check_safe(who, safe, end)
            committed = self.of(number).committed
            invariants.check_agreement(who, entries_of(log, before, end), committed)
        elif cluster.is_disk:
            invariants.check_safe(who, self.safe_ends.get((node_id, number), 0), end)

    def _will_not_vouch(self, node_id: int) -> bool:
        """Whether a broker lost what was not synced, and has not registered since to say so."""
        cluster = self._cluster
        life = cluster.nodes[node_id].life
        registered = cluster.controller.brokers[node_id].image.incarnation
        return not cluster.is_disk and (life is None or life.incarnation != registered)

    def note_fetch(self, life: Life, replica: PartitionReplica, node_id: int) -> None:
        """A leader has noted a fetch."""
        role, broker = replica.leader, life.image.brokers.get(node_id)
        if role is not None and broker is not None and node_id in role.isr.committed:
            known = role.replicas.get(node_id)
            if known is not None and known.broker_epoch >= 0:
                invariants.check_counted(node_id, known.broker_epoch, broker.epoch)

    # --- clients -------------------------------------------------------------------------------

    def note_acknowledged(
        self, life: Life, replica: PartitionReplica, epoch: int, base: int, crc: int
    ) -> None:
        number = replica.site.place.partition
        history = self.of(number)
        if history.is_lossy:
            return
        if base < replica.site.log.state.start:
            return
        found = entries_of(replica.site.log, base, base + 1)
        entry = found[0] if found else Entry(base, base, -1, 0)
        if entry.crc != crc:
            wanted = Entry(base, base, epoch, crc)
            invariants.check_late_acknowledgement(f"node {life.node_id}", wanted, entry)
        image = self._cluster.controller.partitions[number]
        if image.leader_epoch > epoch and image.has_leader:
            self._check_late(life, number, entry, image.leader)
        history.acknowledged[base] = entry

    def _check_late(self, life: Life, number: int, entry: Entry, leader: int) -> None:
        if self._will_not_vouch(leader):
            return
        other = self._cluster.nodes[leader].life
        log = None if other is None else other.owner.logs.get(number)
        if log is not None and log.state.start <= entry.base:
            found = entries_of(log, entry.base, entry.base + 1)
            who = f"node {life.node_id}"
            invariants.check_late_acknowledgement(who, entry, found[0] if found else None)

    def read(self, life: Life, number: int, log: PartitionLog, offset: int) -> list[Entry]:
        """What a consumer reads from this replica."""
        found = entries_of(log, offset, log.high_watermark)
        history = self.of(number)
        if not history.is_lossy:
            invariants.check_read(found, history.committed)
        return found

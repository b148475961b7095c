"""A controller that follows KRaft's rules, and never fails by itself.

Registration with incarnations and epochs, fencing by sessions, elections from the ISR and then
from the eligible leader replicas (KIP-966), unclean ones only if the topic allows them or the last
known leader is all that is left, AlterPartition with its checks, reassignment, controlled
shutdown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from cordwood.cluster.cluster_control import IsrAnswer, IsrChange, IsrOutcome
from cordwood.cluster.image.broker_image import BrokerImage
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage, TopicImage
from cordwood.cluster.image.partition_image import NO_LEADER, LeaderRecovery, PartitionImage
from cordwood.quantities import LeaderEpoch, Offset
from simulation.world import World

TOPIC_ID = UUID(int=7)
TOPIC = "events"

_REFUSES_EVERY = 7  # one of so many changes of an ISR is refused once, without a reason


@dataclass
class Registration:
    """What the controller knows of one broker.

    offset          of its registration record
    applied         how far it has read the metadata
    leaving_offset  of the record that began its controlled shutdown
    """

    image: BrokerImage
    heard_ms: float
    offset: int
    applied: int = 0
    leaving_offset: int = 0


class Controller:
    """The one controller of a simulation."""

    def __init__(
        self, world: World, *, session_ms: float, min_isr: int, is_unclean_allowed: bool
    ) -> None:
        self._refused: set[tuple[int, int]] = set()
        self._world = world
        self._session_ms = session_ms
        self.min_isr = min_isr
        self._is_unclean_allowed = is_unclean_allowed
        self.brokers: dict[int, Registration] = {}
        self.partitions: dict[int, PartitionImage] = {}
        self.unclean_epochs: set[tuple[int, int]] = set()
        self.image: MetadataImage = NO_METADATA
        self._end = 0
        self.when_changed: Callable[[], None] = lambda: None
        self.when_isr_made: Callable[[int, IsrChange, PartitionImage], None] = lambda *_: None

    # --- topics ------------------------------------------------------------------------------

    def create(self, number: int, replicas: tuple[int, ...]) -> None:
        leader = replicas[0]
        self.partitions[number] = PartitionImage(
            replicas=replicas,
            in_sync=replicas,
            leader=leader,
            leader_epoch=LeaderEpoch(0),
            partition_epoch=0,
        )
        self._publish()

    def reassign(self, number: int, wanted: tuple[int, ...]) -> None:
        old = self.partitions[number]
        if old.adding or old.removing:
            return
        adding = tuple(node for node in wanted if node not in old.replicas)
        removing = tuple(node for node in old.replicas if node not in wanted)
        if not adding:
            return
        self.partitions[number] = replace(
            old,
            replicas=(*wanted, *removing),
            adding=adding,
            removing=removing,
            partition_epoch=old.partition_epoch + 1,
        )
        self._publish()

    # --- brokers -----------------------------------------------------------------------------

    def register(self, node_id: int, incarnation: UUID, previous_epoch: int) -> int | None:
        """The epoch of the registration; None: another life still has a session."""
        known = self.brokers.get(node_id)
        if known is not None:
            if known.image.incarnation == incarnation:
                known.heard_ms = self._world.now_ms
                return known.image.epoch
            is_live = self._world.now_ms - known.heard_ms < self._session_ms
            if is_live and not known.image.is_fenced and not known.image.is_leaving:
                return None
        self._end += 1
        epoch = self._end
        self.brokers[node_id] = Registration(
            BrokerImage(node_id=node_id, epoch=epoch, incarnation=incarnation, endpoints=()),
            self._world.now_ms,
            epoch,
        )
        is_clean = known is None or previous_epoch == known.image.epoch
        self._leave(node_id, unclean=not is_clean)
        self._publish()
        return epoch

    def heartbeat(self, node_id: int, epoch: int, applied: int, *, wants_shutdown: bool) -> str:
        """`stale`, `fenced`, `running`, `leaving`, or `stop` for a broker that may stop now.

        As KRaft's `BrokerHeartbeatManager` decides it. A controlled shutdown has no way back: it
        ends once the broker leads nothing and every other broker knows that. Then the broker is
        fenced and told to stop, whatever it asks for.
        """
        known = self.brokers.get(node_id)
        if known is None or known.image.epoch != epoch:
            return "stale"
        known.heard_ms = self._world.now_ms
        known.applied = applied
        if known.image.is_fenced:
            if wants_shutdown:
                return "stop"
            if applied < known.offset:
                return "fenced"
            known.image = replace(known.image, is_fenced=False)
            self._elect_where_nobody_leads()
            self._publish()
        elif known.image.is_leaving:
            if self._has_leaderships(node_id) or known.leaving_offset > self._lowest_active():
                return "leaving"
            self._fence(node_id)
            return "stop"
        elif wants_shutdown:
            if not self._has_leaderships(node_id):
                self._fence(node_id)
                return "stop"
            known.image = replace(known.image, is_leaving=True)
            self._leave(node_id)
            self._publish()
            known.leaving_offset = self._end
            return "leaving"
        return "running"

    def _has_leaderships(self, node_id: int) -> bool:
        return any(partition.leader == node_id for partition in self.partitions.values())

    def _lowest_active(self) -> float:
        """How far the slowest broker that is neither fenced nor leaving has read."""
        applied = [known.applied for node, known in self.brokers.items() if self._is_active(node)]
        return min(applied, default=float("inf"))

    def _fence(self, node_id: int) -> None:
        known = self.brokers[node_id]
        known.image = replace(known.image, is_fenced=True)
        self._leave(node_id)
        self._publish()

    def check_sessions(self) -> None:
        for node_id, known in self.brokers.items():
            is_silent = self._world.now_ms - known.heard_ms >= self._session_ms
            if is_silent and not known.image.is_fenced:
                self._fence(node_id)

    def _is_active(self, node_id: int) -> bool:
        known = self.brokers.get(node_id)
        return known is not None and not known.image.is_fenced and not known.image.is_leaving

    # --- partitions --------------------------------------------------------------------------

    def alter_partition(self, node_id: int, broker_epoch: int, change: IsrChange) -> IsrOutcome:
        known = self.brokers.get(node_id)
        if known is None or known.image.epoch != broker_epoch:
            return IsrOutcome(answer=IsrAnswer.RETRY)  # STALE_BROKER_EPOCH
        place = (change.partition, change.partition_epoch)
        if sum(place) % _REFUSES_EVERY == 0 and place not in self._refused:
            self._refused.add(place)
            return IsrOutcome(answer=IsrAnswer.OVERTAKEN)  # and no newer image explains it
        old = self.partitions[change.partition]
        wanted = [replica.node_id for replica in change.in_sync]
        if (
            old.leader != node_id
            or change.leader_epoch != old.leader_epoch
            or change.partition_epoch != old.partition_epoch
            or not set(wanted) <= set(old.replicas)
            or node_id not in wanted
        ):
            return IsrOutcome(answer=IsrAnswer.OVERTAKEN)  # 42, 74, 95
        for replica in change.in_sync:
            other = self.brokers.get(replica.node_id)
            if (
                other is None
                or not self._is_active(replica.node_id)
                or replica.broker_epoch not in (-1, other.image.epoch)
            ):
                return IsrOutcome(answer=IsrAnswer.REFUSED)  # INELIGIBLE_REPLICA
        self._change(change.partition, wanted, recovery=change.recovery)
        new = self.partitions[change.partition]
        self.when_isr_made(node_id, change, new)
        self._publish()
        if new.leader != node_id or new.leader_epoch != old.leader_epoch:
            return IsrOutcome(answer=IsrAnswer.OVERTAKEN)  # NEW_LEADER_ELECTED
        return IsrOutcome(
            answer=IsrAnswer.MADE,
            in_sync=new.in_sync,
            partition_epoch=new.partition_epoch,
            recovery=new.recovery,
        )

    def _leave(self, node_id: int, *, unclean: bool = False) -> None:
        """A broker leaves every ISR; after an unclean shutdown it is not eligible either."""
        for number, old in self.partitions.items():
            gone = {node_id} if unclean else set()
            if node_id in old.in_sync or node_id == old.leader or gone & set(old.eligible):
                kept = [node for node in old.in_sync if node != node_id]
                self._change(number, kept, unclean_shutdown=gone)

    def _elect_where_nobody_leads(self) -> None:
        for number, old in self.partitions.items():
            if not old.has_leader:
                self._change(number, list(old.in_sync))

    def _change(
        self,
        number: int,
        in_sync: list[int],
        *,
        unclean_shutdown: Iterable[int] = (),
        recovery: LeaderRecovery | None = None,
    ) -> None:
        old = self.partitions[number]
        replicas, adding, removing = old.replicas, old.adding, old.removing
        remaining = [node for node in in_sync if node not in removing]
        if (adding or removing) and remaining and set(adding) <= set(remaining):
            replicas = tuple(node for node in replicas if node not in removing)
            in_sync, adding, removing = remaining, (), ()
        eligible: set[int] = set()
        if len(in_sync) < min(self.min_isr, len(replicas)):
            eligible = set(old.eligible) | set(old.in_sync)
            eligible -= {*in_sync, *unclean_shutdown}
            eligible &= set(replicas)
        leader, is_unclean = self._elected(old, replicas, in_sync, eligible)
        if is_unclean:
            in_sync, eligible = [leader], set()
        elif leader != NO_LEADER and leader not in in_sync:
            in_sync = [leader]
            eligible.discard(leader)
        last_known = old.last_known
        if not in_sync and old.leader != NO_LEADER:
            last_known = (old.leader,)
        elif leader != NO_LEADER:
            last_known = ()
        is_new = leader != old.leader or len(replicas) < len(old.replicas)
        epoch = LeaderEpoch(old.leader_epoch + 1) if is_new else old.leader_epoch
        if is_unclean:
            self.unclean_epochs.add((number, epoch))
            recovery = LeaderRecovery.RECOVERING
        new = replace(
            old,
            replicas=replicas,
            in_sync=tuple(sorted(in_sync)),
            eligible=tuple(sorted(eligible)),
            adding=adding,
            removing=removing,
            leader=leader,
            leader_epoch=epoch,
            last_known=last_known,
            recovery=old.recovery if recovery is None else recovery,
        )
        if new != old:
            self.partitions[number] = replace(new, partition_epoch=old.partition_epoch + 1)

    def _elected(
        self, old: PartitionImage, replicas: tuple[int, ...], in_sync: list[int], eligible: set[int]
    ) -> tuple[int, bool]:
        candidates = [n for n in replicas if n in (in_sync or eligible)]
        if old.leader in candidates and self._is_active(old.leader):
            return old.leader, False
        for node in candidates:
            if self._is_active(node):
                return node, False
        if not in_sync and not eligible and len(old.last_known) == 1:
            last = old.last_known[0]
            if last in replicas and self._is_active(last):
                return last, True
        if self._is_unclean_allowed:
            for node in replicas:
                if self._is_active(node):
                    return node, True
        return NO_LEADER, False

    def _publish(self) -> None:
        self._end += 1
        self.image = MetadataImage(
            end=Offset(self._end),
            brokers={node: known.image for node, known in self.brokers.items()},
            topics={
                TOPIC_ID: TopicImage(
                    name=TOPIC, topic_id=TOPIC_ID, partitions=dict(self.partitions)
                )
            },
            topic_ids={TOPIC: TOPIC_ID},
        )
        self.when_changed()

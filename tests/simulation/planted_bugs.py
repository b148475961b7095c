"""Bugs that the simulator must find. Each replaces a part of the machines by a wrong one.

Most are bugs that replicated logs really had. `planted(name)` holds while its context lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cordwood.cluster.replication.follower_role import FollowerRole
from cordwood.cluster.replication.isr_state import IsrState
from cordwood.cluster.replication.leader_role import LeaderRole
from cordwood.cluster.replication.node_replicas import NodeReplicas, assigned_places
from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.cluster.replication.replica_fetch import ReplicaError
from cordwood.log.partition.appends.replica_log import ReplicaLog
from cordwood.log.partition.derived_state.log_epochs import LogEpochs
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.storage.small_files.checkpoint_file import write_epoch_checkpoint
from simulation import node

Plant = Callable[[pytest.MonkeyPatch], None]


def truncate_by_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A follower begins by cutting at its own high watermark (Kafka before KIP-101)."""
    start = FollowerRole.start

    def cut_and_start(self: FollowerRole) -> None:
        log = self.site.log
        if log.end_offset > log.high_watermark and self.last_error is None:
            self.last_error = RuntimeError("planted")
            log.replica.truncate(log.high_watermark, leader_epoch=self.epoch)
        start(self)

    patch.setattr(FollowerRole, "start", cut_and_start)


def acknowledge_in_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """Waits outlive the leadership: a later high watermark acknowledges them (KAFKA-20634)."""
    carried: dict[int, list[tuple[Offset, Any]]] = {}
    raise_mark = ReplicaLog.raise_high_watermark

    def end(self: LeaderRole) -> None:
        self.is_over = True
        waits = carried.setdefault(id(self.site.log.replica), [])
        waits += [(wait[0], wait[2]) for wait in self._waits._waits]
        self._waits._waits = []

    def raise_and_answer(self: ReplicaLog, offset: Offset) -> Offset:
        reached = raise_mark(self, offset)
        waits = carried.get(id(self), [])
        for wait in [wait for wait in waits if wait[0] <= reached]:
            waits.remove(wait)
            wait[1](True)
        return reached

    patch.setattr(LeaderRole, "end", end)
    patch.setattr(ReplicaLog, "raise_high_watermark", raise_and_answer)


def join_before_the_epoch_start(patch: pytest.MonkeyPatch) -> None:
    """A follower joins the ISR at the high watermark, before it has the start of the epoch."""

    def expand_by(self: LeaderRole, state: Any) -> None:
        if (
            self.isr.pending is None
            and state.node_id not in self.isr.committed
            and state.end >= self.site.log.high_watermark
            and self._is_eligible(state)
        ):
            self._ask_for({*self.isr.committed, state.node_id})

    patch.setattr(LeaderRole, "_expand_by", expand_by)


def let_old_lives_in(patch: pytest.MonkeyPatch) -> None:
    """A leader believes fetches of a life of a broker that is over (before KIP-903)."""

    def eligible(self: LeaderRole, state: Any) -> bool:
        broker = self._brokers().get(state.node_id)
        return broker is not None and not broker.is_fenced and not broker.is_leaving

    def epoch_of(self: LeaderRole, node_id: int) -> int:
        if node_id == self.site.node.node_id:
            return self.site.node.control.broker_epoch
        broker = self._brokers().get(node_id)
        return -1 if broker is None else broker.epoch

    def refusal(self: LeaderRole, asked: Any, replica: int, _broker_epoch: int) -> Any:
        found = self._epoch_refusal(asked.leader_epoch)
        if found is None and replica not in self.replicas:
            found = ReplicaError.UNKNOWN_LEADER_EPOCH
        return found

    patch.setattr(LeaderRole, "_is_eligible", eligible)
    patch.setattr(LeaderRole, "_broker_epoch_of", epoch_of)
    patch.setattr(LeaderRole, "_fetch_refusal", refusal)


def count_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """What is written counts as safe before it is synced."""
    patch.setattr(ReplicaLog, "safe_end", property(lambda self: self._holder.state.end))


def trust_a_pending_isr(patch: pytest.MonkeyPatch) -> None:
    """The high watermark waits only for the ISR that was asked for, as if it were decided."""

    def hoped_for(self: IsrState) -> frozenset[int]:
        if self.pending is None:
            return self.committed
        return frozenset(replica.node_id for replica in self.pending.in_sync)

    patch.setattr(IsrState, "maximal", property(hoped_for))


def forget_to_sync_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """A leader writes its epoch to the checkpoint without a sync."""

    def lead(self: LogEpochs, epoch: LeaderEpoch, start: Offset) -> None:
        self.current = epoch
        if self.known.assign(epoch, start):
            write_epoch_checkpoint(self._fs, self._directory, self.known.entries, sync=False)
        self._is_leader = True

    patch.setattr(LogEpochs, "lead", lead)


def act_on_images_of_the_last_life(patch: pytest.MonkeyPatch) -> None:
    """A broker that starts again acts on an image from before its registration.

    It would still refuse appends, because no controller has heard it. That is taken away too.
    """

    def hasty(self: NodeReplicas, image: Any) -> None:
        if image.end < self._image.end:
            return
        self._image = image
        for place, replica in list(self._replicas.items()):
            partition = image.partition(*place)
            if partition is not None:
                replica.apply(partition)

    def hosting(self: Any, image: Any) -> None:
        self.image = image
        for place in sorted(assigned_places(image, self.node_id)):
            if self.replicas.get(place) is None:
                log = self.owner.logs.get(place.partition)
                self.replicas.host(place, log or self._open(place.partition))
        self.replicas.apply(image)

    patch.setattr(NodeReplicas, "apply", hasty)
    patch.setattr(node.Life, "_apply", hosting)
    patch.setattr(node.Life, "is_fenced_by_silence", False)


def commit_below_min_isr(patch: pytest.MonkeyPatch) -> None:
    """The high watermark moves although too few replicas are in sync (before KIP-966)."""
    patch.setattr(LeaderRole, "is_under_min_isr", False)


def vouch_for_lost_records(patch: pytest.MonkeyPatch) -> None:
    """A broker vouches for its last life although a power cut may have taken records."""
    patch.setattr(node, "vouched_epoch", lambda saved, _logs, *, was_orderly: saved)


def take_images_in_any_order(patch: pytest.MonkeyPatch) -> None:
    """An image that comes late is applied over a newer one."""

    def apply(self: PartitionReplica, image: Any) -> None:
        if self._is_closed or image is self.image:
            return
        old, self.image = self.image, image
        if old is not None and old.leader_epoch == image.leader_epoch:
            if self.leader is not None:
                self.leader.partition_epoch = -1
                self.leader.update(image)
            return
        self._change_role(image)

    def in_any_order(self: NodeReplicas, image: Any) -> None:
        own = image.brokers.get(self._node.node_id)
        if own is not None and own.epoch == self._node.control.broker_epoch:
            self._image = image
            for place, replica in list(self._replicas.items()):
                partition = image.partition(*place)
                if partition is not None:
                    replica.apply(partition)

    def take_image(self: Any, image: Any) -> None:
        if image is not None:
            self._apply(image)

    patch.setattr(PartitionReplica, "apply", apply)
    patch.setattr(NodeReplicas, "apply", in_any_order)
    patch.setattr(node.Life, "take_image", take_image)


def wait_for_an_image_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A change of the ISR that is refused as overtaken stays pending, whether an image comes."""
    submit_later = LeaderRole._submit_later

    def only_retries(self: LeaderRole, change: Any, delay_ms: int) -> None:
        if delay_ms != self.site.node.config.isr_overtaken_ms:
            submit_later(self, change, delay_ms)

    patch.setattr(LeaderRole, "_submit_later", only_retries)


PLANTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        truncate_by_high_watermark,
        acknowledge_in_any_epoch,
        join_before_the_epoch_start,
        let_old_lives_in,
        count_before_the_sync,
        trust_a_pending_isr,
        forget_to_sync_the_epoch,
        act_on_images_of_the_last_life,
        commit_below_min_isr,
        vouch_for_lost_records,
        take_images_in_any_order,
        wait_for_an_image_for_ever,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run with this bug."""
    with pytest.MonkeyPatch.context() as patch:
        PLANTS[name](patch)
        yield

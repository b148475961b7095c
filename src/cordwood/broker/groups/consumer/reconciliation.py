"""Moves a member from its assignment to its target, one heartbeat at a time. Pure.

    STABLE -> UNREVOKED_PARTITIONS -> UNRELEASED_PARTITIONS -> STABLE

A member first revokes the partitions that are not in its target, at its present epoch, and
confirms that in a heartbeat. Then it moves to the epoch of the target and gets those partitions
that are free; it gets the others when their members have revoked them. States that have nothing
to wait for are skipped.

A partition is not assigned while another member holds it. A member holds a partition until it
stops reporting it as owned, or is removed. So no partition ever has two owners.
"""

from collections.abc import Callable, Set
from uuid import UUID

from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.broker.groups.consumer.consumer_member import (
    ConsumerMember,
    DatedAssignment,
    MemberState,
)
from cordwood.value_class import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The partitions that a member shall have, and the epoch they were computed for."""

    epoch: int
    partitions: Assignment


def reconcile(
    member: ConsumerMember,
    *,
    target: Target,
    subscribed: Set[UUID],
    has_new_subscription: bool,
    owned: Assignment | None,
    is_free: Callable[[UUID, int], bool],
) -> ConsumerMember:
    """The member after a heartbeat that reported `owned`; the same object if nothing changed.

    Partitions of topics that are not in `subscribed` are revoked even if the target has them: it
    may be older than the subscription. `is_free` is true if no *other* member holds a partition.
    """
    if _is_in_use(member.revoking, owned):
        return _shed(member, subscribed) if has_new_subscription else member
    if member.is_reconciled_to(target.epoch) and not has_new_subscription:
        return member
    kept: dict[UUID, dict[int, int]] = {}
    revoked: dict[UUID, dict[int, int]] = {}
    for topic, epochs in member.assigned.items():
        wanted = target.partitions.get(topic, frozenset()) if topic in subscribed else frozenset()
        for partition, epoch in epochs.items():
            part = kept if partition in wanted else revoked
            part.setdefault(topic, {})[partition] = epoch
    if _is_in_use(revoked, owned):
        return replace(
            member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoked
        )
    is_waiting = False
    for topic, partitions in target.partitions.items():
        if topic not in subscribed:
            continue
        for partition in partitions - kept.get(topic, {}).keys():
            if is_free(topic, partition):
                kept.setdefault(topic, {})[partition] = target.epoch
            else:
                is_waiting = True
    reconciled = replace(
        member,
        epoch=target.epoch,
        previous_epoch=member.epoch if member.epoch != target.epoch else member.previous_epoch,
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        assigned=kept,
        revoking={},
    )
    return member if reconciled == member else reconciled


def owns_only(owned: Assignment | None, assigned: DatedAssignment) -> bool:
    """Whether a member reported what it owns, and all of that is assigned to it."""
    return owned is not None and all(
        partitions <= assigned.get(topic, {}).keys() for topic, partitions in owned.items()
    )


def _is_in_use(revoked: DatedAssignment, owned: Assignment | None) -> bool:
    """Whether the member may still use a partition that it must revoke."""
    if not revoked:
        return False
    return owned is None or any(
        not partitions.isdisjoint(revoked.get(topic, {})) for topic, partitions in owned.items()
    )


def _shed(member: ConsumerMember, subscribed: Set[UUID]) -> ConsumerMember:
    """Also revoke topics that left the subscription while other partitions are being revoked."""
    dropped = {t: epochs for t, epochs in member.assigned.items() if t not in subscribed}
    if not dropped:
        return member
    revoking = {topic: {**epochs} for topic, epochs in member.revoking.items()}
    for topic, epochs in dropped.items():
        revoking.setdefault(topic, {}).update(epochs)
    kept = {topic: epochs for topic, epochs in member.assigned.items() if topic not in dropped}
    return replace(member, assigned=kept, revoking=revoking)

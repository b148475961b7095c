"""From what a member has to what it is to have, one heartbeat at a time. Pure.

    STABLE -> UNREVOKED_PARTITIONS -> UNRELEASED_PARTITIONS -> STABLE

A member first gives up what is no longer its own, at the epoch it is at, and says so in a
heartbeat. Then it goes to the epoch of the target, with whatever of it is free; the rest it gets
as others give it up. States that have nothing to wait for are passed over.

Nothing is given that anyone holds, and a partition is held until its member no longer names it
among those it owns, or is gone. So no partition ever has two owners.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from uuid import UUID

from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.broker.groups.consumer.consumer_member import (
    ConsumerMember,
    DatedAssignment,
    MemberState,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a member is to have, and since which assignment."""

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
    """The member after a heartbeat in which it said that it owns `owned`, or did not say.

    The same one where nothing changed.

    Topics that are not `subscribed` to are not kept, whatever the target says: it may be older
    than the subscription. `is_free` tells whether no *other* member holds a partition.
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
    """Whether a member said what it owns, and all of that is assigned to it."""
    return owned is not None and all(
        partitions <= assigned.get(topic, {}).keys() for topic, partitions in owned.items()
    )


def _is_in_use(revoked: DatedAssignment, owned: Assignment | None) -> bool:
    """Whether the member may still use any of what was taken from it."""
    if not revoked:
        return False
    return owned is None or any(
        not partitions.isdisjoint(revoked.get(topic, {})) for topic, partitions in owned.items()
    )


def _shed(member: ConsumerMember, subscribed: Set[UUID]) -> ConsumerMember:
    """Revoke what it no longer subscribes to as well, while it still gives up other partitions."""
    dropped = {t: epochs for t, epochs in member.assigned.items() if t not in subscribed}
    if not dropped:
        return member
    revoking = {topic: {**epochs} for topic, epochs in member.revoking.items()}
    for topic, epochs in dropped.items():
        revoking.setdefault(topic, {}).update(epochs)
    kept = {topic: epochs for topic, epochs in member.assigned.items() if topic not in dropped}
    return replace(member, assigned=kept, revoking=revoking)

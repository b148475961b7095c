"""Finds the member that sent a heartbeat, or refuses the heartbeat."""

from cordwood.broker.error_codes import RefusedError
from cordwood.broker.groups.consumer.consumer_heartbeat import ConsumerHeartbeat
from cordwood.broker.groups.consumer.consumer_member import ConsumerMember
from cordwood.broker.groups.consumer.consumer_roster import ConsumerRoster
from cordwood.broker.groups.consumer.reconciliation import owns_only
from cordwood.protocol.error_code import ErrorCode
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The sender of a heartbeat. A new member has neither field.

    `replaced` is the old member of an instance that left and comes back under another id.
    """

    known: ConsumerMember | None = None
    replaced: ConsumerMember | None = None


def find_sender(roster: ConsumerRoster, beat: ConsumerHeartbeat, size_max: int) -> Sender:
    """The member that joins or stays. Raises `RefusedError` if it may not."""
    instance = roster.find_instance(beat.instance_id)
    member = roster.find(beat.member_id)
    is_new = beat.is_joining and instance is None and member is None
    if is_new and len(roster) >= size_max:
        raise RefusedError(
            ErrorCode.group_max_size_reached,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )
    if beat.is_joining:
        return _joining(beat, instance, member)
    if beat.instance_id is not None:
        member = _static_member(beat, instance)
    elif member is None:
        raise _unknown_member(beat)
    _check_epoch(member, beat)
    return Sender(known=member)


def find_leaving(roster: ConsumerRoster, beat: ConsumerHeartbeat) -> ConsumerMember:
    """The member that leaves. Raises `RefusedError` if it is not in the group."""
    if beat.instance_id is not None:
        return _static_member(beat, roster.find_instance(beat.instance_id))
    member = roster.find(beat.member_id)
    if member is None:
        raise _unknown_member(beat)
    return member


def _joining(
    beat: ConsumerHeartbeat, instance: ConsumerMember | None, member: ConsumerMember | None
) -> Sender:
    """A member that joins, or joins again after it was fenced.

    An instance id is taken until its member leaves. The same member may always join again; Kafka
    refuses that until its session expires.
    """
    if instance is None or instance.member_id == beat.member_id:
        return Sender(known=member)
    if not instance.is_away:
        raise RefusedError(
            ErrorCode.unreleased_instance_id,
            f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join "
            f"the group because the instance id is owned by {instance.member_id} member.",
        )
    if member is not None:
        raise RefusedError(
            ErrorCode.invalid_request,
            f"Member {beat.member_id} is already in the group and cannot take over "
            f"instance id {beat.instance_id}.",
        )
    return Sender(replaced=instance)


def _static_member(beat: ConsumerHeartbeat, instance: ConsumerMember | None) -> ConsumerMember:
    if instance is None:
        raise RefusedError(
            ErrorCode.unknown_member_id, f"Instance id {beat.instance_id} is unknown."
        )
    if instance.member_id != beat.member_id:
        raise RefusedError(
            ErrorCode.fenced_instance_id,
            f"Static member {beat.member_id} with instance id {beat.instance_id} was fenced "
            f"by member {instance.member_id}.",
        )
    return instance


def _check_epoch(member: ConsumerMember, beat: ConsumerHeartbeat) -> None:
    """The epoch must be the member's, or the previous one if our last answer may be lost.

    With the previous epoch the member may only own partitions that are assigned to it.
    """
    if beat.epoch == member.epoch:
        return
    is_behind = beat.epoch < member.epoch
    if is_behind and beat.epoch == member.previous_epoch and owns_only(beat.owned, member.assigned):
        return
    raise RefusedError(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {'smaller' if is_behind else 'greater'} member epoch "
        f"({beat.epoch}) than the one known by the group coordinator ({member.epoch}). "
        "The member must abandon all its partitions and rejoin.",
    )


def _unknown_member(beat: ConsumerHeartbeat) -> RefusedError:
    return RefusedError(
        ErrorCode.unknown_member_id, f"Member {beat.member_id} is not a member of the group."
    )

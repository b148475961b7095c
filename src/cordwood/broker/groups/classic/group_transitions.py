"""The state machine of a classic group: every state, every event and what follows. Pure.

    Empty ──join──> PreparingRebalance ──all joined──> CompletingRebalance ──leader syncs──> Stable
      ^                  │   ^  ^                              │                               │
      └──no members──────┘   │  └──member joins, leaves────────┴───────────────────────────────┘
                             └──only absent instances are left: wait longer

`TRANSITIONS` is the only place that knows which state follows which. A pair of state and event
that has no row cannot occur: an empty group has no member that could send a heartbeat, and a
dead group refuses every request before the table is consulted.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from cordwood.protocol.error_code import ErrorCode


class ClassicState(Enum):
    """The state of a group, under the name that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    """What can happen to a group: requests first, then timers and results of writes."""

    MEMBER_JOINED = "a member joined, or joined again with other protocols"
    MEMBER_REJOINED = "a follower joined again with the same protocols"
    LEADER_REJOINED = "the leader joined again with the same protocols"
    INSTANCE_RESTARTED = "a static member joined under a new id and its work is the same"
    SYNC = "a member asks for its assignment"
    HEARTBEAT = "a member sent a heartbeat"
    COMMIT = "a member commits offsets"
    OUTSIDE_COMMIT = "a client that names no member commits offsets"
    MEMBERS_LEFT = "members, or ids that wait for their second join, left"
    SESSION_EXPIRED = "a member was removed because its session expired"
    PENDING_EXPIRED = "a client did not come back with the member id it was given"
    MEMBERS_READY = "the join phase is over and a leader has joined"
    ALL_ABSENT = "the join phase is over and only static members that did not join are left"
    NO_MEMBERS = "the join phase is over and no member is left"
    ASSIGNMENT_SAVED = "the leader's assignment is durable"
    ASSIGNMENT_NOT_SAVED = "the leader's assignment could not be written"
    SYNCS_OVERDUE = "members that did not sync in time were removed"
    SIZE_EXCEEDED = "the restored group has more members than allowed"
    RESTORED = "the group was loaded with members"
    STOPPED = "the group was removed, or the broker stops"


class Action(Enum):
    """What the group does when it takes a step."""

    NOTHING = "nothing"
    ANSWER = "answer the request at once, with the code of the step"
    HOLD = "keep the request until the group takes another step"
    COMPLETE_JOIN = "end the join phase if every member has joined and it is not the first"
    START_FIRST_JOIN = "wait for more members, for group.initial.rebalance.delay.ms"
    START_JOIN = "wait for every member to join, for the longest rebalance timeout"
    RESTART_JOIN = "drop the unfinished assignment, refuse waiting syncs, then START_JOIN"
    EXTEND_JOIN = "wait longer: a member joins, or the sessions expire"
    BEGIN_GENERATION = "answer all joins and wait for the leader's assignment"
    SAVE_EMPTY = "write the empty group to the log"
    SAVE_INSTANCE = "write the new member id to the log, then answer its join"
    HAND_OUT = "answer all waiting syncs with their assignments"


class Step(NamedTuple):
    """One row of the table. `code` is the answer to a request, where there is one."""

    state: ClassicState
    action: Action
    code: ErrorCode = ErrorCode.none


_EMPTY: Final = ClassicState.EMPTY
_PREPARING: Final = ClassicState.PREPARING_REBALANCE
_COMPLETING: Final = ClassicState.COMPLETING_REBALANCE
_STABLE: Final = ClassicState.STABLE
_DEAD: Final = ClassicState.DEAD

TRANSITIONS: Final[Mapping[GroupEvent, Mapping[ClassicState, Step]]] = {
    GroupEvent.MEMBER_JOINED: {
        _EMPTY: Step(_PREPARING, Action.START_FIRST_JOIN),
        _PREPARING: Step(_PREPARING, Action.COMPLETE_JOIN),
        _COMPLETING: Step(_PREPARING, Action.RESTART_JOIN),
        _STABLE: Step(_PREPARING, Action.START_JOIN),
    },
    GroupEvent.MEMBER_REJOINED: {
        _PREPARING: Step(_PREPARING, Action.COMPLETE_JOIN),
        # The member probably missed the answer to its last join.
        _COMPLETING: Step(_COMPLETING, Action.ANSWER),
        _STABLE: Step(_STABLE, Action.ANSWER),
    },
    GroupEvent.LEADER_REJOINED: {
        _PREPARING: Step(_PREPARING, Action.COMPLETE_JOIN),
        _COMPLETING: Step(_COMPLETING, Action.ANSWER),
        # A leader that joins again asks for a rebalance: it may know of new partitions.
        _STABLE: Step(_PREPARING, Action.START_JOIN),
    },
    GroupEvent.INSTANCE_RESTARTED: {
        _PREPARING: Step(_PREPARING, Action.COMPLETE_JOIN),
        # The leader was given the old member id and would assign work to it.
        _COMPLETING: Step(_PREPARING, Action.RESTART_JOIN),
        _STABLE: Step(_STABLE, Action.SAVE_INSTANCE),
    },
    GroupEvent.SYNC: {
        _PREPARING: Step(_PREPARING, Action.ANSWER, ErrorCode.rebalance_in_progress),
        _COMPLETING: Step(_COMPLETING, Action.HOLD),
        _STABLE: Step(_STABLE, Action.ANSWER),
    },
    GroupEvent.HEARTBEAT: {
        _PREPARING: Step(_PREPARING, Action.ANSWER, ErrorCode.rebalance_in_progress),
        _COMPLETING: Step(_COMPLETING, Action.ANSWER),
        _STABLE: Step(_STABLE, Action.ANSWER),
    },
    GroupEvent.COMMIT: {
        # Members commit what they processed before they join again.
        _PREPARING: Step(_PREPARING, Action.ANSWER),
        _COMPLETING: Step(_COMPLETING, Action.ANSWER, ErrorCode.rebalance_in_progress),
        _STABLE: Step(_STABLE, Action.ANSWER),
    },
    GroupEvent.OUTSIDE_COMMIT: {
        _EMPTY: Step(_EMPTY, Action.ANSWER),
        _PREPARING: Step(_PREPARING, Action.ANSWER, ErrorCode.unknown_member_id),
        _COMPLETING: Step(_COMPLETING, Action.ANSWER, ErrorCode.unknown_member_id),
        _STABLE: Step(_STABLE, Action.ANSWER, ErrorCode.unknown_member_id),
    },
    GroupEvent.MEMBERS_LEFT: {
        _EMPTY: Step(_EMPTY, Action.NOTHING),
        _PREPARING: Step(_PREPARING, Action.COMPLETE_JOIN),
        _COMPLETING: Step(_PREPARING, Action.RESTART_JOIN),
        _STABLE: Step(_PREPARING, Action.START_JOIN),
    },
    GroupEvent.SESSION_EXPIRED: {
        _PREPARING: Step(_PREPARING, Action.COMPLETE_JOIN),
        _COMPLETING: Step(_PREPARING, Action.RESTART_JOIN),
        _STABLE: Step(_PREPARING, Action.START_JOIN),
    },
    GroupEvent.PENDING_EXPIRED: {
        _EMPTY: Step(_EMPTY, Action.NOTHING),
        _PREPARING: Step(_PREPARING, Action.COMPLETE_JOIN),
        _COMPLETING: Step(_COMPLETING, Action.NOTHING),
        _STABLE: Step(_STABLE, Action.NOTHING),
    },
    GroupEvent.MEMBERS_READY: {_PREPARING: Step(_COMPLETING, Action.BEGIN_GENERATION)},
    GroupEvent.ALL_ABSENT: {_PREPARING: Step(_PREPARING, Action.EXTEND_JOIN)},
    GroupEvent.NO_MEMBERS: {_PREPARING: Step(_EMPTY, Action.SAVE_EMPTY)},
    GroupEvent.ASSIGNMENT_SAVED: {_COMPLETING: Step(_STABLE, Action.HAND_OUT)},
    GroupEvent.ASSIGNMENT_NOT_SAVED: {_COMPLETING: Step(_PREPARING, Action.RESTART_JOIN)},
    GroupEvent.SYNCS_OVERDUE: {
        _COMPLETING: Step(_PREPARING, Action.RESTART_JOIN),
        _STABLE: Step(_PREPARING, Action.START_JOIN),
    },
    GroupEvent.SIZE_EXCEEDED: {_STABLE: Step(_PREPARING, Action.START_JOIN)},
    GroupEvent.RESTORED: {_EMPTY: Step(_STABLE, Action.NOTHING)},
    GroupEvent.STOPPED: {state: Step(_DEAD, Action.NOTHING) for state in ClassicState},
}


def next_step(state: ClassicState, event: GroupEvent) -> Step:
    """The row for `event` in `state`. A missing row is a bug of the caller."""
    step = TRANSITIONS[event].get(state)
    assert step is not None, f"{event.name} cannot occur in state {state.value}"
    return step

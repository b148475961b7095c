"""The state machine of a classic group: each row of its table, taken by a real group."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from cordwood.broker.groups.classic.classic_rebalance import ClassicRebalance
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.group_transitions import (
    TRANSITIONS,
    Action,
    ClassicState,
    GroupEvent,
    Step,
    next_step,
)
from cordwood.protocol.error_code import ErrorCode
from fakes.group_bench import REBALANCE_MS, SESSION_MS, GroupBench, answer_of

E = ClassicState.EMPTY
P = ClassicState.PREPARING_REBALANCE
C = ClassicState.COMPLETING_REBALANCE
S = ClassicState.STABLE
D = ClassicState.DEAD
REFUSED = ErrorCode.rebalance_in_progress
UNKNOWN = ErrorCode.unknown_member_id
WORKER = "worker-1"
OTHER = (("range", b"other"),)

# state, event, next state, action, code
ROWS = [
    (E, GroupEvent.MEMBER_JOINED, P, Action.START_FIRST_JOIN, ErrorCode.none),
    (P, GroupEvent.MEMBER_JOINED, P, Action.COMPLETE_JOIN, ErrorCode.none),
    (C, GroupEvent.MEMBER_JOINED, P, Action.RESTART_JOIN, ErrorCode.none),
    (S, GroupEvent.MEMBER_JOINED, P, Action.START_JOIN, ErrorCode.none),
    (P, GroupEvent.MEMBER_REJOINED, P, Action.COMPLETE_JOIN, ErrorCode.none),
    (C, GroupEvent.MEMBER_REJOINED, C, Action.ANSWER, ErrorCode.none),
    (S, GroupEvent.MEMBER_REJOINED, S, Action.ANSWER, ErrorCode.none),
    (P, GroupEvent.LEADER_REJOINED, P, Action.COMPLETE_JOIN, ErrorCode.none),
    (C, GroupEvent.LEADER_REJOINED, C, Action.ANSWER, ErrorCode.none),
    (S, GroupEvent.LEADER_REJOINED, P, Action.START_JOIN, ErrorCode.none),
    (P, GroupEvent.INSTANCE_RESTARTED, P, Action.COMPLETE_JOIN, ErrorCode.none),
    (C, GroupEvent.INSTANCE_RESTARTED, P, Action.RESTART_JOIN, ErrorCode.none),
    (S, GroupEvent.INSTANCE_RESTARTED, S, Action.SAVE_INSTANCE, ErrorCode.none),
    (P, GroupEvent.SYNC, P, Action.ANSWER, REFUSED),
    (C, GroupEvent.SYNC, C, Action.HOLD, ErrorCode.none),
    (S, GroupEvent.SYNC, S, Action.ANSWER, ErrorCode.none),
    (P, GroupEvent.HEARTBEAT, P, Action.ANSWER, REFUSED),
    (C, GroupEvent.HEARTBEAT, C, Action.ANSWER, ErrorCode.none),
    (S, GroupEvent.HEARTBEAT, S, Action.ANSWER, ErrorCode.none),
    (P, GroupEvent.COMMIT, P, Action.ANSWER, ErrorCode.none),
    (C, GroupEvent.COMMIT, C, Action.ANSWER, REFUSED),
    (S, GroupEvent.COMMIT, S, Action.ANSWER, ErrorCode.none),
    (E, GroupEvent.OUTSIDE_COMMIT, E, Action.ANSWER, ErrorCode.none),
    (P, GroupEvent.OUTSIDE_COMMIT, P, Action.ANSWER, UNKNOWN),
    (C, GroupEvent.OUTSIDE_COMMIT, C, Action.ANSWER, UNKNOWN),
    (S, GroupEvent.OUTSIDE_COMMIT, S, Action.ANSWER, UNKNOWN),
    (E, GroupEvent.MEMBERS_LEFT, E, Action.NOTHING, ErrorCode.none),
    (P, GroupEvent.MEMBERS_LEFT, P, Action.COMPLETE_JOIN, ErrorCode.none),
    (C, GroupEvent.MEMBERS_LEFT, P, Action.RESTART_JOIN, ErrorCode.none),
    (S, GroupEvent.MEMBERS_LEFT, P, Action.START_JOIN, ErrorCode.none),
    (P, GroupEvent.SESSION_EXPIRED, P, Action.COMPLETE_JOIN, ErrorCode.none),
    (C, GroupEvent.SESSION_EXPIRED, P, Action.RESTART_JOIN, ErrorCode.none),
    (S, GroupEvent.SESSION_EXPIRED, P, Action.START_JOIN, ErrorCode.none),
    (E, GroupEvent.PENDING_EXPIRED, E, Action.NOTHING, ErrorCode.none),
    (P, GroupEvent.PENDING_EXPIRED, P, Action.COMPLETE_JOIN, ErrorCode.none),
    (C, GroupEvent.PENDING_EXPIRED, C, Action.NOTHING, ErrorCode.none),
    (S, GroupEvent.PENDING_EXPIRED, S, Action.NOTHING, ErrorCode.none),
    (P, GroupEvent.MEMBERS_READY, C, Action.BEGIN_GENERATION, ErrorCode.none),
    (P, GroupEvent.ALL_ABSENT, P, Action.EXTEND_JOIN, ErrorCode.none),
    (P, GroupEvent.NO_MEMBERS, E, Action.SAVE_EMPTY, ErrorCode.none),
    (C, GroupEvent.ASSIGNMENT_SAVED, S, Action.HAND_OUT, ErrorCode.none),
    (C, GroupEvent.ASSIGNMENT_NOT_SAVED, P, Action.RESTART_JOIN, ErrorCode.none),
    (C, GroupEvent.SYNCS_OVERDUE, P, Action.RESTART_JOIN, ErrorCode.none),
    (S, GroupEvent.SYNCS_OVERDUE, P, Action.START_JOIN, ErrorCode.none),
    (S, GroupEvent.SIZE_EXCEEDED, P, Action.START_JOIN, ErrorCode.none),
    (E, GroupEvent.RESTORED, S, Action.NOTHING, ErrorCode.none),
    (E, GroupEvent.STOPPED, D, Action.NOTHING, ErrorCode.none),
    (P, GroupEvent.STOPPED, D, Action.NOTHING, ErrorCode.none),
    (C, GroupEvent.STOPPED, D, Action.NOTHING, ErrorCode.none),
    (S, GroupEvent.STOPPED, D, Action.NOTHING, ErrorCode.none),
    (D, GroupEvent.STOPPED, D, Action.NOTHING, ErrorCode.none),
]


@dataclass
class World:
    """A group with a leader, a follower and the static member `WORKER`, in a given state."""

    bench: GroupBench
    leader: str = ""
    follower: str = ""
    worker: str = ""

    @classmethod
    def in_state(cls, state: ClassicState) -> World:
        world = cls(GroupBench(GroupConfig(size_max=9)))
        if state is not E:
            world.leader, world.follower, world.worker = world.bench.stable(2, instances=(WORKER,))
        if state in (P, C):
            world.bench.join(world.follower, protocols=OTHER)
        if state is C:
            world.join_the_others()
        if state is D:
            world.bench.group.stop()
        assert world.bench.group.state is state
        return world

    def join_the_others(self) -> None:
        self.bench.join(self.leader)
        self.bench.join(self.worker, instance=WORKER)

    def join_again(self) -> None:
        has_other = self.bench.group.state in (P, C)
        if has_other:
            self.bench.join(self.follower, protocols=OTHER)
        else:
            self.bench.join(self.follower)

    def leave(self) -> None:
        pending = answer_of(self.bench.join())["member_id"]
        self.bench.leave((pending, None))

    def let_pending_expire(self) -> None:
        self.bench.join(session_ms=1_000)
        self.bench.scheduler.advance(2)

    def let_all_but_the_worker_leave(self) -> None:
        self.bench.leave((self.leader, None), (self.follower, None))
        self.wait_with_heartbeats(REBALANCE_MS)

    def wait_with_heartbeats(self, duration_ms: int) -> None:
        for _ in range(2 * duration_ms // SESSION_MS + 1):
            self.bench.scheduler.advance(SESSION_MS / 2000)
            for member in self.bench.group.members():
                self.bench.heartbeat(member.member_id, instance=member.group_instance_id)

    def leave_all(self) -> None:
        self.bench.leave((self.leader, None), (self.follower, None), (self.worker, WORKER))

    def fail_to_save(self) -> None:
        self.bench.log.fail_with = ErrorCode.not_coordinator
        self.sync_leader()

    def sync_leader(self) -> None:
        self.bench.sync(self.leader, assignments={self.leader: b"all"})

    def let_syncs_be_overdue(self) -> None:
        if self.bench.group.state is S:
            self.bench.join(self.leader)
            self.bench.join(self.follower)
            self.bench.join(self.worker, instance=WORKER)
            self.sync_leader()
        self.wait_with_heartbeats(REBALANCE_MS)

    def restore(self) -> None:
        large = World.in_state(S)
        self.bench.group.restore(large.bench.saved)

    def restore_too_many(self) -> None:
        saved = self.bench.saved
        self.bench.config = GroupConfig(size_max=2)
        self.bench.group = self.bench.new_group()
        self.bench.group.restore(saved)
        self.bench.group.resume()


TRIGGERS: dict[GroupEvent, Callable[[World], object]] = {
    GroupEvent.MEMBER_JOINED: lambda w: w.bench.join(version=3),
    GroupEvent.MEMBER_REJOINED: World.join_again,
    GroupEvent.LEADER_REJOINED: lambda w: w.bench.join(w.leader),
    GroupEvent.INSTANCE_RESTARTED: lambda w: w.bench.join(instance=WORKER),
    GroupEvent.SYNC: lambda w: w.bench.sync(w.follower),
    GroupEvent.HEARTBEAT: lambda w: w.bench.heartbeat(w.follower),
    GroupEvent.COMMIT: lambda w: w.bench.group.validate_commit(
        w.follower, w.bench.group.generation
    ),
    GroupEvent.OUTSIDE_COMMIT: lambda w: w.bench.group.validate_commit("", -1),
    GroupEvent.MEMBERS_LEFT: World.leave,
    GroupEvent.SESSION_EXPIRED: lambda w: w.bench.scheduler.advance(SESSION_MS / 1000 + 1),
    GroupEvent.PENDING_EXPIRED: World.let_pending_expire,
    GroupEvent.MEMBERS_READY: World.join_the_others,
    GroupEvent.ALL_ABSENT: World.let_all_but_the_worker_leave,
    GroupEvent.NO_MEMBERS: World.leave_all,
    GroupEvent.ASSIGNMENT_SAVED: World.sync_leader,
    GroupEvent.ASSIGNMENT_NOT_SAVED: World.fail_to_save,
    GroupEvent.SYNCS_OVERDUE: World.let_syncs_be_overdue,
    GroupEvent.SIZE_EXCEEDED: World.restore_too_many,
    GroupEvent.RESTORED: World.restore,
    GroupEvent.STOPPED: lambda w: w.bench.group.stop(),
}


@dataclass
class Recorder:
    """The steps that groups of this thread took or asked for, and the states after them."""

    steps: list[tuple[ClassicState, GroupEvent, Step]]

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        take, ask = ClassicRebalance.happened, ClassicRebalance.step
        mine = threading.current_thread()  # other brokers of the process have groups too

        def note(state: ClassicState, event: GroupEvent, step: Step) -> None:
            if threading.current_thread() is mine:
                self.steps.append((state, event, step))

        def happened(rebalance: ClassicRebalance, event: GroupEvent, reason: str = "") -> Step:
            before, step = rebalance.state, next_step(rebalance.state, event)
            note(before, event, step)
            return take(rebalance, event, reason)

        def asked(rebalance: ClassicRebalance, event: GroupEvent) -> Step:
            step = ask(rebalance, event)
            note(rebalance.state, event, step)
            return step

        monkeypatch.setattr(ClassicRebalance, "happened", happened)
        monkeypatch.setattr(ClassicRebalance, "step", asked)


def test_the_rows_here_are_those_of_the_table() -> None:
    table = {
        (state, event, *step) for event, row in TRANSITIONS.items() for state, step in row.items()
    }

    assert set(ROWS) == table
    assert len(ROWS) == len(table)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].value}-{row[1].name.lower()}")
def test_a_group_takes_the_step_of_the_table(
    row: tuple[ClassicState, GroupEvent, ClassicState, Action, ErrorCode],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, event, next_state, action, code = row
    world = World.in_state(state)
    recorder = Recorder([])
    recorder.watch(monkeypatch)

    TRIGGERS[event](world)
    world.bench.scheduler.run_ready()

    assert (state, event, Step(next_state, action, code)) in recorder.steps
    assert world.bench.group.state is recorder.steps[-1][2].state


def test_an_event_that_cannot_occur_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="HEARTBEAT cannot occur in state Empty"):
        next_step(E, GroupEvent.HEARTBEAT)


@pytest.mark.parametrize("event", GroupEvent)
def test_a_dead_group_stays_dead(event: GroupEvent) -> None:
    assert all(step.state is D for state, step in TRANSITIONS[event].items() if state is D)

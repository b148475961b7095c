"""Consumers of one group that come, go, fall silent and restart, over a broker that does too.

The model knows what each client was told, and checks that nobody was told what does not fit:
one generation has one assignment, and a commit that was acknowledged stays.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.group_transitions import ClassicState
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from fakes.coordinator_bench import CoordinatorBench, Pending

GROUP = "billing"
CLIENTS = 4
INSTANCE = "worker"
REJOIN = {
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_instance_id,
    ErrorCode.illegal_generation,
    ErrorCode.group_max_size_reached,
}


class Client:
    """What a consumer remembers. Client 3 has an instance id; client 2 speaks an old version."""

    def __init__(self, number: int) -> None:
        self.instance = INSTANCE if number == 3 else None
        self.version = 3 if number == 2 else 9
        self.name = number
        self.forget()

    def forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.members: list[tuple[str, str | None]] = []
        self.is_leader = False
        self.joining: Pending | None = None
        self.syncing: Pending | None = None


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        config = GroupConfig(initial_rebalance_delay_ms=500, offsets_topic_partitions=2)
        self.bench = CoordinatorBench(config=config)
        self.bench.store.create_topic("orders", partitions=2)
        self.clients = [Client(number) for number in range(CLIENTS)]
        self.unanswered: list[Pending] = []
        # What leaders gave first, by generation: who has which work, by name. A group that was
        # deleted begins at 1 again, and comes back should the deletion not survive a crash.
        self.given: dict[int, list[dict[str, bytes]]] = {}
        self.commits: list[tuple[int, Pending]] = []
        self.sent = 0  # the last offset committed: each is larger than those before
        self.acknowledged = 0
        self.voided = 0  # deleted with the group, up to here
        self.library_offset = -1

    def send(self, api: ApiKey, version: int, request: dict[str, Any]) -> Pending:
        pending = self.bench.send(api, version, request)
        self.unanswered.append(pending)
        self.look()
        return pending

    def look(self) -> None:
        """Let clients read the answers that have come."""
        self.bench.scheduler.run_ready()
        self.unanswered = [pending for pending in self.unanswered if not pending.is_done]
        for client in self.clients:
            if client.joining is not None and client.joining.is_done:
                answer, client.joining = client.joining.answer, None
                self.joined(client, answer)
            if client.syncing is not None and client.syncing.is_done:
                answer, client.syncing = client.syncing.answer, None
                self.synced(client, answer)
        for offset, pending in self.commits:
            if pending.is_done and self.code(pending) is ErrorCode.none and offset > self.voided:
                self.acknowledged = max(self.acknowledged, offset)
        self.commits = [item for item in self.commits if not item[1].is_done]

    def code(self, commit: Pending) -> ErrorCode:
        return ErrorCode(commit.answer.topics[0].partitions[0].error_code)

    def joined(self, client: Client, answer: Any) -> None:
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.none:
            client.member_id = answer.member_id
            client.generation = answer.generation_id
            client.is_leader = answer.leader == answer.member_id and not answer.skip_assignment
            # An old leader is not told instance ids.
            client.members = [
                (m.member_id, INSTANCE if m.member_id.startswith(f"{INSTANCE}-") else None)
                for m in answer.members
            ]
            assert not client.is_leader or answer.member_id in dict(client.members)
        elif code is ErrorCode.member_id_required:
            client.member_id = answer.member_id
        elif code in REJOIN:
            client.forget()

    def synced(self, client: Client, answer: Any) -> None:
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.none:
            own = client.instance or client.member_id
            given = [work.get(own) for work in self.given[client.generation]]
            assert answer.assignment in given, "not what the leader gave"
        elif code in REJOIN:
            client.forget()

    # --- clients -----------------------------------------------------------------------------

    @rule(number=st.integers(0, CLIENTS - 1), topics=st.sampled_from([b"a", b"b"]))
    def join(self, number: int, topics: bytes) -> None:
        client = self.clients[number]
        client.syncing = None  # it has given up on that
        request = {
            "group_id": GROUP,
            "member_id": client.member_id,
            "group_instance_id": client.instance,
            "session_timeout": 10_000,
            "rebalance_timeout": 20_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1" + topics}],
        }
        client.joining = self.send(ApiKey.JOIN_GROUP, client.version, request)
        self.look()

    @rule(number=st.integers(0, CLIENTS - 1), nonce=st.integers(0, 9))
    def sync(self, number: int, nonce: int) -> None:
        client = self.clients[number]
        if client.generation < 0 or client.joining is not None:
            return
        assignments: list[dict[str, Any]] = []
        if client.is_leader:
            work = {
                member: f"{client.generation}/{instance or member}/{nonce}".encode()
                for member, instance in client.members
            }
            group = self.bench.coordinator.groups.get(GROUP)
            is_expected = (
                isinstance(group, ClassicGroup)
                and group.state is ClassicState.COMPLETING_REBALANCE
                and (group.generation, group.leader_id) == (client.generation, client.member_id)
            )
            if is_expected and not group._rebalance.is_saving:  # type: ignore[union-attr]
                names = {member: instance or member for member, instance in client.members}
                given = {names[m]: w for m, w in work.items()}
                self.given.setdefault(client.generation, []).append(given)
            assignments = [{"member_id": m, "assignment": w} for m, w in work.items()]
        client.syncing = self.send(
            ApiKey.SYNC_GROUP,
            4,
            {
                "group_id": GROUP,
                "generation_id": client.generation,
                "member_id": client.member_id,
                "group_instance_id": client.instance,
                "assignments": assignments,
            },
        )
        self.look()

    @rule(number=st.integers(0, CLIENTS - 1))
    def join_and_sync_in_turn(self, number: int) -> None:
        """What clients usually do: without it few groups ever become stable."""
        for offset in (0, 0, *range(CLIENTS)):
            self.join((number + offset) % CLIENTS, b"a")
        self.bench.scheduler.advance(1)
        self.look()
        for position in range(CLIENTS):
            self.sync(position, 0)

    @rule(number=st.integers(0, CLIENTS - 1))
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        answer = self.send(
            ApiKey.HEARTBEAT,
            4,
            {
                "group_id": GROUP,
                "generation_id": client.generation,
                "member_id": client.member_id,
                "group_instance_id": client.instance,
            },
        )
        if answer.code in REJOIN and client.joining is None:
            client.forget()

    @rule(number=st.integers(0, CLIENTS - 1))
    def leave(self, number: int) -> None:
        client = self.clients[number]
        member = {"member_id": client.member_id, "group_instance_id": client.instance}
        self.send(ApiKey.LEAVE_GROUP, 5, {"group_id": GROUP, "members": [member]})
        client.forget()

    @rule(number=st.integers(0, CLIENTS - 1))
    def lose_memory(self, number: int) -> None:
        """The process was killed and started again."""
        self.clients[number].forget()

    @rule(number=st.integers(0, CLIENTS - 1), is_alone=st.booleans())
    def commit(self, number: int, is_alone: bool) -> None:
        client = self.clients[number]
        self.sent += 1
        pending = self.bench.commit(
            GROUP,
            self.sent,
            member_id="" if is_alone else client.member_id,
            generation_id_or_member_epoch=-1 if is_alone else client.generation,
            group_instance_id=None if is_alone else client.instance,
        )
        self.unanswered.append(pending)
        self.commits.append((self.sent, pending))
        self.look()

    # --- the world ---------------------------------------------------------------------------

    @rule(offset=st.integers(0, 1_000))
    def commit_by_library(self, offset: int) -> None:
        self.bench.store.group(GROUP).commit({("orders", 1): offset})
        self.library_offset = offset

    @rule()
    def delete_group(self) -> None:
        sent = self.sent
        pending = self.send(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]})
        if not pending.is_done:
            self.bench.log.is_held = False
            self.bench.log.release()
            self.look()
        if pending.answer.results[0].error_code == ErrorCode.none:
            self.voided = sent
            self.acknowledged = self.acknowledged if self.acknowledged > sent else 0
            self.library_offset = -1

    @rule(seconds=st.sampled_from([0.3, 1.0, 4.0, 9.0, 25.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.bench.scheduler.advance(seconds)
        self.look()

    @rule()
    def hold_the_log(self) -> None:
        self.bench.log.is_held = True

    @rule(code=st.sampled_from([None, None, ErrorCode.not_coordinator]))
    def release_the_log(self, code: ErrorCode | None) -> None:
        self.bench.log.fail_with = code
        self.bench.log.is_held = False
        self.bench.log.release()
        self.look()
        self.bench.log.fail_with = None

    @rule(has_crashed=st.booleans())
    def restart(self, has_crashed: bool) -> None:
        if not has_crashed:
            self.bench.log.is_held = False
            self.bench.log.release()
        waiting, before = self.unanswered, self.stable_work()
        is_saved = not self.bench.log.is_held
        self.bench = self.bench.restarted(has_crashed=has_crashed)
        if before is not None and is_saved:
            assert self.stable_work() == before, "members would have to join again"
        if not has_crashed:
            self.look()
            assert all(pending.is_done for pending in waiting), "left waiting by an ordered stop"
        self.unanswered, self.commits = [], []
        for client in self.clients:
            client.joining = client.syncing = None  # those connections are gone
        self.look()

    def stable_work(self) -> tuple[int, dict[str, bytes]] | None:
        group = self.bench.coordinator.groups.get(GROUP)
        if not isinstance(group, ClassicGroup) or group.state is not ClassicState.STABLE:
            return None
        return group.generation, {m.member_id: m.assignment for m in group.members()}

    # --- what must hold ----------------------------------------------------------------------

    @invariant()
    def a_stable_generation_is_what_its_leader_made_it(self) -> None:
        group = self.bench.coordinator.groups.get(GROUP)
        if group is None:
            return
        assert isinstance(group, ClassicGroup)
        if group.state is ClassicState.STABLE:
            work = {m.group_instance_id or m.member_id: m.assignment for m in group.members()}
            assert work in self.given[group.generation], "not what a leader gave"
        if group.state is ClassicState.EMPTY:
            assert group.member_count == 0
        else:
            assert group.leader_id in {m.member_id for m in group.members()} or (
                group.state is ClassicState.PREPARING_REBALANCE and not group.members()
            )

    @invariant()
    def every_member_has_a_session(self) -> None:
        group = self.bench.coordinator.groups.get(GROUP)
        if isinstance(group, ClassicGroup):
            assert all(member.member_id in group._sessions for member in group.members())

    @invariant()
    def acknowledged_commits_stay(self) -> None:
        found = self.bench.committed(GROUP)
        assert self.acknowledged <= found <= self.sent or (found == -1 and not self.acknowledged)
        by_library = self.bench.store.group(GROUP).committed()
        assert by_library.get(("orders", 0), -1) == found
        assert by_library.get(("orders", 1), -1) == self.library_offset

    def teardown(self) -> None:
        self.bench.log.is_held = False
        self.bench.log.release()
        self.bench.scheduler.advance(1_800)
        self.look()
        assert self.unanswered == [], "someone waits for ever"
        self.acknowledged_commits_stay()
        self.bench.coordinator.stop()
        self.bench.scheduler.run_ready()
        assert self.bench.scheduler.timer_count == 0


TestGroupMachine = GroupMachine.TestCase

"""Dynamic members of a classic group: joining, syncing, heartbeats, leaving, expiry."""

import pytest

from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.group_transitions import ClassicState
from cordwood.protocol.error_code import ErrorCode
from fakes.group_bench import (
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    GroupBench,
    answer_of,
    code_of,
    subscription,
)


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


# --- joining ------------------------------------------------------------------------------------


def test_a_new_member_is_told_its_id_and_to_come_again(bench: GroupBench) -> None:
    answer = answer_of(bench.join(client_id="app"))

    assert answer["error_code"] == ErrorCode.member_id_required
    assert answer["member_id"].startswith("app-")
    assert bench.group.state is ClassicState.EMPTY
    assert (bench.group.pending_count, bench.group.member_count) == (1, 0)


def test_before_version_4_a_new_member_joins_at_once(bench: GroupBench) -> None:
    answer = answer_of(bench.join(version=3))

    assert answer["error_code"] == ErrorCode.none
    assert bench.group.member_count == 1


def test_the_first_member_leads_and_is_told_who_else_there_is(bench: GroupBench) -> None:
    member_id, reply = bench.join_anew()

    assert answer_of(reply) == {
        "error_code": ErrorCode.none,
        "generation_id": 1,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": member_id,
        "skip_assignment": False,
        "member_id": member_id,
        "members": [
            {
                "member_id": member_id,
                "group_instance_id": None,
                "metadata": subscription("orders"),
            }
        ],
    }
    assert bench.group.state is ClassicState.COMPLETING_REBALANCE


def test_a_newcomer_waits_until_all_others_have_joined_again(bench: GroupBench) -> None:
    [first] = bench.stable(1)

    second, reply = bench.join_anew()
    was_waiting = not reply.is_done
    heard = bench.heartbeat(first)
    leader_reply = bench.join(first)

    assert was_waiting
    assert heard is ErrorCode.rebalance_in_progress
    assert answer_of(reply)["members"] == []
    assert answer_of(reply)["leader"] == first
    assert {m["member_id"] for m in answer_of(leader_reply)["members"]} == {first, second}
    assert bench.group.generation == 2


def test_members_that_do_not_join_again_in_time_are_dropped(bench: GroupBench) -> None:
    first, second = bench.stable(2)

    reply = bench.join(first)
    bench.heartbeat(second)
    bench.scheduler.advance(REBALANCE_MS / 1000 / 2)
    bench.heartbeat(second)
    for _ in range(5):
        bench.scheduler.advance(SESSION_MS / 2000)
        bench.heartbeat(second)
    bench.scheduler.advance(REBALANCE_MS / 1000)

    assert [m["member_id"] for m in answer_of(reply)["members"]] == [first]
    assert bench.heartbeat(second) is ErrorCode.unknown_member_id


def test_the_longest_rebalance_timeout_of_all_members_counts(bench: GroupBench) -> None:
    first, reply = bench.join_anew(rebalance_ms=1_000, session_ms=200_000)
    bench.sync(first, assignments={})
    _, second = bench.join_anew(rebalance_ms=90_000, session_ms=200_000)

    bench.scheduler.advance(89)
    before = second.is_done
    bench.scheduler.advance(2)

    assert reply.is_done
    assert (before, second.is_done) == (False, True)


def test_when_the_leader_stays_away_another_member_leads(bench: GroupBench) -> None:
    first, second = bench.stable(2)
    bench.join(second, protocols=(("range", subscription("orders", "returns")),))

    bench.scheduler.advance(SESSION_MS / 1000 + 1)

    assert bench.group.leader_id == second
    assert bench.heartbeat(first) is ErrorCode.unknown_member_id


@pytest.mark.parametrize("member_id", ["nobody", "client-0"])
def test_a_member_id_nobody_was_given_is_unknown(bench: GroupBench, member_id: str) -> None:
    bench.stable(1)

    assert code_of(bench.join(member_id)) is ErrorCode.unknown_member_id


def test_a_follower_that_joins_again_unchanged_is_told_the_current_generation(
    bench: GroupBench,
) -> None:
    _, second = bench.stable(2)

    answer = answer_of(bench.join(second))

    assert (answer["error_code"], answer["generation_id"]) == (ErrorCode.none, 2)
    assert bench.group.state is ClassicState.STABLE


def test_a_leader_that_joins_again_asks_for_a_rebalance(bench: GroupBench) -> None:
    first, _ = bench.stable(2)

    reply = bench.join(first)

    assert not reply.is_done
    assert bench.group.state is ClassicState.PREPARING_REBALANCE


def test_changed_metadata_asks_for_a_rebalance(bench: GroupBench) -> None:
    _, second = bench.stable(2)

    bench.join(second, protocols=(("range", b"other"),))

    assert bench.group.state is ClassicState.PREPARING_REBALANCE


def test_who_joins_again_before_syncing_gets_the_same_answer_again(bench: GroupBench) -> None:
    member_id, first = bench.join_anew()

    again = bench.join(member_id)

    assert answer_of(again) == answer_of(first)
    assert bench.group.state is ClassicState.COMPLETING_REBALANCE


def test_who_joins_again_with_other_metadata_before_syncing_begins_a_new_generation(
    bench: GroupBench,
) -> None:
    member_id, _ = bench.join_anew()

    again = bench.join(member_id, protocols=(("range", b"other"),))

    assert answer_of(again)["generation_id"] == 2


def test_a_join_sent_again_on_another_connection_ends_the_first(bench: GroupBench) -> None:
    bench.stable(1)
    second, lost = bench.join_anew()

    again = bench.join(second)

    assert code_of(lost) is ErrorCode.rebalance_in_progress
    assert not again.is_done


def test_a_pending_member_holds_up_the_others_until_its_session_runs_out(
    bench: GroupBench,
) -> None:
    [first] = bench.stable(1)
    bench.join(session_ms=20_000)

    reply = bench.join(first)
    bench.scheduler.advance(19)
    before = reply.is_done
    bench.scheduler.advance(2)

    assert (before, reply.is_done) == (False, True)
    assert bench.group.pending_count == 0


def test_a_group_nobody_comes_back_to_is_abandoned(bench: GroupBench) -> None:
    bench.join(session_ms=20_000)

    bench.scheduler.run_until_idle()

    assert bench.abandoned == [bench.group]
    assert bench.log.records == []


def test_a_new_member_whose_client_is_gone_is_removed_after_five_minutes(
    bench: GroupBench,
) -> None:
    [first] = bench.stable(1)
    _, reply = bench.join_anew(rebalance_ms=3_600_000)
    for _ in range(70):
        bench.scheduler.advance(5)
        bench.heartbeat(first)

    assert code_of(reply) is ErrorCode.unknown_member_id


# --- protocols ----------------------------------------------------------------------------------


def test_the_protocol_most_members_would_rather_have_wins(bench: GroupBench) -> None:
    both = (("sticky", b"s"), ("range", b"r"))
    other = (("range", b"r"), ("sticky", b"s"))
    first, _ = bench.join_anew(protocols=both)
    second, _ = bench.join_anew(protocols=other)
    third, _ = bench.join_anew(protocols=other)

    reply = bench.join(first, protocols=both)

    assert answer_of(reply)["protocol_name"] == "range"
    assert {m["metadata"] for m in answer_of(reply)["members"]} == {b"r"}
    assert {second, third} < {m["member_id"] for m in answer_of(reply)["members"]}


def test_only_a_protocol_that_all_members_have_is_chosen(bench: GroupBench) -> None:
    first, _ = bench.join_anew(protocols=(("a", b""), ("b", b"")))
    bench.join_anew(protocols=(("c", b""), ("b", b"")))

    reply = bench.join(first, protocols=(("a", b""), ("b", b"")))

    assert answer_of(reply)["protocol_name"] == "b"


@pytest.mark.parametrize(
    "wish",
    [
        {"protocol_type": "connect"},
        {"protocols": (("elsewhere", b""),)},
        {"protocols": ()},
    ],
    ids=["another type", "no common protocol", "no protocol"],
)
def test_who_does_not_fit_in_is_refused(bench: GroupBench, wish: dict[str, object]) -> None:
    bench.stable(1)

    assert code_of(bench.join(**wish)) is ErrorCode.inconsistent_group_protocol  # type: ignore[arg-type]


@pytest.mark.parametrize("wish", [{"protocol_type": ""}, {"protocols": ()}])
def test_an_empty_group_takes_anyone_who_names_a_protocol(
    bench: GroupBench, wish: dict[str, object]
) -> None:
    refused = bench.join(**wish)  # type: ignore[arg-type]
    _, taken = bench.join_anew(protocol_type="connect", protocols=(("v0", b"x"),))

    assert code_of(refused) is ErrorCode.inconsistent_group_protocol
    assert code_of(taken) is ErrorCode.none


# --- size ---------------------------------------------------------------------------------------


def test_a_full_group_takes_nobody_more() -> None:
    bench = GroupBench(GroupConfig(size_max=2))
    bench.stable(2)

    answer = answer_of(bench.join(version=3))

    assert (answer["error_code"], answer["member_id"]) == (ErrorCode.group_max_size_reached, "")


def test_pending_members_of_a_full_group_are_refused_too() -> None:
    bench = GroupBench(GroupConfig(size_max=2))
    bench.join()
    bench.join()

    assert code_of(bench.join()) is ErrorCode.group_max_size_reached
    assert bench.group.pending_count == 2


def test_a_group_found_larger_than_allowed_loses_those_who_join_last() -> None:
    large = GroupBench()
    first, second, third = large.stable(3)
    bench = GroupBench(GroupConfig(size_max=2))
    bench.group.restore(large.saved)

    bench.group.resume()
    replies = [bench.join(member) for member in (first, second, third)]

    assert [code_of(reply) for reply in replies] == [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.group_max_size_reached,
    ]


def test_there_is_a_limit_to_what_all_members_bring(bench: GroupBench) -> None:
    member, first = bench.join_anew(protocols=(("range", bytes(600)),))
    bench.sync(member, assignments={})

    other = bench.join(protocols=(("range", bytes(600)),), version=3)
    again = bench.join(member, protocols=(("range", bytes(900)),))
    larger = bench.join(member, protocols=(("range", bytes(1_000)),))

    assert code_of(first) is code_of(again) is ErrorCode.none
    assert code_of(other) is code_of(larger) is ErrorCode.coordinator_not_available
    assert bench.budget.held_bytes == 905
    bench.leave((member, None))
    assert bench.budget.held_bytes == 0


# --- the initial delay --------------------------------------------------------------------------


def test_an_empty_group_waits_for_more_members_before_the_first_generation() -> None:
    bench = GroupBench(GroupConfig(initial_rebalance_delay_ms=3_000))
    _, first = bench.join_anew()
    bench.scheduler.advance(2)
    _, second = bench.join_anew()

    bench.scheduler.advance(2)
    was_put_off = not first.is_done
    bench.scheduler.advance(2)

    assert was_put_off
    assert answer_of(first)["generation_id"] == answer_of(second)["generation_id"] == 1
    assert len(answer_of(first)["members"]) == 2


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    bench = GroupBench(GroupConfig(initial_rebalance_delay_ms=3_000))
    _, first = bench.join_anew(rebalance_ms=7_000)
    for _ in range(5):
        bench.scheduler.advance(1.9)
        bench.join_anew(rebalance_ms=7_000)

    assert first.is_done


# --- syncing ------------------------------------------------------------------------------------


def test_members_wait_for_the_leader_and_get_what_it_gave_them(bench: GroupBench) -> None:
    first, _ = bench.join_anew()
    second, _ = bench.join_anew()
    bench.join(first)

    follower = bench.sync(second)
    was_waiting = not follower.is_done
    leader = bench.sync(first, assignments={first: b"one", second: b"two", "nobody": b"x"})

    assert was_waiting
    assert answer_of(leader)["assignment"] == b"one"
    assert answer_of(follower) == {
        "error_code": ErrorCode.none,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignment": b"two",
    }


def test_nobody_is_answered_before_the_assignment_is_saved(bench: GroupBench) -> None:
    member_id, _ = bench.join_anew()
    bench.log.is_held = True

    reply = bench.sync(member_id, assignments={member_id: b"all"})
    before = (reply.is_done, bench.group.state)
    bench.log.release()
    bench.scheduler.run_ready()

    assert before == (False, ClassicState.COMPLETING_REBALANCE)
    assert answer_of(reply)["assignment"] == b"all"
    assert bench.group.state is ClassicState.STABLE


def test_what_is_saved_is_the_generation_with_all_members(bench: GroupBench) -> None:
    first, second = bench.stable(2)

    saved = bench.saved

    assert (saved.generation, saved.protocol_type, saved.protocol) == (2, "consumer", "range")
    assert saved.leader == first
    assert [(m.member_id, m.assignment) for m in saved.members] == [
        (first, b"for-0"),
        (second, b"for-1"),
    ]
    assert {m.client_host for m in saved.members} == {"/127.0.0.1"}


def test_a_member_the_leader_forgot_gets_an_empty_assignment(bench: GroupBench) -> None:
    member_id, _ = bench.join_anew()

    reply = bench.sync(member_id, assignments={})

    assert answer_of(reply)["assignment"] == b""


def test_an_assignment_that_cannot_be_saved_is_nobody_s(bench: GroupBench) -> None:
    member_id, _ = bench.join_anew()
    bench.log.fail_with = ErrorCode.not_coordinator

    reply = bench.sync(member_id, assignments={member_id: b"all"})

    assert code_of(reply) is ErrorCode.not_coordinator
    assert bench.group.state is ClassicState.PREPARING_REBALANCE
    assert [m.assignment for m in bench.group.members()] == [b""]


def test_a_newcomer_while_the_assignment_is_saved_makes_it_void(bench: GroupBench) -> None:
    first, _ = bench.join_anew()
    bench.log.is_held = True
    reply = bench.sync(first, assignments={first: b"all"})

    bench.join_anew()
    bench.log.release()
    bench.scheduler.run_ready()

    assert code_of(reply) is ErrorCode.rebalance_in_progress
    assert bench.group.state is ClassicState.PREPARING_REBALANCE


def test_a_sync_sent_again_on_another_connection_ends_the_first(bench: GroupBench) -> None:
    first, _ = bench.join_anew()
    second, _ = bench.join_anew()
    bench.join(first)

    lost, again = bench.sync(second), bench.sync(second)

    assert code_of(lost) is ErrorCode.rebalance_in_progress
    assert not again.is_done


def test_what_a_leader_assigns_first_in_a_generation_counts(bench: GroupBench) -> None:
    leader, _ = bench.join_anew()
    bench.log.is_held = True

    bench.sync(leader, assignments={leader: b"first"})
    again = bench.sync(leader, assignments={leader: b"second"})
    bench.log.release()
    bench.scheduler.run_ready()

    assert answer_of(again)["assignment"] == b"first"
    assert bench.saved.members[0].assignment == b"first"


def test_a_stable_group_tells_an_assignment_again(bench: GroupBench) -> None:
    [member_id] = bench.stable(1)

    assert answer_of(bench.sync(member_id))["assignment"] == b"for-0"


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"generation": 7}, ErrorCode.illegal_generation),
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_name": "sticky"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.none),
    ],
)
def test_a_sync_must_be_of_this_generation_and_protocol(
    bench: GroupBench, wish: dict[str, object], code: ErrorCode
) -> None:
    [member_id] = bench.stable(1)

    assert code_of(bench.sync(member_id, **wish)) is code  # type: ignore[arg-type]


def test_a_sync_of_a_stranger_is_refused(bench: GroupBench) -> None:
    bench.stable(1)

    assert code_of(bench.sync("nobody")) is ErrorCode.unknown_member_id


def test_a_sync_while_members_join_is_refused(bench: GroupBench) -> None:
    [first] = bench.stable(1)
    bench.join_anew()

    assert code_of(bench.sync(first)) is ErrorCode.rebalance_in_progress


def test_members_that_never_sync_are_dropped_after_the_rebalance_timeout(
    bench: GroupBench,
) -> None:
    first, _ = bench.join_anew(session_ms=200_000)
    second, _ = bench.join_anew(session_ms=200_000)
    bench.join(first, session_ms=200_000)
    follower = bench.sync(second)

    bench.scheduler.advance(REBALANCE_MS / 1000 + 1)

    assert code_of(follower) is ErrorCode.rebalance_in_progress
    assert [m.member_id for m in bench.group.members()] == [second]


def test_who_syncs_late_in_a_stable_group_stays(bench: GroupBench) -> None:
    first, _ = bench.join_anew(session_ms=200_000)
    second, _ = bench.join_anew(session_ms=200_000)
    bench.join(first, session_ms=200_000)
    bench.sync(first, assignments={first: b"1", second: b"2"})
    bench.scheduler.advance(REBALANCE_MS / 1000 - 1)

    late = bench.sync(second)
    bench.scheduler.advance(5)

    assert answer_of(late)["assignment"] == b"2"
    assert bench.group.state is ClassicState.STABLE


# --- heartbeats and sessions --------------------------------------------------------------------


def test_heartbeats_keep_a_member(bench: GroupBench) -> None:
    [member_id] = bench.stable(1)

    for _ in range(10):
        bench.scheduler.advance(SESSION_MS / 1000 * 0.9)
        assert bench.heartbeat(member_id) is ErrorCode.none

    assert bench.group.state is ClassicState.STABLE


def test_a_silent_member_is_removed_and_the_others_rebalance(bench: GroupBench) -> None:
    first, second = bench.stable(2)

    bench.scheduler.advance(SESSION_MS / 2000)
    bench.heartbeat(first)
    bench.scheduler.advance(SESSION_MS / 2000 + 1)

    assert bench.heartbeat(first) is ErrorCode.rebalance_in_progress
    assert bench.heartbeat(second) is ErrorCode.unknown_member_id


def test_a_shorter_session_timeout_counts_from_the_next_join_on(bench: GroupBench) -> None:
    member_id, _ = bench.join_anew(session_ms=60_000)
    bench.sync(member_id, assignments={})

    bench.join(member_id, session_ms=6_000)
    bench.sync(member_id, assignments={})
    bench.scheduler.advance(7)

    assert bench.group.member_count == 0


@pytest.mark.parametrize(
    ("member", "generation", "code"),
    [
        ("nobody", 1, ErrorCode.unknown_member_id),
        (None, 0, ErrorCode.illegal_generation),
        (None, 2, ErrorCode.illegal_generation),
        (None, 1, ErrorCode.none),
    ],
)
def test_a_heartbeat_must_be_of_a_member_and_this_generation(
    bench: GroupBench, member: str | None, generation: int, code: ErrorCode
) -> None:
    [member_id] = bench.stable(1)

    assert bench.heartbeat(member or member_id, generation) is code


def test_a_heartbeat_between_join_and_sync_is_fine(bench: GroupBench) -> None:
    member_id, _ = bench.join_anew()

    assert bench.heartbeat(member_id) is ErrorCode.none


def test_a_member_that_waits_for_a_rebalance_is_not_removed(bench: GroupBench) -> None:
    first, second = bench.stable(2)
    reply = bench.join(first)
    for _ in range(5):
        bench.scheduler.advance(SESSION_MS / 1000 * 0.9)
        bench.heartbeat(second)

    bench.join(second)

    assert code_of(reply) is ErrorCode.none
    assert bench.group.member_count == 2


# --- leaving ------------------------------------------------------------------------------------


def test_when_a_member_leaves_the_others_rebalance(bench: GroupBench) -> None:
    first, second = bench.stable(2)

    codes = bench.leave((second, None))

    assert codes == [ErrorCode.none]
    assert bench.heartbeat(first) is ErrorCode.rebalance_in_progress


def test_when_the_last_member_leaves_the_group_is_empty_and_that_is_saved(
    bench: GroupBench,
) -> None:
    [member_id] = bench.stable(1)
    bench.clock.advance(500)

    bench.leave((member_id, None))

    assert bench.group.state is ClassicState.EMPTY
    assert bench.saved.members == ()
    assert (bench.saved.generation, bench.saved.protocol, bench.saved.leader) == (2, None, None)
    assert bench.saved.current_state_timestamp == bench.clock.now_ms()
    assert bench.abandoned == []


def test_several_leave_at_once_each_with_its_own_answer(bench: GroupBench) -> None:
    first, second = bench.stable(2)

    codes = bench.leave((first, None), ("nobody", None), (second, None), ("", None))

    assert codes == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    ]
    assert bench.group.state is ClassicState.EMPTY


def test_a_pending_member_may_leave(bench: GroupBench) -> None:
    member_id = answer_of(bench.join())["member_id"]

    assert bench.leave((member_id, None)) == [ErrorCode.none]
    assert bench.group.pending_count == 0
    assert bench.abandoned == [bench.group]


def test_who_leaves_while_it_waits_is_answered(bench: GroupBench) -> None:
    bench.stable(1)
    second, reply = bench.join_anew()

    bench.leave((second, None))

    assert code_of(reply) is ErrorCode.unknown_member_id


def test_the_last_one_missing_leaves_and_the_rebalance_goes_on(bench: GroupBench) -> None:
    first, second = bench.stable(2)
    reply = bench.join(first)

    bench.leave((second, None))

    assert code_of(reply) is ErrorCode.none


# --- commits ------------------------------------------------------------------------------------


def test_a_member_of_this_generation_may_commit(bench: GroupBench) -> None:
    [member_id] = bench.stable(1)

    assert bench.group.validate_commit(member_id, 1) is ErrorCode.none


def test_a_member_may_commit_while_the_others_join(bench: GroupBench) -> None:
    [member_id] = bench.stable(1)
    bench.join_anew()

    assert bench.group.validate_commit(member_id, 1) is ErrorCode.none


def test_a_commit_between_join_and_sync_waits_for_the_rebalance(bench: GroupBench) -> None:
    member_id, _ = bench.join_anew()

    assert bench.group.validate_commit(member_id, 1) is ErrorCode.rebalance_in_progress


@pytest.mark.parametrize(
    ("member", "generation", "code"),
    [
        ("nobody", 1, ErrorCode.unknown_member_id),
        ("", -1, ErrorCode.unknown_member_id),
        ("", 1, ErrorCode.unknown_member_id),
        (None, 5, ErrorCode.illegal_generation),
        (None, -1, ErrorCode.illegal_generation),
    ],
)
def test_nobody_else_may_commit_while_there_are_members(
    bench: GroupBench, member: str | None, generation: int, code: ErrorCode
) -> None:
    [member_id] = bench.stable(1)
    who = member_id if member is None else member

    assert bench.group.validate_commit(who, generation) is code


def test_an_empty_group_takes_commits_without_a_generation_only(bench: GroupBench) -> None:
    assert bench.group.validate_commit("", -1) is ErrorCode.none
    assert bench.group.validate_commit("whoever", -1) is ErrorCode.none
    assert bench.group.validate_commit("whoever", 3) is ErrorCode.unknown_member_id


def test_commits_keep_a_member(bench: GroupBench) -> None:
    [member_id] = bench.stable(1)

    for _ in range(5):
        bench.scheduler.advance(SESSION_MS / 1000 * 0.9)
        bench.group.validate_commit(member_id, 1)

    assert bench.group.state is ClassicState.STABLE


# --- what is read -------------------------------------------------------------------------------


def test_the_group_knows_what_its_consumers_read(bench: GroupBench) -> None:
    first, _ = bench.join_anew(protocols=(("range", subscription("a", "b")),))
    bench.join_anew(protocols=(("range", subscription("b", "c")),))
    bench.join(first, protocols=(("range", subscription("a", "b")),))

    assert bench.group.subscribed_topics() == frozenset({"a", "b", "c"})


def test_without_members_nothing_is_read(bench: GroupBench) -> None:
    [member_id] = bench.stable(1)
    bench.leave((member_id, None))

    assert bench.group.subscribed_topics() == frozenset()


@pytest.mark.parametrize("wish", [{"protocols": (("range", b"\x00"),)}, {"protocol_type": "x"}])
def test_what_cannot_be_parsed_is_not_known(bench: GroupBench, wish: dict[str, object]) -> None:
    bench.join_anew(**wish)

    assert bench.group.subscribed_topics() is None


# --- restart and end ----------------------------------------------------------------------------


def test_after_a_restart_members_go_on_without_a_rebalance(bench: GroupBench) -> None:
    first, second = bench.stable(2)
    saved = bench.saved
    bench.group = bench.new_group()

    bench.group.restore(saved)
    bench.group.resume()
    heard = [bench.heartbeat(first, 2), bench.heartbeat(second, 2)]

    assert heard == [ErrorCode.none, ErrorCode.none]
    assert bench.group.leader_id == first
    assert answer_of(bench.sync(second))["assignment"] == b"for-1"
    assert bench.group.validate_commit(second, 2) is ErrorCode.none
    assert bench.group.subscribed_topics() == frozenset({"orders"})


def test_after_a_restart_silent_members_are_removed(bench: GroupBench) -> None:
    bench.stable(1)
    saved = bench.saved
    bench.group = bench.new_group()
    bench.group.restore(saved)

    bench.group.resume()
    bench.scheduler.advance(SESSION_MS / 1000 + 1)

    assert bench.group.state is ClassicState.EMPTY


def test_an_ended_group_sends_everyone_elsewhere(bench: GroupBench) -> None:
    first, _ = bench.join_anew()
    second, waiting = bench.join_anew()
    bench.join()

    bench.group.stop()
    bench.scheduler.run_ready()

    assert code_of(waiting) is ErrorCode.not_coordinator
    assert bench.scheduler.timer_count == 0
    assert bench.heartbeat(first) is ErrorCode.coordinator_not_available
    assert code_of(bench.join(second)) is ErrorCode.coordinator_not_available
    assert code_of(bench.sync(second)) is ErrorCode.coordinator_not_available
    assert bench.group.validate_commit(second, 1) is ErrorCode.coordinator_not_available
    assert bench.group.is_empty


def test_a_member_id_names_its_client_but_not_at_any_length(bench: GroupBench) -> None:
    member_id = answer_of(bench.join(client_id="x" * 30_000))["member_id"]

    assert member_id.startswith("x" * 100)
    assert len(member_id) < 1_100


def test_heartbeats_do_not_pile_up_timers(bench: GroupBench) -> None:
    [member_id] = bench.stable(1)
    before = bench.scheduler.timer_count

    for _ in range(1_000):
        bench.heartbeat(member_id)

    assert bench.scheduler.timer_count == before


def test_protocols_are_compared_with_what_the_member_brought_last(bench: GroupBench) -> None:
    first, second = bench.stable(2)
    changed = (("range", subscription("other")),)
    bench.join(second, protocols=changed)
    bench.join(first, protocols=RANGE)
    bench.sync(first, assignments={})
    bench.sync(second)

    bench.join(second, protocols=changed)

    assert bench.group.state is ClassicState.STABLE


def test_a_protocol_that_a_member_names_twice_counts_once(bench: GroupBench) -> None:
    twice = (("range", subscription("orders")), ("range", subscription("orders")))
    first, reply = bench.join_anew(protocols=twice)
    other = bench.join(protocols=(("sticky", b""),), version=3)

    bench.sync(first, assignments={first: b"all"})

    assert answer_of(reply)["protocol_name"] == "range"
    assert code_of(other) is ErrorCode.inconsistent_group_protocol
    assert bench.group.state_name == "Stable"
    bench.leave((first, None))
    assert bench.group.state_name == "Empty"

"""Members with an instance id: they may be away for a while, and come back under another id."""

import pytest

from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.group_transitions import ClassicState
from cordwood.protocol.error_code import ErrorCode
from fakes.group_bench import (
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


def test_an_instance_joins_in_one_step_and_its_id_names_it(bench: GroupBench) -> None:
    answer = answer_of(bench.join(instance="worker-1"))

    assert answer["error_code"] == ErrorCode.none
    assert answer["member_id"].startswith("worker-1-")
    assert answer["members"][0]["group_instance_id"] == "worker-1"


def test_an_instance_that_restarts_takes_its_place_without_a_rebalance(bench: GroupBench) -> None:
    leader, follower = bench.stable(1, instances=("worker-1",))

    answer = answer_of(bench.join(instance="worker-1"))

    assert answer["member_id"] != follower
    assert (answer["error_code"], answer["generation_id"]) == (ErrorCode.none, 2)
    assert (answer["leader"], answer["skip_assignment"]) == (leader, False)
    assert bench.group.state is ClassicState.STABLE
    again = bench.sync(answer["member_id"], instance="worker-1")
    assert answer_of(again)["assignment"] == b"for-1"


def test_the_new_id_is_answered_only_once_it_is_saved(bench: GroupBench) -> None:
    bench.stable(0, instances=("worker-1",))
    bench.log.is_held = True

    reply = bench.join(instance="worker-1")
    before = reply.is_done
    bench.log.release()
    bench.scheduler.run_ready()

    assert not before
    assert [m.member_id for m in bench.saved.members] == [answer_of(reply)["member_id"]]


def test_a_new_id_that_cannot_be_saved_is_taken_back(bench: GroupBench) -> None:
    [old] = bench.stable(0, instances=("worker-1",))
    bench.log.fail_with = ErrorCode.not_coordinator

    reply = bench.join(instance="worker-1")

    assert code_of(reply) is ErrorCode.not_coordinator
    assert bench.heartbeat(old, instance="worker-1") is ErrorCode.none
    assert bench.group.leader_id == old


def test_a_rebalance_while_the_new_id_is_saved_answers_for_it(bench: GroupBench) -> None:
    leader, _ = bench.stable(1, instances=("worker-1",))
    bench.log.is_held = True
    reply = bench.join(instance="worker-1")

    bench.join(leader)
    bench.log.fail_with = ErrorCode.not_coordinator
    bench.log.release()
    bench.scheduler.run_ready()

    assert answer_of(reply)["generation_id"] == 3
    assert bench.group.member_count == 2


def test_a_leader_that_restarts_is_told_to_keep_the_assignment(bench: GroupBench) -> None:
    [old] = bench.stable(0, instances=("worker-1",))

    answer = answer_of(bench.join(instance="worker-1"))

    assert answer["skip_assignment"] is True
    assert answer["leader"] == answer["member_id"] != old
    assert len(answer["members"]) == 1


def test_a_leader_too_old_to_skip_is_told_someone_else_leads(bench: GroupBench) -> None:
    [old] = bench.stable(0, instances=("worker-1",))

    answer = answer_of(bench.join(instance="worker-1", version=8))

    assert (answer["leader"], answer["members"]) == (old, [])
    assert answer["skip_assignment"] is False


def test_the_replaced_one_is_fenced_everywhere(bench: GroupBench) -> None:
    _, old = bench.stable(1, instances=("worker-1",))

    bench.join(instance="worker-1")

    fenced = ErrorCode.fenced_instance_id
    assert bench.heartbeat(old, instance="worker-1") is fenced
    assert code_of(bench.join(old, instance="worker-1")) is fenced
    assert code_of(bench.sync(old, instance="worker-1")) is fenced
    assert bench.group.validate_commit(old, 2, "worker-1") is fenced
    assert bench.leave((old, "worker-1")) == [fenced]


def test_the_replaced_one_is_fenced_while_it_waits_to_join(bench: GroupBench) -> None:
    bench.stable(1)
    waiting = bench.join(instance="worker-1")

    again = bench.join(instance="worker-1")

    assert code_of(waiting) is ErrorCode.fenced_instance_id
    assert not again.is_done
    assert bench.group.member_count == 2


def test_the_replaced_one_is_fenced_while_it_waits_to_sync(bench: GroupBench) -> None:
    leader, _ = bench.stable(1, instances=("worker-1",))
    bench.join(leader)
    member_id = answer_of(bench.join(instance="worker-1"))["member_id"]
    waiting = bench.sync(member_id, instance="worker-1")

    again = bench.join(instance="worker-1")

    assert code_of(waiting) is ErrorCode.fenced_instance_id
    assert not again.is_done
    assert bench.group.state is ClassicState.PREPARING_REBALANCE


def test_an_unknown_instance_is_an_unknown_member(bench: GroupBench) -> None:
    [member_id] = bench.stable(1)

    assert bench.heartbeat(member_id, instance="worker-9") is ErrorCode.unknown_member_id


def test_an_instance_that_comes_back_reading_something_else_asks_for_a_rebalance(
    bench: GroupBench,
) -> None:
    bench.stable(1, instances=("worker-1",))

    reply = bench.join(instance="worker-1", protocols=(("range", subscription("returns")),))

    assert not reply.is_done
    assert bench.group.state is ClassicState.PREPARING_REBALANCE


def test_an_instance_that_comes_back_with_other_user_data_does_not(bench: GroupBench) -> None:
    bench.stable(1, instances=("worker-1",))
    changed = subscription("orders") + b"what it owned"

    reply = bench.join(instance="worker-1", protocols=(("range", changed),))

    assert code_of(reply) is ErrorCode.none
    assert bench.group.state is ClassicState.STABLE


def test_an_instance_whose_protocols_change_the_choice_asks_for_a_rebalance(
    bench: GroupBench,
) -> None:
    both = (("range", subscription("orders")), ("sticky", subscription("orders")))
    reply = bench.join(instance="worker-1", protocols=both)
    member_id = answer_of(reply)["member_id"]
    bench.sync(member_id, instance="worker-1", assignments={})

    again = bench.join(instance="worker-1", protocols=both[::-1])

    assert answer_of(again)["protocol_name"] == "sticky"
    assert answer_of(again)["generation_id"] == 2


def test_an_instance_may_miss_a_rebalance(bench: GroupBench) -> None:
    leader, absent = bench.stable(1, instances=("worker-1",))
    reply = bench.join(leader, session_ms=600_000)
    for _ in range(13):
        bench.scheduler.advance(SESSION_MS / 2000)
        bench.heartbeat(absent, instance="worker-1")

    answer = answer_of(reply)

    assert REBALANCE_MS < 13 * SESSION_MS / 2
    assert {m["member_id"] for m in answer["members"]} == {leader, absent}


def test_a_rebalance_that_only_absent_instances_are_left_of_waits_for_their_sessions(
    bench: GroupBench,
) -> None:
    first = answer_of(bench.join(instance="worker-1", session_ms=200_000))["member_id"]
    bench.sync(first, instance="worker-1", assignments={})
    second, _ = bench.join_anew()
    bench.leave((second, None))

    bench.scheduler.advance(REBALANCE_MS / 1000 + 5)
    waits = bench.group.state
    bench.scheduler.advance(200)

    assert waits is ClassicState.PREPARING_REBALANCE
    assert bench.group.state is ClassicState.EMPTY


def test_an_instance_that_wants_no_time_to_rejoin_does_not_make_the_group_spin(
    bench: GroupBench,
) -> None:
    first = answer_of(bench.join(instance="worker-1", rebalance_ms=0))["member_id"]
    bench.sync(first, instance="worker-1", assignments={})
    second, _ = bench.join_anew(rebalance_ms=0)
    bench.leave((second, None))

    bench.scheduler.advance(SESSION_MS / 1000 + 5)

    assert bench.group.state is ClassicState.EMPTY


def test_an_instance_in_a_full_group_may_restart() -> None:
    bench = GroupBench(GroupConfig(size_max=1))
    bench.stable(0, instances=("worker-1",))

    assert code_of(bench.join(instance="worker-1")) is ErrorCode.none
    assert code_of(bench.join(instance="worker-2")) is ErrorCode.group_max_size_reached


def test_an_admin_removes_instances_by_their_names(bench: GroupBench) -> None:
    bench.stable(0, instances=("worker-1", "worker-2"))

    codes = bench.leave(("", "worker-1"), ("", "worker-9"))

    assert codes == [ErrorCode.none, ErrorCode.unknown_member_id]
    assert bench.group.member_count == 1


def test_an_instance_may_not_come_under_a_pending_id(bench: GroupBench) -> None:
    pending = answer_of(bench.join())["member_id"]

    reply = bench.join(pending, instance="worker-1")

    assert code_of(reply) is ErrorCode.unknown_member_id


def test_instances_are_known_again_after_a_restart(bench: GroupBench) -> None:
    [member_id] = bench.stable(0, instances=("worker-1",))
    saved = bench.saved
    bench.group = bench.new_group()
    bench.group.restore(saved)
    bench.group.resume()

    heard = bench.heartbeat(member_id, 1, instance="worker-1")
    answer = answer_of(bench.join(instance="worker-1"))

    assert heard is ErrorCode.none
    assert (answer["generation_id"], answer["error_code"]) == (1, ErrorCode.none)


def test_an_instance_that_waited_to_sync_beyond_its_session_expires_later(
    bench: GroupBench,
) -> None:
    first = answer_of(bench.join(instance="worker-1"))["member_id"]
    bench.sync(first, instance="worker-1", assignments={})
    second, _ = bench.join_anew(session_ms=200_000)
    bench.join(first, instance="worker-1", protocols=(("range", b"changed"),))
    bench.log.is_held = True
    bench.sync(first, instance="worker-1", assignments={})
    bench.scheduler.advance(SESSION_MS / 1000 + 1)

    bench.join(second, protocols=(("range", b"changed"),), session_ms=200_000)
    bench.leave((second, None))
    bench.scheduler.advance(REBALANCE_MS / 1000 + SESSION_MS / 1000)

    assert bench.group.member_count == 0
    assert bench.group.state is ClassicState.EMPTY


def test_an_instance_whose_new_id_was_saved_late_expires_when_it_is_silent(
    bench: GroupBench,
) -> None:
    bench.stable(0, instances=("worker-1",))
    bench.log.is_held = True
    reply = bench.join(instance="worker-1")
    bench.scheduler.advance(SESSION_MS / 1000 + 1)
    bench.log.release()
    bench.scheduler.run_ready()

    bench.scheduler.advance(REBALANCE_MS / 1000 + SESSION_MS / 1000)

    assert code_of(reply) is ErrorCode.none
    assert bench.group.member_count == 0

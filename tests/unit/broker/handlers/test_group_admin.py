"""ListGroups, DescribeGroups and DeleteGroups, as each version has them."""

import pytest

from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from fakes.coordinator_bench import CoordinatorBench


@pytest.fixture
def bench() -> CoordinatorBench:
    """A stable group, one that is being joined, and one that only has offsets."""
    bench = CoordinatorBench()
    bench.store.create_topic("orders")
    bench.stable("stable")
    member = bench.join("joined").answer.member_id
    bench.join("joined", member)
    bench.commit("simple")
    return bench


# --- ListGroups ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists(bench: CoordinatorBench, version: int) -> None:
    answer = bench.ask(ApiKey.LIST_GROUPS, version, {})

    assert answer.error_code == ErrorCode.none
    assert [(g.group_id, g.protocol_type) for g in answer.groups] == [
        ("joined", "consumer"),
        ("simple", ""),
        ("stable", "consumer"),
    ]
    if version >= 4:
        states = [g.group_state for g in answer.groups]
        assert states == ["CompletingRebalance", "Empty", "Stable"]
    if version >= 5:
        assert {g.group_type for g in answer.groups} == {"classic"}


@pytest.mark.parametrize(
    ("wish", "found"),
    [
        ({"states_filter": ["Stable"]}, ["stable"]),
        ({"states_filter": ["stable", "EMPTY"]}, ["simple", "stable"]),
        ({"states_filter": ["Nonsense"]}, []),
        ({"types_filter": ["Classic"]}, ["joined", "simple", "stable"]),
        ({"types_filter": ["consumer"]}, []),
        ({"states_filter": ["Empty"], "types_filter": ["classic"]}, ["simple"]),
    ],
)
def test_lists_are_filtered_by_state_and_type(
    bench: CoordinatorBench, wish: dict[str, list[str]], found: list[str]
) -> None:
    answer = bench.ask(ApiKey.LIST_GROUPS, 5, wish)

    assert [g.group_id for g in answer.groups] == found


def test_nothing_is_listed_while_groups_are_loaded() -> None:
    bench = CoordinatorBench(is_started=False)
    bench.workers.is_held = True
    bench.coordinator.start()

    answer = bench.ask(ApiKey.LIST_GROUPS, 5, {})

    assert answer.error_code == ErrorCode.coordinator_load_in_progress


# --- DescribeGroups -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_every_version_describes(bench: CoordinatorBench, version: int) -> None:
    answer = bench.ask(ApiKey.DESCRIBE_GROUPS, version, {"groups": ["stable", "joined", "simple"]})

    stable, joined, simple = answer.groups
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    [member] = stable.members
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert (member.member_assignment, member.member_metadata[-6:]) == (b"all", b"orders")
    assert (joined.group_state, joined.protocol_data) == ("CompletingRebalance", "")
    assert joined.members[0].member_metadata == b""
    assert (simple.group_state, simple.members, simple.error_code) == ("Empty", (), 0)


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_not_there_is_dead(bench: CoordinatorBench, version: int) -> None:
    [group] = bench.ask(ApiKey.DESCRIBE_GROUPS, version, {"groups": ["nobody"]}).groups

    assert group.group_state == "Dead"
    if version >= 6:
        assert group.error_code == ErrorCode.group_id_not_found
        assert "nobody" in group.error_message
    else:
        assert group.error_code == ErrorCode.none


def test_operations_are_told_to_who_asks(bench: CoordinatorBench) -> None:
    request = {"groups": ["stable"], "include_authorized_operations": True}

    [asked] = bench.ask(ApiKey.DESCRIBE_GROUPS, 5, request).groups
    [unasked] = bench.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["stable"]}).groups

    assert asked.authorized_operations == 0b110101001000
    assert unasked.authorized_operations == -(2**31)


# --- DeleteGroups -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_every_version_deletes(bench: CoordinatorBench, version: int) -> None:
    names = ["stable", "simple", "nobody", "simple"]

    answer = bench.ask(ApiKey.DELETE_GROUPS, version, {"groups_names": names})

    assert [(r.group_id, r.error_code) for r in answer.results] == [
        ("stable", ErrorCode.non_empty_group),
        ("simple", ErrorCode.none),
        ("nobody", ErrorCode.group_id_not_found),
    ]


def test_deleting_no_group_is_answered(bench: CoordinatorBench) -> None:
    assert bench.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": []}).results == ()


def test_nothing_is_deleted_while_groups_are_loaded() -> None:
    bench = CoordinatorBench(is_started=False)
    bench.workers.is_held = True
    bench.coordinator.start()

    answer = bench.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["a"]})

    assert answer.results[0].error_code == ErrorCode.coordinator_load_in_progress

"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup, as each version has them."""

from typing import Any

import pytest

from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.error_code import ErrorCode
from fakes.coordinator_bench import CoordinatorBench


@pytest.fixture
def bench() -> CoordinatorBench:
    return CoordinatorBench()


def versions(api: ApiKey) -> range:
    return range(API_CATALOG[api].min_version, API_CATALOG[api].max_version + 1)


# --- FindCoordinator ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_we_coordinate_every_group(bench: CoordinatorBench, version: int) -> None:
    answer = bench.ask(ApiKey.FIND_COORDINATOR, version, {"key": "billing", "key_type": 0})

    assert answer.error_code == ErrorCode.none
    assert (answer.node_id, answer.host, answer.port) == (7, "broker.example", 9092)


@pytest.mark.parametrize("version", range(4, 7))
def test_later_versions_ask_about_several_groups(bench: CoordinatorBench, version: int) -> None:
    answer = bench.ask(
        ApiKey.FIND_COORDINATOR, version, {"coordinator_keys": ["a", "b"], "key_type": 0}
    )

    assert [(c.key, c.error_code, c.node_id) for c in answer.coordinators] == [
        ("a", ErrorCode.none, 7),
        ("b", ErrorCode.none, 7),
    ]


@pytest.mark.parametrize("version", range(1, 7))
def test_this_broker_coordinates_every_transactional_id(
    bench: CoordinatorBench, version: int
) -> None:
    answer = bench.ask(
        ApiKey.FIND_COORDINATOR, version, {"key": "t", "coordinator_keys": ["t"], "key_type": 1}
    )

    place = answer if version < 4 else answer.coordinators[0]
    assert (place.error_code, place.node_id) == (ErrorCode.none, 7)


@pytest.mark.parametrize(
    ("key_type", "code", "said"),
    [
        (2, ErrorCode.invalid_request, "2"),
        (9, ErrorCode.invalid_request, "9"),
    ],
)
def test_nobody_coordinates_anything_else_and_that_is_said(
    bench: CoordinatorBench, key_type: int, code: ErrorCode, said: str
) -> None:
    old = bench.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "t", "key_type": key_type})
    new = bench.ask(ApiKey.FIND_COORDINATOR, 6, {"coordinator_keys": ["t"], "key_type": key_type})

    assert old.error_code == new.coordinators[0].error_code == code
    assert said in old.error_message
    assert said in new.coordinators[0].error_message
    assert old.node_id == -1


# --- JoinGroup ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_every_version_joins(bench: CoordinatorBench, version: int) -> None:
    answer = bench.join(version=version).answer
    if version >= 4:
        assert answer.error_code == ErrorCode.member_id_required
        answer = bench.join(member=answer.member_id, version=version).answer

    assert answer.error_code == ErrorCode.none
    assert (answer.generation_id, answer.protocol_name) == (1, "range")
    assert answer.leader == answer.member_id
    assert [m.member_id for m in answer.members] == [answer.member_id]
    assert answer.member_id.startswith("client-")


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_every_version_says_what_is_wrong(bench: CoordinatorBench, version: int) -> None:
    answer = bench.join(member="nobody", version=version).answer

    assert answer.error_code == ErrorCode.unknown_member_id
    assert (answer.generation_id, answer.member_id) == (-1, "nobody")
    assert answer.protocol_name == (None if version >= 7 else "")


def test_version_0_takes_the_session_timeout_for_rejoining_too(bench: CoordinatorBench) -> None:
    bench.join(version=0, session_timeout=7_000)
    bench.join("other", version=1, session_timeout=7_000, rebalance_timeout=-1)

    for group in ("billing", "other"):
        [member] = bench.coordinator.groups[group].members()  # type: ignore[union-attr]
        assert member.rebalance_timeout_ms == 7_000


def test_a_static_member_joins_at_once(bench: CoordinatorBench) -> None:
    answer = bench.join(version=5, group_instance_id="worker-1").answer

    assert answer.error_code == ErrorCode.none
    assert answer.members[0].group_instance_id == "worker-1"


@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [
        (5_999, ErrorCode.invalid_session_timeout),
        (6_000, ErrorCode.member_id_required),
        (1_800_000, ErrorCode.member_id_required),
        (1_800_001, ErrorCode.invalid_session_timeout),
        (-1, ErrorCode.invalid_session_timeout),
    ],
)
def test_the_session_timeout_has_limits(
    bench: CoordinatorBench, timeout_ms: int, code: ErrorCode
) -> None:
    assert bench.join(session_timeout=timeout_ms).code is code


@pytest.mark.parametrize(
    "fields",
    [
        {"protocols": [{"name": "a", "metadata": bytes(5 << 20)}]},
        {"protocols": [{"name": f"p{n}", "metadata": b""} for n in range(101)]},
        {"protocols": [{"name": "x" * 9_000, "metadata": b""}]},
        {"protocol_type": "x" * 9_000},
        {"group_instance_id": "x" * 9_000},
    ],
    ids=["metadata", "protocols", "protocol name", "protocol type", "instance id"],
)
def test_what_a_member_brings_has_limits(bench: CoordinatorBench, fields: dict[str, Any]) -> None:
    assert bench.join(**fields).code is ErrorCode.invalid_request
    assert bench.coordinator.groups == {}


def test_names_at_their_limits_can_be_saved(bench: CoordinatorBench) -> None:
    name = "ü" * 8_191
    answer = bench.join(
        name,
        group_instance_id=name,
        protocol_type=name,
        protocols=[{"name": name, "metadata": b""}],
    ).answer
    synced = bench.ask(
        ApiKey.SYNC_GROUP,
        5,
        {
            "group_id": name,
            "generation_id": 1,
            "member_id": answer.member_id,
            "group_instance_id": name,
            "protocol_type": name,
            "protocol_name": name,
            "assignments": [],
        },
    )

    assert (answer.error_code, synced.error_code) == (ErrorCode.none, ErrorCode.none)
    assert name in bench.restarted().coordinator.groups


def test_a_full_group_is_full_on_the_wire() -> None:
    bench = CoordinatorBench(config=GroupConfig(size_max=1))
    bench.stable()

    assert bench.join().code is ErrorCode.group_max_size_reached


# --- SyncGroup ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_every_version_syncs(bench: CoordinatorBench, version: int) -> None:
    member = bench.join(version=3).answer.member_id

    answer = bench.ask(
        ApiKey.SYNC_GROUP,
        version,
        {
            "group_id": "billing",
            "generation_id": 1,
            "member_id": member,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": member, "assignment": b"all"}],
        },
    )

    assert (answer.error_code, answer.assignment) == (ErrorCode.none, b"all")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


def test_from_version_5_on_a_sync_names_its_protocol(bench: CoordinatorBench) -> None:
    member = bench.stable()
    request = {"group_id": "billing", "generation_id": 1, "member_id": member, "assignments": []}

    without = bench.ask(ApiKey.SYNC_GROUP, 5, request)
    wrong = bench.ask(
        ApiKey.SYNC_GROUP, 5, {**request, "protocol_type": "consumer", "protocol_name": "x"}
    )

    assert without.error_code == wrong.error_code == ErrorCode.inconsistent_group_protocol


@pytest.mark.parametrize(
    ("group", "code"),
    [("nobody", ErrorCode.unknown_member_id), ("", ErrorCode.invalid_group_id)],
)
def test_a_sync_heartbeat_or_leave_needs_a_group(
    bench: CoordinatorBench, group: str, code: ErrorCode
) -> None:
    request = {"group_id": group, "generation_id": 1, "member_id": "m", "assignments": []}

    assert bench.ask(ApiKey.SYNC_GROUP, 4, request).error_code == code
    assert bench.heartbeat("m", group=group) is code
    old = bench.ask(ApiKey.LEAVE_GROUP, 2, {"group_id": group, "member_id": "m"})
    assert old.error_code == code


# --- Heartbeat ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_every_version_heartbeats(bench: CoordinatorBench, version: int) -> None:
    member = bench.stable()
    request = {"group_id": "billing", "generation_id": 1, "member_id": member}

    answer = bench.ask(ApiKey.HEARTBEAT, version, request)

    assert answer.error_code == ErrorCode.none


# --- LeaveGroup ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_let_one_member_leave(bench: CoordinatorBench, version: int) -> None:
    member = bench.stable()

    left = bench.ask(ApiKey.LEAVE_GROUP, version, {"group_id": "billing", "member_id": member})
    again = bench.ask(ApiKey.LEAVE_GROUP, version, {"group_id": "billing", "member_id": member})

    assert left.error_code == ErrorCode.none
    assert again.error_code == ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", [3, 4, 5])
def test_later_versions_let_several_leave(bench: CoordinatorBench, version: int) -> None:
    bench.stable()
    bench.join(group_instance_id="worker-1")

    answer = bench.ask(
        ApiKey.LEAVE_GROUP,
        version,
        {
            "group_id": "billing",
            "members": [
                {"member_id": "", "group_instance_id": "worker-1"},
                {"member_id": "nobody", "group_instance_id": None},
            ],
        },
    )

    assert answer.error_code == ErrorCode.none
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in answer.members] == [
        ("", "worker-1", ErrorCode.none),
        ("nobody", None, ErrorCode.unknown_member_id),
    ]


def test_who_leaves_a_group_that_is_not_there_is_told_so_one_by_one(
    bench: CoordinatorBench,
) -> None:
    request = {"group_id": "nobody", "members": [{"member_id": "m", "group_instance_id": None}]}

    answer = bench.ask(ApiKey.LEAVE_GROUP, 5, request)

    assert answer.error_code == ErrorCode.none
    assert [m.error_code for m in answer.members] == [ErrorCode.unknown_member_id]

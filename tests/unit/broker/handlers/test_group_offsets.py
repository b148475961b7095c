"""OffsetCommit, OffsetFetch and OffsetDelete, as each version has them."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from fakes.coordinator_bench import CoordinatorBench, commit_code

ORDERS = ("orders", 0)


@pytest.fixture
def bench() -> CoordinatorBench:
    bench = CoordinatorBench()
    bench.store.create_topic("orders", partitions=2)
    return bench


def topic_id(bench: CoordinatorBench) -> UUID:
    return bench.store.topic("orders").topic_id


# --- OffsetCommit -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_commits(bench: CoordinatorBench, version: int) -> None:
    answer = bench.commit(offset=7, version=version, metadata="note").answer

    [topic] = answer.topics
    assert (topic.name, topic.partitions[0].partition_index) == ("orders", 0)
    assert topic.partitions[0].error_code == ErrorCode.none
    found = bench.store.group("billing").details()[ORDERS]
    assert (found.offset, found.metadata, found.committed_ms) == (7, "note", bench.clock.now_ms())
    assert found.topic_id == topic_id(bench)


def test_version_10_names_topics_by_their_ids(bench: CoordinatorBench) -> None:
    partitions = [{"partition_index": 1, "committed_offset": 3, "committed_leader_epoch": 4}]
    known, unknown = topic_id(bench), uuid4()

    answer = bench.ask(
        ApiKey.OFFSET_COMMIT,
        10,
        {
            "group_id": "billing",
            "member_id": "",
            "topics": [
                {"topic_id": known, "partitions": partitions},
                {"topic_id": unknown, "partitions": partitions},
                {"topic_id": UUID(int=0), "partitions": partitions},
            ],
        },
    )

    assert [(t.topic_id, t.partitions[0].error_code) for t in answer.topics] == [
        (known, ErrorCode.none),
        (unknown, ErrorCode.unknown_topic_id),
        (UUID(int=0), ErrorCode.unknown_topic_id),
    ]
    assert bench.store.group("billing").details()["orders", 1].leader_epoch == 4


@pytest.mark.parametrize(
    "place", [{"topic": "nothing"}, {"partition": 2}, {"partition": -1}], ids=str
)
def test_what_is_not_there_cannot_be_committed(
    bench: CoordinatorBench, place: dict[str, Any]
) -> None:
    assert commit_code(bench.commit(**place)) is ErrorCode.unknown_topic_or_partition
    assert bench.store.groups() == []


def test_each_partition_has_its_own_answer(bench: CoordinatorBench) -> None:
    def partition(number: int, offset: int, metadata: str | None = None) -> dict[str, Any]:
        return {
            "partition_index": number,
            "committed_offset": offset,
            "committed_metadata": metadata,
        }

    answer = bench.ask(
        ApiKey.OFFSET_COMMIT,
        9,
        {
            "group_id": "billing",
            "member_id": "",
            "topics": [
                {"name": "orders", "partitions": [partition(1, 5, "x" * 4_097), partition(0, 6)]},
                {"name": "gone", "partitions": [partition(0, 1)]},
            ],
        },
    )

    assert [
        (t.name, p.partition_index, p.error_code) for t in answer.topics for p in t.partitions
    ] == [
        ("orders", 1, ErrorCode.offset_metadata_too_large),
        ("orders", 0, ErrorCode.none),
        ("gone", 0, ErrorCode.unknown_topic_or_partition),
    ]
    assert bench.store.group("billing").committed() == {ORDERS: 6}


def test_metadata_has_kafka_s_limit_and_null_is_empty(bench: CoordinatorBench) -> None:
    assert commit_code(bench.commit(metadata="ü" * 4_096)) is ErrorCode.none
    too_large = bench.commit(metadata="x" * 4_097)
    assert commit_code(too_large) is ErrorCode.offset_metadata_too_large
    assert commit_code(bench.commit(metadata=None)) is ErrorCode.none
    assert bench.store.group("billing").details()[ORDERS].metadata == ""


def test_metadata_never_exceeds_what_a_record_can_say() -> None:
    bench = CoordinatorBench(config=GroupConfig(offset_metadata_max_bytes=1_000_000))
    bench.store.create_topic("orders")

    code = commit_code(bench.commit(metadata="x" * 40_000))

    assert code is ErrorCode.offset_metadata_too_large


@pytest.mark.parametrize("offset", [-1, -2, -1001])
def test_a_negative_offset_is_stored_as_kafka_stores_it_and_is_no_position(
    bench: CoordinatorBench, offset: int
) -> None:
    bench.commit(offset=7)

    code = commit_code(bench.commit(offset=offset, metadata="none"))

    assert code is ErrorCode.none
    assert bench.committed() == offset
    assert bench.store.group("billing").committed() == {}


def test_a_group_forgets_negative_offsets_with_all_others(bench: CoordinatorBench) -> None:
    bench.commit(offset=-1)

    bench.store.group("billing").forget()

    assert bench.store.committed_offsets.of_group("billing") == {}


def test_a_retention_time_of_old_versions_becomes_an_expiry(bench: CoordinatorBench) -> None:
    bench.commit("a", version=2, retention_time=60_000)
    bench.commit("b", version=4, retention_time=-1)

    expiring = bench.store.group("a").details()[ORDERS]
    assert expiring.expires_ms == bench.clock.now_ms() + 60_000
    assert bench.store.group("b").details()[ORDERS].expires_ms == -1


def test_a_commit_is_answered_once_it_is_durable(bench: CoordinatorBench) -> None:
    bench.log.is_held = True

    pending = bench.commit(offset=7)
    before = (pending.is_done, bench.committed())
    bench.log.release()
    bench.scheduler.run_ready()

    assert before == (False, -1)
    assert commit_code(pending) is ErrorCode.none
    assert bench.committed() == 7


def test_a_commit_that_fails_changes_nothing(bench: CoordinatorBench) -> None:
    bench.commit(offset=1)
    bench.log.fail_with = ErrorCode.not_coordinator

    pending = bench.commit(offset=2)

    assert commit_code(pending) is ErrorCode.not_coordinator
    assert bench.committed() == 1


def test_a_commit_the_disk_takes_too_long_for_is_answered(bench: CoordinatorBench) -> None:
    bench.log.is_held = True
    pending = bench.commit()

    bench.scheduler.advance(6)

    assert commit_code(pending) is ErrorCode.coordinator_not_available


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.illegal_generation), (9, ErrorCode.group_id_not_found)]
)
def test_a_generation_of_a_group_that_is_not_there_is_refused(
    bench: CoordinatorBench, version: int, code: ErrorCode
) -> None:
    pending = bench.commit(version=version, generation_id_or_member_epoch=3, member_id="m")

    assert commit_code(pending) is code


def test_members_commit_with_their_generation(bench: CoordinatorBench) -> None:
    member = bench.stable()

    fine = bench.commit(member_id=member, generation_id_or_member_epoch=1)
    stale = bench.commit(member_id=member, generation_id_or_member_epoch=0)
    stranger = bench.commit(member_id="m", generation_id_or_member_epoch=1)
    nobody = bench.commit()

    assert [commit_code(p) for p in (fine, stale, stranger, nobody)] == [
        ErrorCode.none,
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]


def test_the_empty_group_name_is_one_for_commits(bench: CoordinatorBench) -> None:
    assert commit_code(bench.commit("")) is ErrorCode.none
    assert bench.committed("") == 5


# --- OffsetFetch --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 8))
def test_old_versions_ask_about_one_group(bench: CoordinatorBench, version: int) -> None:
    bench.commit(offset=7, metadata="note")
    wanted = [
        {"name": "orders", "partition_indexes": [0, 1]},
        {"name": "x", "partition_indexes": [3]},
    ]

    answer = bench.ask(ApiKey.OFFSET_FETCH, version, {"group_id": "billing", "topics": wanted})

    assert [
        (t.name, p.partition_index, p.committed_offset, p.metadata, p.error_code)
        for t in answer.topics
        for p in t.partitions
    ] == [("orders", 0, 7, "note", 0), ("orders", 1, -1, "", 0), ("x", 3, -1, "", 0)]


@pytest.mark.parametrize("version", range(2, 8))
def test_without_topics_all_are_told(bench: CoordinatorBench, version: int) -> None:
    bench.commit(offset=7, partition=1)
    bench.commit(offset=8)

    answer = bench.ask(ApiKey.OFFSET_FETCH, version, {"group_id": "billing", "topics": None})

    assert answer.error_code == ErrorCode.none
    [topic] = answer.topics
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(0, 8), (1, 7)]


@pytest.mark.parametrize("version", [8, 9])
def test_later_versions_ask_about_several_groups(bench: CoordinatorBench, version: int) -> None:
    bench.commit("a", offset=1)
    bench.commit("b", offset=2)
    named = [{"name": "orders", "partition_indexes": [0]}]

    answer = bench.ask(
        ApiKey.OFFSET_FETCH,
        version,
        {
            "groups": [
                {"group_id": "a", "topics": named},
                {"group_id": "b", "topics": None},
                {"group_id": "c", "topics": named},
            ],
            "require_stable": True,
        },
    )

    assert [
        (g.group_id, g.error_code, g.topics[0].name, g.topics[0].partitions[0].committed_offset)
        for g in answer.groups
    ] == [("a", 0, "orders", 1), ("b", 0, "orders", 2), ("c", 0, "orders", -1)]


def test_version_10_asks_by_topic_id(bench: CoordinatorBench) -> None:
    bench.commit(offset=7)
    bench.store.group("billing").commit({("elsewhere", 0): 1})
    known, unknown = topic_id(bench), uuid4()

    answer = bench.ask(
        ApiKey.OFFSET_FETCH,
        10,
        {
            "groups": [
                {
                    "group_id": "billing",
                    "topics": [
                        {"topic_id": known, "partition_indexes": [0]},
                        {"topic_id": unknown, "partition_indexes": [0]},
                    ],
                },
                {"group_id": "billing", "topics": None},
            ]
        },
    )

    named, everything = answer.groups
    assert [
        (t.topic_id, t.partitions[0].committed_offset, t.partitions[0].error_code)
        for t in named.topics
    ] == [(known, 7, ErrorCode.none), (unknown, -1, ErrorCode.unknown_topic_id)]
    assert [t.topic_id for t in everything.topics] == [known], "what has no id cannot be told"


@pytest.mark.parametrize("version", [1, 2, 7, 8])
def test_while_groups_are_loaded_nothing_is_said_about_offsets(version: int) -> None:
    bench = CoordinatorBench(is_started=False)
    bench.workers.is_held = True
    bench.coordinator.start()
    wanted = [{"name": "orders", "partition_indexes": [0]}]
    request: dict[str, Any] = {"group_id": "billing", "topics": wanted}
    if version >= 8:
        request = {"groups": [request]}

    answer = bench.ask(ApiKey.OFFSET_FETCH, version, request)

    loading = ErrorCode.coordinator_load_in_progress
    if version == 1:
        assert answer.topics[0].partitions[0].error_code == loading
    elif version < 8:
        assert (answer.error_code, answer.topics) == (loading, ())
    else:
        assert answer.groups[0].error_code == loading


def test_what_the_library_commits_is_told_and_the_other_way_round(bench: CoordinatorBench) -> None:
    bench.store.group("billing").commit({ORDERS: 3})
    first = bench.committed()
    bench.commit(offset=4)

    assert first == 3
    assert bench.store.group("billing").committed(ORDERS) == 4
    assert bench.log.refresh_count == 0, "nothing had to be read for it"


def test_what_someone_wrote_past_the_table_is_read_first(bench: CoordinatorBench) -> None:
    bench.commit(offset=3)
    log = bench.store.topic("__consumer_offsets").partition(0)
    [record] = log.read()
    log.append(None, key=record.key)

    assert bench.committed() == -1
    assert bench.log.refresh_count == 1


def test_offsets_that_cannot_be_read_are_not_told_as_none(bench: CoordinatorBench) -> None:
    bench.commit(offset=3)
    log = bench.store.topic("__consumer_offsets").partition(0)
    [record] = log.read()
    log.append(None, key=record.key)
    bench.log.refresh_code = ErrorCode.not_coordinator

    answer = bench.ask(ApiKey.OFFSET_FETCH, 7, {"group_id": "billing", "topics": None})

    assert answer.error_code == ErrorCode.coordinator_not_available


# --- OffsetDelete -------------------------------------------------------------------------------


def delete(bench: CoordinatorBench, *places: tuple[str, int], group: str = "billing") -> Any:
    topics = [{"name": n, "partitions": [{"partition_index": p}]} for n, p in places]
    return bench.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": group, "topics": topics})


def codes(answer: Any) -> list[int]:
    return [p.error_code for t in answer.topics for p in t.partitions]


def test_offsets_are_deleted_one_by_one(bench: CoordinatorBench) -> None:
    bench.commit()
    bench.commit(partition=1)

    answer = delete(bench, ORDERS, ("orders", 9), ("nothing", 0))

    assert answer.error_code == ErrorCode.none
    assert codes(answer) == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert bench.store.group("billing").committed() == {("orders", 1): 5}


def test_deleting_what_was_never_committed_is_fine(bench: CoordinatorBench) -> None:
    bench.commit()

    assert codes(delete(bench, ("orders", 1))) == [ErrorCode.none]


def test_offsets_of_topics_that_are_read_stay(bench: CoordinatorBench) -> None:
    bench.store.create_topic("returns")
    member = bench.stable()
    for topic in ("orders", "returns"):
        bench.commit(topic=topic, member_id=member, generation_id_or_member_epoch=1)

    answer = delete(bench, ORDERS, ("returns", 0))

    assert codes(answer) == [ErrorCode.group_subscribed_to_topic, ErrorCode.none]
    assert bench.store.group("billing").committed() == {ORDERS: 5}


def test_a_living_group_of_no_consumers_loses_nothing(bench: CoordinatorBench) -> None:
    bench.stable(protocol_type="connect")

    assert delete(bench, ORDERS).error_code == ErrorCode.non_empty_group


@pytest.mark.parametrize(
    ("group", "code"), [("nobody", ErrorCode.group_id_not_found), ("", ErrorCode.invalid_group_id)]
)
def test_deleting_needs_a_group(bench: CoordinatorBench, group: str, code: ErrorCode) -> None:
    assert delete(bench, ORDERS, group=group).error_code == code


def test_a_deletion_that_fails_is_said(bench: CoordinatorBench) -> None:
    bench.commit()
    bench.log.fail_with = ErrorCode.not_coordinator

    assert delete(bench, ORDERS).error_code == ErrorCode.not_coordinator
    assert bench.committed() == 5

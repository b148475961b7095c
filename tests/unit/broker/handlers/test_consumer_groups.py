"""Heartbeats and descriptions as they go over the wire, with the coordinator and a log behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from cordwood.broker.cluster_view import SoleBroker
from cordwood.broker.groups.consumer.consumer_group import ConsumerGroup, GroupSurroundings
from cordwood.broker.groups.consumer.consumer_group_config import ConsumerGroupConfig
from cordwood.broker.groups.consumer.consumer_group_factory import ConsumerGroupFactory
from cordwood.broker.groups.consumer.topic_subscriptions import ViewTopics
from cordwood.broker.handlers.consumer_groups import ConsumerGroupHandlers
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import Fields
from fakes.coordinator_bench import IDENTITY, CoordinatorBench, Pending

NOT_ASKED = -(2**31)


class ConsumerBench(CoordinatorBench):
    """The coordinator's bench with the handlers of consumer groups."""

    def __init__(self, *arguments: Any, is_started: bool = True, **options: Any) -> None:
        super().__init__(
            *arguments,
            **options,
            restore_consumer_groups=self._restore,
            is_started=False,
        )
        self.consumer_groups = ConsumerGroupFactory(
            GroupSurroundings(
                config=ConsumerGroupConfig(),
                topics=ViewTopics(SoleBroker(IDENTITY, self.store)),
                scheduler=self.scheduler,
                clock=self.clock,
            ),
            self.log,
        )
        handlers = ConsumerGroupHandlers(
            self.coordinator, self.consumer_groups, lambda: "made-by-the-server"
        )
        self._routes.update((route.api, route) for route in handlers.routes())
        if is_started:
            self.coordinator.start()
            self.scheduler.run_ready()

    def _restore(self, records: Sequence[tuple[bytes, bytes]]) -> Sequence[ConsumerGroup]:
        return self.consumer_groups.restore(records)

    def restarted(self, **options: Any) -> ConsumerBench:
        self.coordinator.stop()
        self.scheduler.run_ready()
        self.store.close()
        return ConsumerBench(self.fs.kill(), config=self.config, clock=self.clock, **options)

    def beat(self, version: int = 1, **fields: Any) -> Pending:
        request = {"group_id": "billing", "member_id": "m", **fields}
        return self.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, request)

    def enter(self, member_id: str = "m", version: int = 1, **fields: Any) -> Pending:
        joining = {
            "member_epoch": 0,
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": ["orders"],
            "topic_partitions": [],
            **fields,
        }
        return self.beat(version, member_id=member_id, **joining)

    def describe(self, *group_ids: str, version: int = 1) -> list[Fields]:
        request = {"group_ids": list(group_ids)}
        return list(self.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, request).groups)

    def topic_id(self, name: str = "orders") -> UUID:
        return self.store.topic(name).topic_id


@pytest.fixture
def bench() -> ConsumerBench:
    bench = ConsumerBench()
    bench.store.create_topic("orders", partitions=2)
    bench.store.create_topic("payments", partitions=1)
    return bench


def assignment(answer: Fields) -> Mapping[UUID, tuple[int, ...]] | None:
    if answer.assignment is None:
        return None
    return {topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions}


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_and_is_told_what_it_has(bench: ConsumerBench, version: int) -> None:
    answer = bench.enter(version=version).answer

    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval) == ("m", 1, 5000)
    assert assignment(answer) == {bench.topic_id(): (0, 1)}


def test_a_member_that_changes_nothing_is_told_nothing(bench: ConsumerBench) -> None:
    bench.enter()

    answer = bench.beat(member_epoch=1).answer

    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 1, None)


def test_the_server_names_a_member_that_cannot_name_itself(bench: ConsumerBench) -> None:
    answer = bench.enter("", version=0).answer

    assert (answer.error_code, answer.member_id) == (0, "made-by-the-server")


def test_a_member_is_answered_once_its_change_is_durable(bench: ConsumerBench) -> None:
    bench.log.is_held = True

    joining = bench.enter()

    assert not joining.is_done
    bench.log.release()
    bench.scheduler.run_ready()
    assert joining.answer.member_epoch == 1


def test_a_member_whose_change_cannot_be_written_is_told_to_look_for_a_coordinator(
    bench: ConsumerBench,
) -> None:
    bench.log.fail_with = ErrorCode.not_coordinator

    assert bench.enter().code is ErrorCode.not_coordinator

    bench.log.fail_with = None
    assert bench.enter().code is ErrorCode.none
    assert bench.restarted().beat(member_epoch=1).code is ErrorCode.none


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.invalid_request),
        ({"member_id": ""}, ErrorCode.invalid_request),
        ({"topic_partitions": None}, ErrorCode.invalid_request),
        ({"server_assignor": "sticky"}, ErrorCode.unsupported_assignor),
        ({"subscribed_topic_regex": "("}, ErrorCode.invalid_regular_expression),
        ({"member_epoch": 3}, ErrorCode.group_id_not_found),
        ({"member_epoch": -1}, ErrorCode.group_id_not_found),
    ],
)
def test_what_is_refused_is_told_why_and_leaves_no_group(
    bench: ConsumerBench, fields: dict[str, Any], code: ErrorCode
) -> None:
    answer = bench.enter(**{"member_id": "m", **fields}).answer

    assert answer.error_code == code
    assert answer.error_message
    assert bench.coordinator.groups == {}


def test_topics_can_be_subscribed_to_by_a_regular_expression(bench: ConsumerBench) -> None:
    bench.commit("else")  # which creates the topic of committed offsets

    answer = bench.enter(subscribed_topic_names=None, subscribed_topic_regex=".*").answer

    assert assignment(answer) == {bench.topic_id(): (0, 1), bench.topic_id("payments"): (0,)}


def test_while_groups_are_loaded_members_are_told_to_wait() -> None:
    bench = ConsumerBench(is_started=False)
    bench.workers.is_held = True
    bench.coordinator.start()

    assert bench.enter().code is ErrorCode.coordinator_load_in_progress
    [described] = bench.describe("billing")
    assert described.error_code == ErrorCode.coordinator_load_in_progress


def test_a_broker_with_too_many_groups_makes_no_more(
    bench: ConsumerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.broker.groups.coordinator._GROUPS_MAX", 0)

    assert bench.enter().code is ErrorCode.coordinator_not_available


def test_members_carry_on_after_a_restart(bench: ConsumerBench) -> None:
    bench.enter()

    again = bench.restarted()

    answer = again.beat(
        member_epoch=1,
        topic_partitions=[{"topic_id": again.topic_id(), "partitions": [0, 1]}],
    ).answer
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 1, None)


# --- the two kinds of groups -----------------------------------------------------------------


def test_a_live_classic_group_does_not_become_a_consumer_group(bench: ConsumerBench) -> None:
    bench.stable()

    answer = bench.enter().answer

    assert answer.error_code == ErrorCode.group_id_not_found
    assert "online upgrade" in answer.error_message


def test_a_classic_member_cannot_join_a_live_consumer_group(bench: ConsumerBench) -> None:
    bench.enter()

    assert bench.join().code is ErrorCode.inconsistent_group_protocol


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(
    bench: ConsumerBench,
) -> None:
    member = bench.stable()
    bench.commit(member_id=member, generation_id_or_member_epoch=1, offset=7)
    bench.send(ApiKey.LEAVE_GROUP, 0, {"group_id": "billing", "member_id": member})

    assert bench.enter().code is ErrorCode.none

    assert bench.committed() == 7
    again = bench.restarted()
    assert isinstance(again.coordinator.find("billing"), ConsumerGroup)
    assert again.committed() == 7


def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets(
    bench: ConsumerBench,
) -> None:
    bench.enter()
    bench.commit(member_id="m", generation_id_or_member_epoch=1, offset=7)
    bench.beat(member_epoch=-1)

    bench.stable()

    assert bench.committed() == 7
    again = bench.restarted()
    assert not isinstance(again.coordinator.find("billing"), ConsumerGroup)
    assert again.committed() == 7


def test_an_empty_consumer_group_can_be_deleted_and_a_live_one_cannot(
    bench: ConsumerBench,
) -> None:
    bench.enter()
    request = {"groups_names": ["billing"]}
    [refused] = bench.ask(ApiKey.DELETE_GROUPS, 2, request).results
    bench.beat(member_epoch=-1)

    [deleted] = bench.ask(ApiKey.DELETE_GROUPS, 2, request).results

    assert refused.error_code == ErrorCode.non_empty_group
    assert deleted.error_code == ErrorCode.none
    assert bench.restarted().coordinator.groups == {}


# --- offsets ---------------------------------------------------------------------------------


def code_of(pending: Pending) -> ErrorCode:
    [topic] = pending.answer.topics
    [partition] = topic.partitions
    return ErrorCode(partition.error_code)


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "code"),
    [
        ("m", 1, 9, ErrorCode.none),
        ("m", 2, 9, ErrorCode.stale_member_epoch),
        ("m", 0, 9, ErrorCode.stale_member_epoch),
        ("x", 1, 9, ErrorCode.unknown_member_id),
        ("", -1, 9, ErrorCode.unknown_member_id),
        ("m", 1, 8, ErrorCode.unsupported_version),
    ],
)
def test_only_members_at_their_epoch_commit(
    bench: ConsumerBench, member_id: str, epoch: int, version: int, code: ErrorCode
) -> None:
    bench.enter()

    answer = bench.commit(member_id=member_id, generation_id_or_member_epoch=epoch, version=version)

    assert code_of(answer) is code


def test_a_past_epoch_will_do_for_partitions_the_member_has_had_since(
    bench: ConsumerBench,
) -> None:
    bench.enter()
    bench.beat(
        member_epoch=1,
        subscribed_topic_names=["orders", "payments"],
        topic_partitions=[{"topic_id": bench.topic_id(), "partitions": [0, 1]}],
    )
    late: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": 1}

    assert code_of(bench.commit(topic="orders", **late)) is ErrorCode.none
    assert code_of(bench.commit(topic="payments", **late)) is ErrorCode.stale_member_epoch


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, ErrorCode.none),
        ("m", 1, ErrorCode.none),
        ("m", 2, ErrorCode.stale_member_epoch),
        ("x", 1, ErrorCode.unknown_member_id),
    ],
)
def test_members_fetch_offsets_at_their_epoch_and_strangers_without_one(
    bench: ConsumerBench, member_id: str | None, epoch: int, code: ErrorCode
) -> None:
    bench.enter()
    wanted = {"group_id": "billing", "member_id": member_id, "member_epoch": epoch, "topics": None}

    [group] = bench.ask(ApiKey.OFFSET_FETCH, 9, {"groups": [wanted]}).groups

    assert group.error_code == code


# --- descriptions ----------------------------------------------------------------------------


def test_a_group_is_described_with_its_members_and_what_they_have(bench: ConsumerBench) -> None:
    bench.enter(instance_id="i", rack_id="r", server_assignor="range")

    [group] = bench.describe("billing")

    assert (group.error_code, group.group_id, group.group_state) == (0, "billing", "Stable")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (1, 1, "range")
    assert group.authorized_operations == NOT_ASKED
    [member] = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert (member.member_epoch, member.member_type) == (1, 1)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (("orders",), None)
    for told in (member.assignment, member.target_assignment):
        [topic] = told.topic_partitions
        assert (topic.topic_id, topic.topic_name) == (bench.topic_id(), "orders")
        assert topic.partitions == (0, 1)


def test_who_asks_is_told_what_it_may_do_and_each_group_once(bench: ConsumerBench) -> None:
    bench.enter()
    group_ids = ["billing", "billing", "missing"]
    request = {"group_ids": group_ids, "include_authorized_operations": True}

    [group, missing] = bench.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups

    assert group.authorized_operations == 0b1101_0100_1000
    assert missing.authorized_operations == NOT_ASKED


def test_what_is_being_revoked_is_still_described_as_the_members(bench: ConsumerBench) -> None:
    bench.enter()
    bench.enter("n")
    bench.beat(member_epoch=1)

    [group] = bench.describe("billing", version=0)

    assert group.group_state == "Reconciling"
    have = {
        member.member_id: sum(len(t.partitions) for t in member.assignment.topic_partitions)
        for member in group.members
    }
    targets = [
        sum(len(t.partitions) for t in member.target_assignment.topic_partitions)
        for member in group.members
    ]
    assert (have, targets) == ({"m": 2, "n": 0}, [1, 1])


def test_groups_of_other_kinds_and_unknown_ones_are_not_found(bench: ConsumerBench) -> None:
    bench.stable("classic")

    classic, unknown, empty = bench.describe("classic", "unknown", "")

    assert (classic.error_code, classic.error_message) == (
        ErrorCode.group_id_not_found,
        "Group classic is not a consumer group.",
    )
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.group_id_not_found,
        "Group unknown not found.",
    )
    assert empty.error_code == ErrorCode.invalid_group_id


def test_a_group_is_listed_with_its_kind_and_state(bench: ConsumerBench) -> None:
    bench.enter()

    [group] = bench.ask(ApiKey.LIST_GROUPS, 5, {"types_filter": ["consumer"]}).groups

    assert (group.group_id, group.protocol_type) == ("billing", "consumer")
    assert (group.group_state, group.group_type) == ("Stable", "consumer")

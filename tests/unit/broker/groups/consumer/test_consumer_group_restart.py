"""Consumer groups over a restart: what the log brings back, and what it can do without."""

from __future__ import annotations

from uuid import UUID

import pytest

from cordwood.broker.error_codes import RefusedError
from cordwood.broker.groups.consumer.consumer_member import MemberState
from cordwood.broker.groups.consumer.saved_consumer_group import saved_consumer_groups
from cordwood.format.groups.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupRecordType,
    CurrentValue,
    GroupEpochValue,
    MemberValue,
    encode_consumer_group_key,
    encode_current,
    encode_group_epoch,
    encode_member,
    encode_target,
)
from cordwood.protocol.error_code import ErrorCode
from fakes.consumer_client import ConsumerClient, GroupHouse, settle
from fakes.listed_topics import ListedTopics

ORDERS = ("orders",)
TOPIC = UUID(int=1)


@pytest.fixture
def house() -> GroupHouse:
    return GroupHouse(ListedTopics(orders=4, payments=2))


def key(record_type: ConsumerGroupRecordType, detail: str = "", group: str = "g") -> bytes:
    return encode_consumer_group_key(ConsumerGroupKey(type=record_type, group=group, detail=detail))


def current(epoch: int, assigned: dict[int, int], state: int = 0) -> bytes:
    return encode_current(
        CurrentValue(
            member_epoch=epoch,
            previous_member_epoch=0,
            state=state,
            assigned={TOPIC: assigned} if assigned else {},
        )
    )


def test_members_carry_on_after_a_restart_as_if_nothing_had_been(house: GroupHouse) -> None:
    clients = [
        ConsumerClient(house, "a", ORDERS),
        ConsumerClient(house, "b", (), topic_regex="ord.*"),
        ConsumerClient(house, "c", ORDERS, instance_id="i", assignor="range"),
    ]
    for client in clients:
        client.join()
    settle(clients)
    before = (house.group.epoch, sorted(house.group.roster, key=lambda m: m.member_id))

    house.restart()

    assert (house.group.epoch, sorted(house.group.roster, key=lambda m: m.member_id)) == before
    assert house.group.state_name == "Stable"
    for client in clients:
        answer = client.beat()
        assert (answer.assignment, list(answer.records)) == (None, [])


def test_a_rebalance_goes_on_where_it_was(house: GroupHouse) -> None:
    first = ConsumerClient(house, "a", ORDERS)
    second = ConsumerClient(house, "b", ORDERS)
    first.join()
    second.join()
    first.beat()

    house.restart()

    assert house.group.state_name == "Reconciling"
    settle([first, second])
    assert (first.owned_count, second.owned_count) == (2, 2)
    assert house.group.state_name == "Stable"


def test_after_a_restart_members_have_a_session_to_be_heard_of(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()

    house.restart()
    house.scheduler.advance(44)
    client.beat()
    house.scheduler.advance(44)
    assert house.group.member_count == 1
    house.scheduler.advance(1)

    assert house.group.is_empty


def test_after_a_restart_a_member_must_still_let_go_in_time(house: GroupHouse) -> None:
    first = ConsumerClient(house, "a", ORDERS)
    second = ConsumerClient(house, "b", ORDERS)
    first.join()
    second.join()
    first.beat()

    house.restart()
    house.scheduler.advance(30)

    assert house.group.roster.find("a") is None


def test_topics_that_changed_meanwhile_are_noticed(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()
    house.group.stop()

    house.topics.grow("orders", 6)
    house.restart()
    client.beat()

    assert client.owned_count == 6


def test_a_static_member_that_is_away_still_is(house: GroupHouse) -> None:
    ConsumerClient(house, "a", ORDERS, instance_id="i").join()
    ConsumerClient(house, "a", instance_id="i").leave(-2)

    house.restart()
    back = ConsumerClient(house, "b", ORDERS, instance_id="i")
    back.join()

    assert back.owned_count == 4


def test_who_left_is_not_there_any_more_and_the_epoch_does_not_go_back(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()
    client.leave()
    epoch = house.group.epoch

    house.restart()

    assert (house.group.state_name, house.group.epoch) == ("Empty", epoch)
    client.join()
    assert client.epoch == epoch + 1


def test_a_member_removed_by_a_timer_is_removed_in_the_log(house: GroupHouse) -> None:
    ConsumerClient(house, "a", ORDERS).join()

    house.scheduler.advance(45)
    house.restart()

    assert house.group.is_empty


def test_tombstones_end_everything_there_is_of_a_group(house: GroupHouse) -> None:
    clients = [ConsumerClient(house, name, ORDERS) for name in "ab"]
    for client in clients:
        client.join()
    settle(clients)

    house.log.records += house.group.tombstones()

    assert set(house.log.table.values()) == {None}


def test_tombstones_end_what_could_not_be_ended_before(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()
    house.log.fail_with = ErrorCode.not_coordinator
    house.scheduler.advance(45)
    assert house.group.is_empty

    house.log.records += house.group.tombstones()

    assert set(house.log.table.values()) == {None}


# --- records that do not fit -----------------------------------------------------------------


def test_no_records_are_no_groups() -> None:
    assert saved_consumer_groups([]) == []
    assert saved_consumer_groups([(b"\x00\x02\x00\x01g", b"x"), (b"", b""), (b"\x7f", b"")]) == []


def test_records_of_a_member_without_its_subscription_are_left_out_and_ended(
    house: GroupHouse,
) -> None:
    house.log.records += [
        (key(ConsumerGroupRecordType.GROUP_EPOCH), encode_group_epoch(GroupEpochValue(epoch=3))),
        (key(ConsumerGroupRecordType.CURRENT, "x"), current(3, {0: 3})),
        (key(ConsumerGroupRecordType.TARGET, "x"), encode_target({TOPIC: frozenset({0})})),
    ]

    house.restart()
    client = ConsumerClient(house, "a", ORDERS)
    client.join()

    assert (client.epoch, client.owned_count) == (4, 4)
    assert house.log.table[key(ConsumerGroupRecordType.CURRENT, "x")] is None
    assert house.log.table[key(ConsumerGroupRecordType.TARGET, "x")] is None


def test_a_record_that_cannot_be_read_costs_its_member_only(house: GroupHouse) -> None:
    clients = [ConsumerClient(house, name, ORDERS) for name in "ab"]
    for client in clients:
        client.join()
    settle(clients)
    house.log.records.append((key(ConsumerGroupRecordType.MEMBER, "a"), b"\x00\x00\xff"))

    house.restart()

    clients[1].beat()
    with pytest.raises(RefusedError) as caught:
        clients[0].beat()
    assert caught.value.code is ErrorCode.unknown_member_id
    clients[0].join()
    settle(clients)
    assert [client.owned_count for client in clients] == [2, 2]


def test_a_member_nothing_was_assigned_to_yet_must_join_again() -> None:
    (saved,) = saved_consumer_groups(
        [(key(ConsumerGroupRecordType.MEMBER, "a"), encode_member(MemberValue()))]
    )

    assert [(member.member_id, member.epoch) for member in saved.members] == [("a", 0)]


def test_a_member_of_the_classic_protocol_is_left_out(house: GroupHouse) -> None:
    plain = encode_member(MemberValue(topic_names=ORDERS))
    house.log.records.append(
        (
            key(ConsumerGroupRecordType.MEMBER, "classic"),
            plain[:-1] + bytes.fromhex("01 00 07 01 0000afc8 01 00"),
        )
    )

    house.restart()

    assert house.group.is_empty


def test_a_member_in_a_state_nobody_knows_is_left_out() -> None:
    saved = saved_consumer_groups(
        [
            (key(ConsumerGroupRecordType.MEMBER, "a"), encode_member(MemberValue())),
            (key(ConsumerGroupRecordType.CURRENT, "a"), current(3, {}, state=127)),
        ]
    )

    assert [group.members for group in saved] == [[]]


def test_of_two_members_with_the_same_partition_the_later_one_has_it() -> None:
    member = encode_member(MemberValue(topic_names=ORDERS))

    (saved,) = saved_consumer_groups(
        [
            (key(ConsumerGroupRecordType.MEMBER, "a"), member),
            (key(ConsumerGroupRecordType.MEMBER, "b"), member),
            (key(ConsumerGroupRecordType.CURRENT, "a"), current(5, {0: 2, 1: 5})),
            (key(ConsumerGroupRecordType.CURRENT, "b"), current(4, {0: 4, 1: 4, 2: 4})),
        ]
    )

    assert {m.member_id: m.assigned for m in saved.members} == {
        "a": {TOPIC: {1: 5}},
        "b": {TOPIC: {0: 4, 2: 4}},
    }


def test_epochs_of_a_group_are_never_below_its_members() -> None:
    (saved,) = saved_consumer_groups(
        [
            (key(ConsumerGroupRecordType.MEMBER, "a"), encode_member(MemberValue())),
            (key(ConsumerGroupRecordType.CURRENT, "a"), current(7, {})),
        ]
    )

    assert (saved.epoch, saved.assignment_epoch) == (7, 7)


def test_keys_that_are_not_used_are_ended_with_the_group(house: GroupHouse) -> None:
    others = [
        key(ConsumerGroupRecordType.PARTITION_METADATA),
        key(ConsumerGroupRecordType.REGULAR_EXPRESSION, "o.*"),
    ]
    house.log.records += [(other, b"\x00\x00") for other in others]
    house.log.records.append(
        (key(ConsumerGroupRecordType.GROUP_EPOCH), bytes.fromhex("0000 00000001 00"))
    )

    house.restart()

    ended = {raw_key for raw_key, value in house.group.tombstones() if value is None}
    assert ended.issuperset(others)


def test_what_is_being_revoked_makes_the_state() -> None:
    value = encode_current(
        CurrentValue(member_epoch=3, previous_member_epoch=2, state=0, revoking={TOPIC: {1: 1}})
    )

    (saved,) = saved_consumer_groups(
        [
            (key(ConsumerGroupRecordType.MEMBER, "a"), encode_member(MemberValue())),
            (key(ConsumerGroupRecordType.CURRENT, "a"), value),
        ]
    )

    assert saved.members[0].state is MemberState.UNREVOKED_PARTITIONS

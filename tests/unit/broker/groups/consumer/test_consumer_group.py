"""The rules of consumer groups: joining, epochs, giving up and getting partitions, leaving."""

from __future__ import annotations

import pytest

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.error_codes import RefusedError
from cordwood.broker.groups.consumer.consumer_group_config import ConsumerGroupConfig
from cordwood.broker.groups.consumer.consumer_heartbeat import ConsumerHeartbeat
from cordwood.broker.groups.consumer.consumer_member import ConsumerMember, MemberState
from cordwood.protocol.error_code import ErrorCode
from fakes.consumer_client import REBALANCE_TIMEOUT_MS, ConsumerClient, GroupHouse, settle
from fakes.listed_topics import ListedTopics

SESSION_S = 45.0
ORDERS = ("orders",)


@pytest.fixture
def house() -> GroupHouse:
    return GroupHouse(ListedTopics(orders=4, payments=2, audits=2))


def member(house: GroupHouse, client: ConsumerClient) -> ConsumerMember:
    found = house.group.roster.find(client.member_id)
    assert found is not None
    return found


def refused(house: GroupHouse, beat: ConsumerHeartbeat) -> ErrorCode:
    """The code of a refusal, which must have changed nothing."""
    before = (house.group.epoch, list(house.group.roster), len(house.log.records))
    with pytest.raises(RefusedError) as caught:
        house.group.heartbeat(beat)
    assert (house.group.epoch, list(house.group.roster), len(house.log.records)) == before
    return caught.value.code


def joining(member_id: str, **fields: object) -> ConsumerHeartbeat:
    values: dict[str, object] = {
        "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, "topic_names": ORDERS, "owned": {}, **fields,
    }  # fmt: skip
    return ConsumerHeartbeat(member_id=member_id, epoch=0, **values)  # type: ignore[arg-type]


# --- joining ---------------------------------------------------------------------------------


def test_a_new_group_is_empty_at_epoch_zero(house: GroupHouse) -> None:
    assert (house.group.state_name, house.group.epoch, house.group.member_count) == ("Empty", 0, 0)


def test_the_first_member_gets_everything_at_once(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)

    answer = client.join()

    assert client.numbers("orders") == {0, 1, 2, 3}
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (1, 5000)
    assert house.group.state_name == "Stable"


def test_a_heartbeat_that_changes_nothing_is_told_nothing_and_writes_nothing(
    house: GroupHouse,
) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()

    answer = client.beat()

    assert (answer.assignment, list(answer.records), answer.member_epoch) == (None, [], 1)


def test_a_full_request_is_told_the_assignment_again(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()

    answer = house.send(
        ConsumerHeartbeat(
            member_id="a", epoch=1, rebalance_timeout_ms=9, topic_names=ORDERS, owned=client.owned
        )
    )

    assert answer.assignment == client.owned


def test_a_member_without_topics_joins_and_gets_nothing(house: GroupHouse) -> None:
    answer = ConsumerClient(house, "a", ()).join()

    assert (answer.member_epoch, answer.assignment) == (1, {})
    assert house.group.state_name == "Stable"


def test_fields_that_are_not_sent_stay_as_they_were(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS, instance_id="i", assignor="range")
    client.join()
    before = member(house, client).about

    house.send(ConsumerHeartbeat(member_id="a", epoch=1))

    assert member(house, client).about == before


def test_a_group_that_is_full_takes_no_new_member_but_knows_its_own() -> None:
    house = GroupHouse(ListedTopics(orders=4), ConsumerGroupConfig(size_max=1))
    client = ConsumerClient(house, "a", ORDERS, instance_id="i")
    client.join()

    code = refused(house, joining("b"))

    assert code is ErrorCode.group_max_size_reached
    unknown = ConsumerHeartbeat(member_id="b", epoch=1)
    assert refused(house, unknown) is ErrorCode.unknown_member_id
    client.beat()
    client.join()
    client.leave(-2)
    back = ConsumerClient(house, "b", ORDERS, instance_id="i")
    back.join()
    assert back.owned_count == 4


# --- epochs ----------------------------------------------------------------------------------


def test_a_member_that_is_not_known_is_told_so(house: GroupHouse) -> None:
    assert refused(house, ConsumerHeartbeat(member_id="a", epoch=1)) is ErrorCode.unknown_member_id
    assert refused(house, ConsumerHeartbeat(member_id="a", epoch=-1)) is ErrorCode.unknown_member_id


@pytest.mark.parametrize("epoch", [1, 4, 99])
def test_a_member_at_another_epoch_than_its_own_is_fenced(house: GroupHouse, epoch: int) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()
    client.subscribe(("orders", "payments"))
    client.subscribe(("orders",))
    client.beat()
    assert client.epoch == 3

    code = refused(house, ConsumerHeartbeat(member_id="a", epoch=epoch, owned={}))

    assert code is ErrorCode.fenced_member_epoch


def test_a_member_that_missed_our_answer_may_come_with_the_epoch_before(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()
    owned = client.owned
    client.subscribe(("orders", "payments"))

    answer = house.send(ConsumerHeartbeat(member_id="a", epoch=1, owned=owned))

    assert answer.member_epoch == 2


def test_with_the_epoch_before_it_must_say_what_it_owns_and_own_no_more(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()
    client.subscribe(("orders", "payments"))
    foreign = {house.topics.topic_id("audits"): frozenset({0})}

    for owned in (None, foreign):
        code = refused(house, ConsumerHeartbeat(member_id="a", epoch=1, owned=owned))
        assert code is ErrorCode.fenced_member_epoch


def test_a_fenced_member_starts_anew_and_has_what_it_had(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()
    before = client.owned

    answer = client.join()

    assert (answer.member_epoch, answer.assignment) == (1, before)


# --- giving up and getting -------------------------------------------------------------------


def test_a_second_member_waits_until_the_first_has_let_go(house: GroupHouse) -> None:
    first = ConsumerClient(house, "a", ORDERS)
    second = ConsumerClient(house, "b", ORDERS)
    first.join()

    second.join()

    assert (second.owned_count, second.epoch) == (0, 2)
    assert member(house, second).state is MemberState.UNRELEASED_PARTITIONS
    assert house.group.state_name == "Reconciling"

    first.beat()

    assert (first.owned_count, first.epoch) == (2, 1)
    assert member(house, first).state is MemberState.UNREVOKED_PARTITIONS
    second.beat()
    assert second.owned_count == 0

    first.beat()

    assert (first.epoch, member(house, first).state) == (2, MemberState.STABLE)
    second.beat()
    assert (first.numbers("orders"), second.numbers("orders")) == ({0, 1}, {2, 3})
    assert house.group.state_name == "Stable"


def test_a_member_that_does_not_say_what_it_owns_has_not_let_go(house: GroupHouse) -> None:
    first = ConsumerClient(house, "a", ORDERS)
    second = ConsumerClient(house, "b", ORDERS)
    first.join()
    second.join()
    first.beat()

    first.beat(says_owned=False)
    second.beat()

    assert member(house, first).state is MemberState.UNREVOKED_PARTITIONS
    assert second.owned_count == 0


def test_a_member_that_lets_go_too_slowly_is_removed(house: GroupHouse) -> None:
    first = ConsumerClient(house, "a", ORDERS)
    second = ConsumerClient(house, "b", ORDERS)
    first.join()
    second.join()
    first.beat()

    house.scheduler.advance(REBALANCE_TIMEOUT_MS / 1000 - 1)
    first.beat(says_owned=False)
    house.scheduler.advance(1)

    with pytest.raises(RefusedError) as caught:
        first.beat()
    assert caught.value.code is ErrorCode.unknown_member_id
    second.beat()
    assert second.owned_count == 4


def test_a_member_that_let_go_in_time_is_not_removed(house: GroupHouse) -> None:
    first = ConsumerClient(house, "a", ORDERS)
    second = ConsumerClient(house, "b", ORDERS)
    first.join()
    second.join()
    settle([first, second])

    house.scheduler.advance(SESSION_S - 1)

    assert house.group.member_count == 2


def test_partitions_of_a_member_that_left_are_there_for_the_others(house: GroupHouse) -> None:
    clients = [ConsumerClient(house, name, ORDERS) for name in "ab"]
    for client in clients:
        client.join()
    settle(clients)

    clients[0].leave()

    assert house.group.state_name == "Assigning"
    clients[1].beat()
    assert clients[1].owned_count == 4
    assert house.group.state_name == "Stable"


def test_most_members_choose_the_assignor(house: GroupHouse) -> None:
    clients = [
        ConsumerClient(house, "a", ORDERS),
        ConsumerClient(house, "b", ORDERS, assignor="range"),
    ]
    for client in clients:
        client.join()

    assert house.group.assignor_name == "range"


# --- subscriptions and topics ----------------------------------------------------------------


def test_a_changed_subscription_is_assigned_at_once(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()

    client.subscribe(("orders", "payments"))

    assert client.owned_count == 6


def test_what_is_no_longer_subscribed_to_must_be_let_go(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ("orders", "payments"))
    client.join()

    client.subscribe(("payments",))

    assert (client.numbers("orders"), client.numbers("payments")) == (set(), {0, 1})
    assert member(house, client).state is MemberState.UNREVOKED_PARTITIONS
    client.beat()
    assert house.group.state_name == "Stable"


def test_a_subscription_that_shrinks_while_partitions_are_revoked_takes_more(
    house: GroupHouse,
) -> None:
    client = ConsumerClient(house, "a", ("orders", "payments", "audits"))
    client.join()
    owned = client.owned
    client.subscribe(("payments", "audits"))
    client.owned = owned  # it has not let go yet

    client.subscribe(("audits",))

    assert client.owned.keys() == {house.topics.topic_id("audits")}
    assert member(house, client).revoking.keys() == {
        house.topics.topic_id("orders"),
        house.topics.topic_id("payments"),
    }
    settle([client])
    assert house.group.state_name == "Stable"


def test_a_topic_that_comes_later_is_assigned_then(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ("orders", "returns"))
    client.join()
    assert client.owned_count == 4

    house.topics.create("returns", 3)
    house.scheduler.advance(1)
    client.beat()

    assert client.owned_count == 7


def test_new_partitions_are_assigned(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()

    house.topics.grow("orders", 6)
    house.scheduler.advance(1)
    client.beat()

    assert client.numbers("orders") == {0, 1, 2, 3, 4, 5}


def test_a_topic_that_is_gone_is_taken_away(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ("orders", "payments"))
    client.join()

    house.topics.delete("payments")
    house.scheduler.advance(1)
    settle([client])

    assert client.owned_count == 4
    assert house.group.state_name == "Stable"


def test_a_topic_of_the_same_name_is_another_one(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()

    house.topics.delete("orders")
    house.topics.create("orders", 2)
    house.scheduler.advance(1)
    settle([client])

    assert client.owned == {house.topics.topic_id("orders"): frozenset({0, 1})}


def test_topics_can_be_subscribed_to_by_a_regular_expression(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", (), topic_regex="orders|pay.*")

    client.join()

    assert client.owned_count == 6
    house.topics.create("payouts", 1)
    house.scheduler.advance(1)
    client.beat()
    assert client.numbers("payouts") == {0}


def test_names_and_a_regular_expression_are_subscribed_to_together(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ("orders",), topic_regex="pay.*")

    client.join()

    assert client.owned_count == 6


def test_an_empty_regular_expression_ends_the_one_before(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", (), topic_regex="pay.*")
    client.join()

    client.subscribe(("orders",), "")
    settle([client])

    assert client.owned.keys() == {house.topics.topic_id("orders")}


@pytest.mark.parametrize("regex", ["(", "a**", "(?=a)"])
def test_what_is_no_regular_expression_is_refused(house: GroupHouse, regex: str) -> None:
    code = refused(house, joining("a", topic_regex=regex))

    assert code is ErrorCode.invalid_regular_expression


def test_a_large_group_does_not_work_out_every_change_at_once() -> None:
    house = GroupHouse(ListedTopics(orders=5000))
    first, second, third = (ConsumerClient(house, name, ORDERS) for name in "abc")
    first.join()

    second.join()
    third.join()

    assert (house.group.epoch, house.group.targets.epoch) == (3, 1)
    assert house.group.state_name == "Assigning"
    assert (second.epoch, second.owned_count) == (1, 0)
    house.scheduler.advance(1)
    settle([first, second, third])
    assert house.group.targets.epoch == 3
    assert sorted(client.owned_count for client in (first, second, third)) == [1666, 1667, 1667]


# --- static members --------------------------------------------------------------------------


def test_a_static_member_that_comes_back_has_what_it_had_and_nobody_notices(
    house: GroupHouse,
) -> None:
    other = ConsumerClient(house, "a", ORDERS)
    old = ConsumerClient(house, "b", ORDERS, instance_id="i")
    other.join()
    old.join()
    settle([other, old])
    before, epoch = old.owned, house.group.epoch

    old.leave(-2)
    new = ConsumerClient(house, "c", ORDERS, instance_id="i")
    new.join()

    assert new.owned == before
    assert (new.epoch, house.group.epoch) == (epoch, epoch)
    assert house.group.state_name == "Stable"
    assert house.group.roster.find("b") is None


def test_a_static_member_that_does_not_come_back_is_removed(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS, instance_id="i")
    client.join()
    client.leave(-2)
    assert house.group.member_count == 1

    house.scheduler.advance(SESSION_S)

    assert house.group.is_empty
    assert house.scheduler.timer_count == 0


def test_an_instance_id_is_taken_while_its_member_is_there(house: GroupHouse) -> None:
    ConsumerClient(house, "a", ORDERS, instance_id="i").join()

    assert refused(house, joining("b", instance_id="i")) is ErrorCode.unreleased_instance_id


def test_an_instance_id_is_free_once_the_session_of_its_member_has_expired(
    house: GroupHouse,
) -> None:
    ConsumerClient(house, "a", ORDERS, instance_id="i").join()
    house.scheduler.advance(SESSION_S)
    other = ConsumerClient(house, "b", ORDERS, instance_id="i")

    other.join()

    assert other.owned_count == 4


def test_a_group_may_have_timeouts_of_its_own(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()
    house.settings["consumer.session.timeout.ms"] = str(int(2000 * SESSION_S))
    house.settings["consumer.heartbeat.interval.ms"] = "7000"

    answer = client.beat()

    assert answer.heartbeat_interval_ms == 7000
    house.scheduler.advance(1.9 * SESSION_S)
    assert house.group.member_count == 1
    house.scheduler.advance(0.2 * SESSION_S)
    assert house.group.is_empty


def test_the_member_itself_may_start_anew(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS, instance_id="i")
    client.join()

    client.join()

    assert client.owned_count == 4


def test_the_member_itself_may_come_back_under_its_own_id(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS, instance_id="i")
    client.join()
    client.leave(-2)

    client.join()

    assert (client.owned_count, client.epoch, house.group.state_name) == (4, 1, "Stable")


def test_a_member_whose_instance_id_is_anothers_now_is_fenced(house: GroupHouse) -> None:
    old = ConsumerClient(house, "a", ORDERS, instance_id="i")
    old.join()
    old.leave(-2)
    ConsumerClient(house, "b", ORDERS, instance_id="i").join()

    for epoch in (1, -1, -2):
        beat = ConsumerHeartbeat(member_id="a", epoch=epoch, instance_id="i")
        assert refused(house, beat) is ErrorCode.fenced_instance_id


def test_an_instance_id_nobody_has_is_not_known(house: GroupHouse) -> None:
    for epoch in (1, -1, -2):
        beat = ConsumerHeartbeat(member_id="a", epoch=epoch, instance_id="i")
        assert refused(house, beat) is ErrorCode.unknown_member_id


def test_a_member_that_is_away_is_fenced_until_it_joins(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS, instance_id="i")
    client.join()
    client.leave(-2)

    beat = ConsumerHeartbeat(member_id="a", epoch=1, owned={})

    assert refused(house, beat) is ErrorCode.fenced_member_epoch


def test_a_member_cannot_take_anothers_place_as_well(house: GroupHouse) -> None:
    away = ConsumerClient(house, "a", ORDERS, instance_id="i")
    away.join()
    away.leave(-2)
    ConsumerClient(house, "b", ORDERS).join()

    assert refused(house, joining("b", instance_id="i")) is ErrorCode.invalid_request


def test_a_static_member_that_leaves_for_good_is_removed_at_once(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS, instance_id="i")
    client.join()

    client.leave(-1)

    assert house.group.is_empty


def test_a_member_away_gives_up_at_once_what_it_was_to_let_go(house: GroupHouse) -> None:
    first = ConsumerClient(house, "a", ORDERS, instance_id="i")
    second = ConsumerClient(house, "b", ORDERS)
    first.join()
    second.join()
    first.beat()

    first.leave(-2)
    second.beat()

    assert second.owned_count == 2


# --- sessions --------------------------------------------------------------------------------


def test_a_silent_member_is_removed_when_its_session_ends(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()

    house.scheduler.advance(SESSION_S - 0.001)
    assert house.group.member_count == 1
    house.scheduler.advance(0.001)

    assert (house.group.state_name, house.scheduler.timer_count) == ("Empty", 0)


def test_a_member_that_beats_lives_on(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()

    for _ in range(20):
        house.scheduler.advance(SESSION_S - 1)
        client.beat()

    assert (house.group.member_count, house.scheduler.timer_count) == (1, 1)


def test_a_stopped_group_is_dead_and_has_no_timers(house: GroupHouse) -> None:
    ConsumerClient(house, "a", ORDERS).join()

    house.group.stop()

    assert (house.group.state_name, house.scheduler.timer_count) == ("Dead", 0)


def test_a_removal_that_cannot_be_written_is_reported_and_written_with_the_next_change(
    house: GroupHouse, caplog: pytest.LogCaptureFixture
) -> None:
    ConsumerClient(house, "a", ORDERS).join()
    house.log.fail_with = ErrorCode.not_coordinator

    house.scheduler.advance(SESSION_S)

    assert "not saved yet" in caplog.text
    house.log.fail_with = None
    ConsumerClient(house, "b", ORDERS).join()
    house.restart()
    assert [member.member_id for member in house.group.roster] == ["b"]


def test_a_group_goes_by_the_brokers_configuration() -> None:
    broker = BrokerConfig.parse(
        {
            "group.consumer.heartbeat.interval.ms": 6000,
            "group.consumer.session.timeout.ms": 50_000,
            "group.consumer.max.size": 3,
            "group.consumer.assignors": "range",
        }
    )

    assert ConsumerGroupConfig.of_broker(broker) == ConsumerGroupConfig(
        heartbeat_interval_ms=6000,
        session_timeout_ms=50_000,
        size_max=3,
        assignors=("range",),
    )


# --- offsets ---------------------------------------------------------------------------------


def test_only_a_member_at_its_epoch_may_commit_everything(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()

    assert house.group.validate_commit("a", 1) is ErrorCode.none
    assert house.group.validate_commit("a", 0) is ErrorCode.stale_member_epoch
    assert house.group.validate_commit("a", 2) is ErrorCode.stale_member_epoch
    assert house.group.validate_commit("b", 1) is ErrorCode.unknown_member_id
    assert house.group.validate_commit("", -1) is ErrorCode.unknown_member_id


def test_anyone_may_commit_for_an_empty_group(house: GroupHouse) -> None:
    assert house.group.validate_commit("", -1) is ErrorCode.none
    assert house.group.validate_commit("a", 1) is ErrorCode.unknown_member_id


def test_a_partition_may_be_committed_at_a_past_epoch_since_which_the_member_has_it(
    house: GroupHouse,
) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()
    client.subscribe(("orders", "payments"))
    check = house.group.validate_partition_commit

    assert check("a", 1, "orders", 0) is ErrorCode.none
    assert check("a", 2, "payments", 0) is ErrorCode.none
    assert check("a", 1, "payments", 0) is ErrorCode.stale_member_epoch
    assert check("a", 3, "orders", 0) is ErrorCode.stale_member_epoch
    assert check("a", 1, "orders", 9) is ErrorCode.stale_member_epoch
    assert check("a", 1, "audits", 0) is ErrorCode.stale_member_epoch
    assert check("b", 1, "orders", 0) is ErrorCode.unknown_member_id


def test_what_is_being_revoked_may_still_be_committed(house: GroupHouse) -> None:
    client = ConsumerClient(house, "a", ORDERS)
    client.join()
    client.subscribe(("orders", "payments"))
    client.subscribe(("payments",))
    assert member(house, client).state is MemberState.UNREVOKED_PARTITIONS

    assert house.group.validate_commit("a", client.epoch) is ErrorCode.none
    assert house.group.validate_partition_commit("a", 1, "orders", 0) is ErrorCode.none


def test_offsets_may_be_fetched_by_strangers_and_by_members_at_their_epoch(
    house: GroupHouse,
) -> None:
    ConsumerClient(house, "a", ORDERS).join()
    check = house.group.validate_fetch

    assert check(None, -1) is ErrorCode.none
    assert check("", -1) is ErrorCode.none
    assert check("a", 1) is ErrorCode.none
    assert check("a", 0) is ErrorCode.stale_member_epoch
    assert check("b", 1) is ErrorCode.unknown_member_id
    assert check(None, 1) is ErrorCode.unknown_member_id


def test_a_group_knows_the_topics_it_reads(house: GroupHouse) -> None:
    ConsumerClient(house, "a", ("orders", "missing"), topic_regex="pay.*").join()

    assert house.group.subscribed_topics() == {"orders", "missing", "payments"}

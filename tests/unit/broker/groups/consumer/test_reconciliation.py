"""From what a member has to what it is to have, one heartbeat at a time."""

from __future__ import annotations

from uuid import UUID

import pytest

from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.broker.groups.consumer.consumer_member import ConsumerMember, MemberState
from cordwood.broker.groups.consumer.reconciliation import Target, owns_only, reconcile
from cordwood.format.groups.consumer_group_records import MemberValue

ORDERS, PAYMENTS = UUID(int=1), UUID(int=2)
ALL = frozenset({ORDERS, PAYMENTS})

STABLE = ConsumerMember(
    member_id="m",
    about=MemberValue(),
    epoch=3,
    previous_epoch=2,
    assigned={ORDERS: {0: 2, 1: 3}},
)


def step(
    member: ConsumerMember,
    partitions: Assignment,
    owned: Assignment | None,
    *,
    epoch: int = 4,
    taken: frozenset[tuple[UUID, int]] = frozenset(),
    subscribed: frozenset[UUID] = ALL,
    has_new_subscription: bool = False,
) -> ConsumerMember:
    return reconcile(
        member,
        target=Target(epoch=epoch, partitions=partitions),
        subscribed=subscribed,
        has_new_subscription=has_new_subscription,
        owned=owned,
        is_free=lambda topic, partition: (topic, partition) not in taken,
    )


def test_a_member_that_has_its_target_stays_the_same_one() -> None:
    assert step(STABLE, {}, None, epoch=3) is STABLE


def test_a_member_whose_target_is_what_it_has_goes_to_its_epoch() -> None:
    after = step(STABLE, {ORDERS: frozenset({0, 1})}, None)

    assert (after.epoch, after.previous_epoch, after.state) == (4, 3, MemberState.STABLE)
    assert after.assigned == STABLE.assigned


def test_what_is_new_is_dated_with_the_targets_epoch() -> None:
    after = step(STABLE, {ORDERS: frozenset({0, 1, 2})}, None)

    assert after.assigned == {ORDERS: {0: 2, 1: 3, 2: 4}}


def test_what_is_taken_away_must_be_let_go_first_at_the_old_epoch() -> None:
    after = step(STABLE, {ORDERS: frozenset({0, 2})}, None)

    assert (after.epoch, after.state) == (3, MemberState.UNREVOKED_PARTITIONS)
    assert (after.assigned, after.revoking) == ({ORDERS: {0: 2}}, {ORDERS: {1: 3}})


@pytest.mark.parametrize("owned", [None, {ORDERS: frozenset({0, 1})}])
def test_it_is_not_let_go_before_the_member_says_so(owned: Assignment | None) -> None:
    target = {ORDERS: frozenset({0, 2})}
    revoking = step(STABLE, target, None)

    assert step(revoking, target, owned) is revoking


def test_once_it_is_let_go_the_member_gets_the_rest() -> None:
    target = {ORDERS: frozenset({0, 2})}
    revoking = step(STABLE, target, None)

    after = step(revoking, target, {ORDERS: frozenset({0})})

    assert (after.epoch, after.state) == (4, MemberState.STABLE)
    assert (after.assigned, after.revoking) == ({ORDERS: {0: 2, 2: 4}}, {})


def test_what_the_member_does_not_own_it_need_not_let_go() -> None:
    after = step(STABLE, {ORDERS: frozenset({2})}, {})

    assert (after.state, after.assigned) == (MemberState.STABLE, {ORDERS: {2: 4}})


def test_what_others_hold_is_waited_for_at_the_new_epoch() -> None:
    target = {ORDERS: frozenset({0, 1, 2}), PAYMENTS: frozenset({0})}

    waiting = step(STABLE, target, None, taken=frozenset({(ORDERS, 2)}))

    assert (waiting.epoch, waiting.state) == (4, MemberState.UNRELEASED_PARTITIONS)
    assert waiting.assigned == {ORDERS: {0: 2, 1: 3}, PAYMENTS: {0: 4}}
    assert step(waiting, target, None, taken=frozenset({(ORDERS, 2)})) is waiting
    after = step(waiting, target, None)
    assert (after.state, after.previous_epoch) == (MemberState.STABLE, 3)
    assert after.assigned[ORDERS] == {0: 2, 1: 3, 2: 4}


def test_topics_not_subscribed_to_are_neither_kept_nor_given() -> None:
    both = {ORDERS: frozenset({0, 1}), PAYMENTS: frozenset({0})}

    after = step(STABLE, both, {}, epoch=3, subscribed=frozenset(), has_new_subscription=True)

    assert (after.epoch, after.assigned) == (3, {})


def test_a_new_subscription_while_revoking_revokes_what_it_leaves_out_and_no_more() -> None:
    target = {ORDERS: frozenset({0})}
    revoking = step(STABLE, target, None)

    same = step(revoking, target, None, has_new_subscription=True)
    fewer = step(
        revoking, target, None, subscribed=frozenset({PAYMENTS}), has_new_subscription=True
    )

    assert same is revoking
    assert (fewer.assigned, fewer.revoking) == ({}, {ORDERS: {0: 2, 1: 3}})


def test_what_is_taken_away_and_given_back_meanwhile_is_the_members_again() -> None:
    revoking = step(STABLE, {ORDERS: frozenset({0})}, None)

    after = step(revoking, {ORDERS: frozenset({0, 1})}, {ORDERS: frozenset({0})}, epoch=5)

    assert after.assigned == {ORDERS: {0: 2, 1: 5}}


@pytest.mark.parametrize(
    ("owned", "expected"),
    [
        (None, False),
        ({}, True),
        ({ORDERS: frozenset({0})}, True),
        ({ORDERS: frozenset({0, 1})}, True),
        ({ORDERS: frozenset({2})}, False),
        ({PAYMENTS: frozenset({0})}, False),
    ],
)
def test_owning_only_what_is_assigned(owned: Assignment | None, expected: bool) -> None:
    assert owns_only(owned, STABLE.assigned) is expected

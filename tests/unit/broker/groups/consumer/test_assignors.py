"""What the assignors promise, on cases worked out by hand and on any that Hypothesis finds."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.broker.groups.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    Assignor,
    Subscriber,
    assign_range,
    assign_uniform,
)

ORDERS, PAYMENTS, AUDITS = (UUID(int=number) for number in (1, 2, 3))
TOPICS = (ORDERS, PAYMENTS, AUDITS)

subscriptions = st.frozensets(st.sampled_from(TOPICS))
partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12))
assignments = st.dictionaries(
    st.sampled_from(TOPICS), st.frozensets(st.integers(0, 11), max_size=6), max_size=3
)
subscribers = st.builds(
    Subscriber,
    topics=subscriptions,
    previous=assignments,
    instance_id=st.none() | st.sampled_from("xyz"),
)
groups = st.dictionaries(st.sampled_from("abcdefgh"), subscribers, max_size=8)


def members(ids: str, *topics: UUID) -> dict[str, Subscriber]:
    return {member_id: Subscriber(topics=frozenset(topics)) for member_id in ids}


def after(
    group: Mapping[str, Subscriber], assignment: Mapping[str, Assignment]
) -> dict[str, Subscriber]:
    """The same members, once they were given the assignment."""
    return {
        member_id: Subscriber(
            topics=member.topics,
            previous=assignment.get(member_id, {}),
            instance_id=member.instance_id,
        )
        for member_id, member in group.items()
    }


def load(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def moved(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    """How many partitions someone lost that is still there."""
    return sum(
        len(partitions - after[member_id].get(topic, frozenset()))
        for member_id, assignment in before.items()
        if member_id in after
        for topic, partitions in assignment.items()
    )


# --- of every assignor -----------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@given(group=groups, counts=partition_counts)
def test_every_partition_someone_subscribes_to_goes_to_exactly_one_subscriber(
    assignor: Assignor, group: dict[str, Subscriber], counts: dict[UUID, int]
) -> None:
    assigned = assignor(group, counts)

    assert assigned.keys() == group.keys()
    given = [
        (topic, number)
        for assignment in assigned.values()
        for topic, numbers in assignment.items()
        for number in numbers
    ]
    subscribed = {topic for member in group.values() for topic in member.topics}
    wanted = [(t, n) for t, count in counts.items() if t in subscribed for n in range(count)]
    assert sorted(given) == sorted(wanted)
    for member_id, assignment in assigned.items():
        assert assignment.keys() <= group[member_id].topics
        assert all(assignment.values())


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@given(group=groups, counts=partition_counts)
def test_asked_again_an_assignor_changes_nothing(
    assignor: Assignor, group: dict[str, Subscriber], counts: dict[UUID, int]
) -> None:
    first = assignor(group, counts)

    again = assignor(after(group, first), counts)

    assert again == first


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
def test_a_group_without_members_or_without_topics_gets_nothing(assignor: Assignor) -> None:
    assert assignor({}, {ORDERS: 3}) == {}
    assert assignor(members("a"), {}) == {"a": {}}
    assert assignor(members("a", ORDERS), {PAYMENTS: 3}) == {"a": {}}


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
def test_a_large_group_is_assigned_whole(assignor: Assignor) -> None:
    topics = [UUID(int=number) for number in range(100)]
    group = {f"member-{n}": Subscriber(topics=frozenset(topics)) for n in range(1000)}

    assigned = assignor(group, dict.fromkeys(topics, 100))

    assert sum(map(load, assigned.values())) == 10_000


# --- uniform ---------------------------------------------------------------------------------


@given(group=groups, counts=partition_counts)
def test_uniform_leaves_no_partition_that_would_better_be_anothers(
    group: dict[str, Subscriber], counts: dict[UUID, int]
) -> None:
    assigned = assign_uniform(group, counts)

    for assignment in assigned.values():
        for topic in assignment:
            others = (m for m, subscriber in group.items() if topic in subscriber.topics)
            fewest = min(load(assigned[other]) for other in others)
            assert load(assignment) <= fewest + 1


@given(
    ids=st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1),
    counts=partition_counts,
    leaver=st.integers(0, 7),
)
def test_uniform_moves_nothing_when_a_member_leaves(
    ids: list[str], counts: dict[UUID, int], leaver: int
) -> None:
    group = members("".join(ids), *TOPICS)
    first = assign_uniform(group, counts)
    del group[ids[leaver % len(ids)]]

    second = assign_uniform(after(group, first), counts)

    assert moved(first, second) == 0


@given(ids=st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1), counts=partition_counts)
def test_uniform_moves_no_more_than_a_new_member_gets(
    ids: list[str], counts: dict[UUID, int]
) -> None:
    group = members("".join(ids), *TOPICS)
    first = assign_uniform(group, counts)
    grown = {**after(group, first), **members("z", *TOPICS)}

    second = assign_uniform(grown, counts)

    assert moved(first, second) == load(second["z"])


def test_uniform_deals_out_each_topic_over_the_members() -> None:
    assigned = assign_uniform(members("ab", ORDERS, PAYMENTS), {ORDERS: 4, PAYMENTS: 4})

    for assignment in assigned.values():
        assert {topic: len(numbers) for topic, numbers in assignment.items()} == {
            ORDERS: 2,
            PAYMENTS: 2,
        }


def test_uniform_takes_some_of_each_topic_from_a_member_that_has_too_many() -> None:
    group = members("a", ORDERS, PAYMENTS)
    first = assign_uniform(group, {ORDERS: 4, PAYMENTS: 4})
    grown = {**after(group, first), **members("b", ORDERS, PAYMENTS)}

    second = assign_uniform(grown, {ORDERS: 4, PAYMENTS: 4})

    assert {topic: len(numbers) for topic, numbers in second["b"].items()} == {
        ORDERS: 2,
        PAYMENTS: 2,
    }


def test_uniform_gives_the_larger_share_to_those_who_have_it() -> None:
    group = {
        "a": Subscriber(topics=frozenset({ORDERS}), previous={ORDERS: frozenset({0})}),
        "b": Subscriber(topics=frozenset({ORDERS}), previous={ORDERS: frozenset({1, 2})}),
    }

    assigned = assign_uniform(group, {ORDERS: 3})

    assert assigned == {"a": {ORDERS: frozenset({0})}, "b": {ORDERS: frozenset({1, 2})}}


def test_uniform_gives_who_subscribes_to_more_only_what_others_cannot_take() -> None:
    group = {**members("a", ORDERS), **members("b", ORDERS, PAYMENTS)}

    assigned = assign_uniform(group, {ORDERS: 3, PAYMENTS: 3})

    assert assigned == {
        "a": {ORDERS: frozenset({0, 1, 2})},
        "b": {PAYMENTS: frozenset({0, 1, 2})},
    }


def test_uniform_believes_one_of_two_members_that_had_the_same_partition() -> None:
    both = {ORDERS: frozenset({0, 1})}
    group = {m: Subscriber(topics=frozenset({ORDERS}), previous=both) for m in "ab"}

    assigned = assign_uniform(group, {ORDERS: 2})

    assert sorted(map(load, assigned.values())) == [1, 1]


# --- range -----------------------------------------------------------------------------------


def test_range_gives_runs_of_neighbours_and_the_first_members_one_more() -> None:
    assigned = assign_range(members("abc", ORDERS), {ORDERS: 8})

    assert assigned == {
        "a": {ORDERS: frozenset({0, 1, 2})},
        "b": {ORDERS: frozenset({3, 4, 5})},
        "c": {ORDERS: frozenset({6, 7})},
    }


def test_range_gives_the_same_numbers_of_topics_with_as_many_partitions() -> None:
    assigned = assign_range(members("abc", ORDERS, PAYMENTS), {ORDERS: 7, PAYMENTS: 7})

    for assignment in assigned.values():
        assert assignment[ORDERS] == assignment[PAYMENTS]


def test_range_leaves_the_last_members_without_when_there_are_too_few_partitions() -> None:
    assigned = assign_range(members("abc", ORDERS), {ORDERS: 2})

    assert assigned == {"a": {ORDERS: frozenset({0})}, "b": {ORDERS: frozenset({1})}, "c": {}}


def test_range_orders_static_members_first_and_by_their_instance_ids() -> None:
    group = {
        "a": Subscriber(topics=frozenset({ORDERS})),
        "b": Subscriber(topics=frozenset({ORDERS}), instance_id="second"),
        "c": Subscriber(topics=frozenset({ORDERS}), instance_id="first"),
    }

    assigned = assign_range(group, {ORDERS: 3})

    assert assigned == {
        "c": {ORDERS: frozenset({0})},
        "b": {ORDERS: frozenset({1})},
        "a": {ORDERS: frozenset({2})},
    }

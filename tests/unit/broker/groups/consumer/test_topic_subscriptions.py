"""Which topics subscriptions come to, as topics and members change."""

from __future__ import annotations

import logging

import pytest

from cordwood.broker.cluster_view import SoleBroker
from cordwood.broker.groups.consumer.topic_subscriptions import (
    TopicShape,
    TopicSubscriptions,
    ViewTopics,
)
from cordwood.broker.patterns.topic_pattern_syntax import InvalidPatternError
from cordwood.format.groups.consumer_group_records import MemberValue
from fakes.handler_calls import IDENTITY
from fakes.listed_topics import ListedTopics
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

ORDERS = MemberValue(topic_names=("orders",))
LIKE_ORDERS = MemberValue(topic_regex="ord.*")


@pytest.fixture
def topics() -> ListedTopics:
    return ListedTopics(orders=3, ordained=1, payments=2)


@pytest.fixture
def subscriptions(topics: ListedTopics) -> TopicSubscriptions:
    return TopicSubscriptions(topics)


def test_names_and_patterns_come_to_the_topics_that_exist(
    topics: ListedTopics, subscriptions: TopicSubscriptions
) -> None:
    both = MemberValue(topic_names=("payments", "missing"), topic_regex="orders")
    for about in (ORDERS, LIKE_ORDERS, both):
        subscriptions.add(about)

    assert subscriptions.resolve()

    assert subscriptions.topics(ORDERS) == {topics.topic_id("orders")}
    assert subscriptions.topics(LIKE_ORDERS) == {
        topics.topic_id("orders"),
        topics.topic_id("ordained"),
    }
    assert subscriptions.topics(both) == {topics.topic_id("orders"), topics.topic_id("payments")}
    assert subscriptions.names() == {"orders", "ordained", "payments", "missing"}
    assert subscriptions.partition_counts[topics.topic_id("orders")] == 3


def test_looking_again_tells_whether_anything_changed(
    topics: ListedTopics, subscriptions: TopicSubscriptions
) -> None:
    subscriptions.add(ORDERS)
    subscriptions.resolve()
    digest = subscriptions.digest()

    assert not subscriptions.resolve()
    assert subscriptions.digest() == digest
    topics.grow("payments", 5)
    assert not subscriptions.resolve()
    topics.grow("orders", 5)
    assert subscriptions.resolve()
    assert subscriptions.digest() != digest


def test_what_nobody_subscribes_to_any_more_does_not_count(
    subscriptions: TopicSubscriptions,
) -> None:
    for about in (ORDERS, ORDERS, LIKE_ORDERS):
        subscriptions.add(about)
    subscriptions.resolve()

    for about in (ORDERS, LIKE_ORDERS):
        subscriptions.remove(about)
    subscriptions.resolve()

    assert subscriptions.names() == {"orders"}
    subscriptions.remove(ORDERS)
    assert subscriptions.resolve()
    assert (subscriptions.names(), subscriptions.digest()) == (frozenset(), 0)


def test_a_pattern_that_is_none_is_refused(subscriptions: TopicSubscriptions) -> None:
    with pytest.raises(InvalidPatternError):
        subscriptions.check_regex("(")


def test_a_pattern_that_another_broker_took_and_we_do_not_means_no_topic(
    subscriptions: TopicSubscriptions, caplog: pytest.LogCaptureFixture
) -> None:
    saved = MemberValue(topic_regex="(?=orders).*")
    subscriptions.add(saved)

    with caplog.at_level(logging.WARNING):
        subscriptions.resolve()

    assert subscriptions.topics(saved) == frozenset()
    assert "matches no topic" in caplog.text


def test_a_pattern_that_becomes_too_much_work_keeps_the_topics_it_had(
    topics: ListedTopics, subscriptions: TopicSubscriptions, caplog: pytest.LogCaptureFixture
) -> None:
    costly = MemberValue(topic_regex="orders|(?:.*a){30}.{900}")
    subscriptions.check_regex("orders|(?:.*a){30}.{900}")
    subscriptions.add(costly)
    subscriptions.resolve()

    for number in range(2000):
        topics.create(format(number, "b").replace("0", "a") * 20, 1)
    with caplog.at_level(logging.WARNING):
        subscriptions.resolve()

    assert subscriptions.topics(costly) == {topics.topic_id("orders")}
    assert "not updated" in caplog.text


def test_the_topics_of_a_broker_without_internal_ones() -> None:
    store = open_store(SimulatedFileSystem())
    created = store.create_topic("orders", partitions=3)
    store.group("billing").commit({("orders", 0): 1})
    topics = ViewTopics(SoleBroker(IDENTITY, store))

    assert topics.find("orders") == TopicShape(created.topic_id, 3)
    assert topics.find("missing") is None
    assert topics.names() == {"orders"}
    assert topics.find("__consumer_offsets") is not None
    store.close()


def test_a_pattern_matches_what_its_first_member_may_see(
    topics: ListedTopics, subscriptions: TopicSubscriptions
) -> None:
    hidden = {"ordained"}
    subscriptions.add(LIKE_ORDERS)

    is_new = subscriptions.see("ord.*", lambda name: name not in hidden)
    subscriptions.resolve()
    seen = subscriptions.names()
    is_other = subscriptions.see("ord.*", lambda name: False)
    subscriptions.resolve()
    still = subscriptions.names()
    hidden.clear()  # the rules have changed
    subscriptions.resolve()

    assert (is_new, is_other) == (True, False)
    assert seen == still == {"orders"}
    assert subscriptions.names() == {"orders", "ordained"}


def test_a_pattern_of_members_that_were_not_heard_of_yet_has_the_latest_sight(
    topics: ListedTopics, subscriptions: TopicSubscriptions
) -> None:
    subscriptions.add(LIKE_ORDERS)
    subscriptions.resolve()

    subscriptions.see(None, lambda name: name == "ordained")
    subscriptions.resolve()

    assert subscriptions.names() == {"ordained"}


def test_a_sight_ends_with_the_last_member_of_its_pattern(
    topics: ListedTopics, subscriptions: TopicSubscriptions
) -> None:
    subscriptions.add(LIKE_ORDERS)
    subscriptions.see("ord.*", lambda name: False)
    subscriptions.resolve()
    subscriptions.remove(LIKE_ORDERS)
    subscriptions.resolve()

    subscriptions.add(LIKE_ORDERS)
    subscriptions.see("ord.*", None)
    subscriptions.resolve()

    assert subscriptions.names() == {"orders", "ordained"}

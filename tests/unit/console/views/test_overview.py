from dataclasses import replace

from cordwood.console.facts.cluster_facts import BrokerFacts, DamageFacts, DiskFacts
from cordwood.console.facts.series import Series
from cordwood.console.views.overview import overview
from fakes.console_facts import group, snapshot, topic

NO_POINTS = Series()


def test_a_sound_store_is_called_well() -> None:
    view = overview(snapshot(topic("orders", {0: 5})), NO_POINTS, [])

    assert view.health.level == "good"
    assert view.health.sentence == "All is well: 1 topic can be read, and nothing is damaged."


def test_the_worst_comes_first() -> None:
    damage = DamageFacts(
        topic="orders", partition=0, path="f", position=3, first_offset=5, next_offset=9, reason="r"
    )
    disk = DiskFacts(path="/data", free_bytes=5, total_bytes=100, floor_bytes=10)
    facts = replace(
        snapshot(topic("orders", {0: 50})),
        damages=(damage,),
        disks=(disk,),
        broker=BrokerFacts(address="localhost:9092", problem="refused"),
    )

    health = overview(facts, NO_POINTS, []).health

    assert health.level == "bad"
    assert health.sentence == "The broker localhost:9092 does not answer."
    assert any("short of space" in finding for finding in health.findings)
    assert any("1 damage found: 4 offsets" in finding for finding in health.findings)


def test_a_group_that_lost_records_is_a_warning() -> None:
    facts = snapshot(
        topic("orders", {0: 50}, start=20), groups=(group("late", {("orders", 0): 10}),)
    )

    view = overview(facts, NO_POINTS, [])

    assert view.health.level == "warning"
    assert "late" in view.health.sentence
    assert view.groups[0].lag == 40


def test_internal_topics_are_not_counted() -> None:
    view = overview(snapshot(topic("__consumer_offsets", {0: 5})), NO_POINTS, [])

    assert view.topic_count == 0
    assert view.topics == ()

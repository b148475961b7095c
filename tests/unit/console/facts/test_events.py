from dataclasses import replace

from cordwood.console.facts.cluster_facts import BrokerFacts, Snapshot
from cordwood.console.facts.events import events_between
from cordwood.console.facts.series import SeriesKeeper, rates_between
from fakes.console_facts import snapshot, topic


def told(before: Snapshot, after: Snapshot) -> list[str]:
    return [f"{event.kind}: {event.text}" for event in events_between(before, after)]


def test_new_and_deleted_topics_are_told() -> None:
    assert told(snapshot(topic("a", {0: 1})), snapshot(topic("b", {0: 1, 1: 1}))) == [
        "created: Topic b was created, with 2 partitions.",
        "deleted: Topic a was deleted.",
    ]


def test_a_log_that_starts_later_was_shortened() -> None:
    [text] = told(snapshot(topic("a", {0: 100})), snapshot(topic("a", {0: 100}, start=30)))

    assert text == "retention: a-0 starts at offset 30 now: 30 older offsets were deleted."


def test_a_log_that_became_smaller_was_compacted() -> None:
    before = topic("a", {0: 100})
    smaller = before.partitions[0]._replace(size_bytes=400)

    [text] = told(snapshot(before), snapshot(replace(before, partitions=(smaller,))))

    assert text == "compaction: a-0 was compacted: it is 600 bytes smaller."


def test_a_broker_that_does_not_answer_deletes_no_topics() -> None:
    up = replace(snapshot(topic("a", {0: 1})), has_files=False, broker=BrokerFacts(address="x:1"))
    down = replace(up, topics={}, broker=BrokerFacts(address="x:1", problem="refused"))

    assert told(up, down) == ["broker: The broker does not answer: refused"]
    assert told(down, up) == ["broker: The broker x:1 answers again."]


def test_rates_are_growth_per_second() -> None:
    before = snapshot(topic("a", {0: 100, 1: 5}), taken_ms=1_000)
    after = snapshot(topic("a", {0: 300, 1: 5}), taken_ms=3_000)

    assert rates_between(before, after) == {("a", 0): (100.0, 1000.0)}


def test_a_topic_that_was_created_again_has_no_rate() -> None:
    before, after = topic("a", {0: 100}), topic("a", {0: 300}, id_="other")

    assert rates_between(snapshot(before), snapshot(after, taken_ms=2_000)) == {}


def test_a_series_keeps_the_last_points() -> None:
    keeper = SeriesKeeper()
    one = snapshot(topic("a", {0: 1}))
    for _ in range(400):
        series = keeper.add(one, one)

    assert len(series.points) == 180

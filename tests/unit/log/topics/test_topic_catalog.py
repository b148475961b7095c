"""The topics of a store as a value, and its changes as lines of text."""

from uuid import UUID

import pytest

from cordwood.errors import FormatError
from cordwood.log.topics.topic_catalog import (
    Catalog,
    CatalogChange,
    TopicEntry,
    parse_change,
    parse_state,
    render_change,
    render_state,
)

ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
OTHER_ID = UUID("11234567-89ab-cdef-0123-456789abcdef")


def entry(topic: str = "events", **changes: object) -> TopicEntry:
    fields: dict[str, object] = {
        "name": topic,
        "topic_id": ID,
        "partitions": 9,
        "config": {"retention.ms": "1000"},
    }
    return TopicEntry(**(fields | changes))  # type: ignore[arg-type]


SAMPLE = Catalog(
    generation=7,
    topics={"events": entry(begun=0b100110111), "other": entry("other", config={})},
    doomed={OTHER_ID: "gone"},
)


def test_a_catalog_reads_back_as_it_was_written() -> None:
    assert parse_state(7, render_state(SAMPLE)) == SAMPLE
    assert parse_state(0, render_state(Catalog(generation=0))) == Catalog(generation=0)


@pytest.mark.parametrize(
    "change",
    [
        CatalogChange(put=(entry(), entry("other", begun=1))),
        CatalogChange(delete=("events", "other")),
        CatalogChange(begin={"events": (0, 3)}),
        CatalogChange(doom={ID: "events"}, forget=(OTHER_ID,)),
        CatalogChange(),
    ],
)
def test_a_change_reads_back_as_it_was_written(change: CatalogChange) -> None:
    assert parse_change(render_change(change)) == change


def test_every_change_is_a_new_generation_and_leaves_the_old_one_alone() -> None:
    first = Catalog(generation=1)

    second = first.after(CatalogChange(put=(entry(), entry("other", topic_id=OTHER_ID))))
    third = second.after(CatalogChange(begin={"events": (2,)}))
    fourth = third.after(CatalogChange(delete=("events",)))
    fifth = fourth.after(CatalogChange(forget=(ID,)))

    assert [c.generation for c in (first, second, third, fourth, fifth)] == [1, 2, 3, 4, 5]
    assert first.topics == {}
    assert [second.topics["events"].has_begun(n) for n in (1, 2)] == [False, False]
    assert [third.topics["events"].has_begun(n) for n in (1, 2)] == [False, True]
    assert list(fourth.topics) == ["other"]
    assert (fourth.doomed, fifth.doomed) == ({ID: "events"}, {})


def test_a_partition_that_has_begun_stays_so_when_its_topic_is_altered() -> None:
    begun = Catalog(generation=1, topics={"events": entry(begun=1)})

    altered = begun.after(CatalogChange(put=(entry(config={}),)))
    again = begun.after(CatalogChange(put=(entry(topic_id=OTHER_ID),)))

    assert altered.topics["events"] == entry(begun=1, config={})
    assert again.topics["events"].begun == 0


def test_a_topic_that_is_put_is_doomed_no_more() -> None:
    doomed = Catalog(generation=1).after(CatalogChange(doom={ID: "events"}))

    assert doomed.after(CatalogChange(put=(entry(),))).doomed == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"partitions": 0},
        {"partitions": -1},
        {"begun": 1 << 9},
        {"name": ".."},
        {"name": "a/b"},
    ],
)
def test_a_topic_that_cannot_be_is_refused(changes: dict[str, object]) -> None:
    wrong = entry("events", **changes)

    with pytest.raises(FormatError):
        parse_state(1, render_state(Catalog(generation=1, topics={wrong.name: wrong})))
    with pytest.raises(FormatError):
        parse_change(render_change(CatalogChange(put=(wrong,))))

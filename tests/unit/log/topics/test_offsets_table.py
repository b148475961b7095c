"""Pending and committed offsets: the result is the same after any compaction of the log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordwood.log.topics.committed_offsets import CommittedOffset, offset_record, offset_tombstone
from cordwood.log.topics.offsets_table import OffsetsEvent, OffsetsMarker, OffsetsTable
from cordwood.quantities import Offset, TimestampMs

PLACE = ("orders", 0)
Event = OffsetsEvent | OffsetsMarker


def commit(at: int, offset: int, producer_id: int | None = None, group: str = "g") -> OffsetsEvent:
    committed = CommittedOffset(offset=Offset(offset), committed_ms=TimestampMs(1))
    key, value = offset_record(group, PLACE, committed)
    return OffsetsEvent(Offset(at), key, value, producer_id)


def tombstone(at: int, group: str = "g") -> OffsetsEvent:
    key, _ = offset_tombstone(group, PLACE)
    return OffsetsEvent(Offset(at), key, None)


def after(*events: Event) -> OffsetsTable:
    table = OffsetsTable()
    for event in events:
        table.apply(event)
    return table


def offset_of(table: OffsetsTable, group: str = "g") -> int | None:
    found = table.groups.get(group, {}).get(PLACE)
    return None if found is None else found.offset


COMMIT, ABORT = OffsetsMarker(7, is_commit=True), OffsetsMarker(7, is_commit=False)


def test_a_commit_in_a_transaction_counts_from_its_marker_on() -> None:
    open_ = after(commit(0, 3), commit(1, 5, 7))
    assert offset_of(open_) == 3
    assert open_.pending_places("g") == {PLACE}

    open_.apply(COMMIT)

    assert offset_of(open_) == 5
    assert not open_.has_pending


def test_an_aborted_commit_never_counts() -> None:
    table = after(commit(0, 3), commit(1, 5, 7), ABORT)

    assert offset_of(table) == 3
    assert not table.has_pending


def test_the_marker_of_another_producer_changes_nothing() -> None:
    table = after(commit(1, 5, 7), OffsetsMarker(8, is_commit=True))

    assert offset_of(table) is None
    assert table.pending_places("g") == {PLACE}


def test_a_newer_commit_outside_of_the_transaction_stays() -> None:
    assert offset_of(after(commit(1, 5, 7), commit(2, 9), COMMIT)) == 9


def test_a_newer_commit_in_the_transaction_replaces_an_older_one() -> None:
    assert offset_of(after(commit(1, 5, 7), commit(2, 6, 7), COMMIT)) == 6


def test_a_tombstone_drops_what_is_pending() -> None:
    table = after(commit(0, 3), commit(1, 5, 7), tombstone(2), COMMIT)

    assert offset_of(table) is None
    assert not table.has_pending


def test_two_transactions_may_be_pending_for_one_partition() -> None:
    other = OffsetsMarker(8, is_commit=True)

    assert offset_of(after(commit(1, 5, 7), commit(2, 6, 8), COMMIT, other)) == 6
    assert offset_of(after(commit(1, 5, 7), commit(2, 6, 8), other, COMMIT)) == 6
    assert offset_of(after(commit(1, 5, 7), commit(2, 6, 8), other, ABORT)) == 6


def test_a_marker_without_commits_is_ignored() -> None:
    assert after(COMMIT, ABORT).groups == {}


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = []
    for at in range(draw(st.integers(1, 25))):
        group = draw(st.sampled_from(["a", "b"]))
        kind = draw(st.sampled_from(["plain", "pending", "marker", "tombstone"]))
        producer = draw(st.sampled_from([7, 8]))
        if kind == "plain":
            events.append(commit(at, at, None, group))
        elif kind == "pending":
            events.append(commit(at, at, producer, group))
        elif kind == "marker":
            events.append(OffsetsMarker(producer, draw(st.booleans())))
        else:
            events.append(tombstone(at, group))
    return events


def compacted(events: list[Event]) -> list[Event]:
    """What a cleaner leaves: no aborted records, and the newest record of each key."""
    open_: dict[int, list[OffsetsEvent]] = {7: [], 8: []}
    gone: set[int] = set()
    for event in events:
        if isinstance(event, OffsetsMarker):
            if not event.is_commit:
                gone.update(e.at for e in open_[event.producer_id])
            open_[event.producer_id] = []
        elif event.producer_id is not None:
            open_[event.producer_id].append(event)
    undecided = {event.at for pending in open_.values() for event in pending}
    first_open = min(undecided, default=Offset(1000))  # a cleaner stops at the last stable offset
    newest: dict[bytes, Offset] = {}
    for event in events:
        if isinstance(event, OffsetsEvent) and event.at not in gone and event.at < first_open:
            newest[event.key] = event.at
    return [
        event
        for event in events
        if isinstance(event, OffsetsMarker)
        or event.at >= first_open
        or (event.at not in gone and newest[event.key] == event.at)
    ]


@given(logs())
def test_compaction_does_not_change_the_result(events: list[Event]) -> None:
    before, then = after(*events), after(*compacted(events))

    assert then.groups == before.groups
    for group in ("a", "b"):
        assert then.pending_places(group) == before.pending_places(group)

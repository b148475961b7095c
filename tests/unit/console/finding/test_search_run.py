import json
from pathlib import Path

import pytest

import cordwood
from cordwood.console.decoding.masking import Masking, TopicMasking
from cordwood.console.facts.topic_records import DirectoryRecords
from cordwood.console.finding.query_syntax import parse_query
from cordwood.console.finding.search_run import Hit, Progress, search
from cordwood.format.record import Record


@pytest.fixture
def records(tmp_path: Path) -> DirectoryRecords:
    path = tmp_path / "data"
    with cordwood.open(path, config={"segment.records": "100"}) as store:
        topic = store.create_topic("orders", partitions=2)
        for partition in range(2):
            topic.append_many(
                [
                    Record(
                        key=f"user-{n % 10}".encode(),
                        value=json.dumps({"id": n, "to": {"city": f"c{n % 7}"}}).encode(),
                        headers=[("trace", f"t{n}".encode())],
                        timestamp_ms=1_700_000_000_000 + n,
                    )
                    for n in range(500)
                ],
                partition=partition,
            )
        topic.append(None, key=b"gone", partition=0)
        topic.append(b"\xff\xfe binary", key=None, partition=0)
    return DirectoryRecords(cordwood.open(path, read_only=True), "orders")


def hits(
    records: DirectoryRecords, text: str, masking: TopicMasking | None = None
) -> list[tuple[int, int]]:
    found = search(
        records, parse_query(text), masking or TopicMasking(), is_cancelled=lambda: False
    )
    return [(item.partition, item.record.offset) for item in found if isinstance(item, Hit)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"id": 250,', [(0, 250), (1, 250)]),
        ("partition:0 key=user-3 value.id < 30", [(0, 23), (0, 13), (0, 3)]),
        ("value.to.city = c6 partition:1 offset:0..10", [(1, 6)]),
        ("value.id = 7 or value.id = 8 partition:1", [(0, 7), (1, 8), (1, 7)]),
        ("value.id = 7.0 partition:0", [(0, 7)]),
        ('value.to.city = "c6" offset:0..10', [(0, 6), (1, 6)]),
        ("header.trace:t499", [(0, 499), (1, 499)]),
        ('/"id": 49[89]/ partition:0', [(0, 499), (0, 498)]),
        ("partition:1 not value.id >= 1", [(1, 0)]),
        ("time:1700000000499", [(0, 499), (1, 499)]),
        ("key:gone", [(0, 500)]),
        ("binary", [(0, 501)]),
        ("size:<5 partition:0", [(0, 500)]),
        ("nowhere", []),
    ],
)
def test_it_finds_the_newest_first(
    records: DirectoryRecords, text: str, expected: list[tuple[int, int]]
) -> None:
    assert hits(records, text) == expected


def test_the_last_word_is_how_it_ended(records: DirectoryRecords) -> None:
    *_, last = search(records, parse_query("x"), TopicMasking(), is_cancelled=lambda: False)

    assert isinstance(last, Progress)
    assert last.end == "done"
    assert last.share == 1.0
    assert last.scanned_bytes > 0


def test_it_stops_when_it_is_cancelled(records: DirectoryRecords) -> None:
    found = list(search(records, parse_query("id"), TopicMasking(), is_cancelled=lambda: True))

    assert [item.end for item in found if isinstance(item, Progress)] == ["cancelled"]


def test_it_stops_after_enough_hits(records: DirectoryRecords) -> None:
    found = list(
        search(records, parse_query("id"), TopicMasking(), is_cancelled=lambda: False, hits_max=3)
    )

    assert sum(isinstance(item, Hit) for item in found) == 3
    assert isinstance(found[-1], Progress)


def test_what_masking_hides_is_not_found(records: DirectoryRecords) -> None:
    masking = Masking.parse(["value.to.city"]).of_topic("orders")

    assert hits(records, "c6", masking) == []
    assert hits(records, "not c6 offset:6 partition:0", masking) == [(0, 6)]
    assert hits(records, "value.id = 7 partition:0", masking) == [(0, 7)]

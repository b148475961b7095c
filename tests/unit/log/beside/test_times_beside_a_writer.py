"""A reader that does not own the log finds records by time that no index entry speaks of yet."""

from pathlib import Path

import pytest

import cordwood

FIRST_MS = 1_000_000
CONFIG = {"retention.ms": "-1", "segment.records": "10"}


@pytest.mark.parametrize("count", [1, 9, 10, 25])
def test_times_are_found_up_to_the_last_record(tmp_path: Path, count: int) -> None:
    with cordwood.open(tmp_path) as store, cordwood.open(tmp_path, read_only=True) as beside:
        topic = store.create_topic("t", config=CONFIG)
        for n in range(count):
            topic.append(b"value", timestamp_ms=FIRST_MS + n * 10)
        log = beside.topic("t").partition(0)

        found = [log.offset_for_time(FIRST_MS + n * 10 - 5) for n in range(count)]

        assert found == list(range(count))
        assert log.offset_for_time(FIRST_MS + count * 10) is None


def test_the_largest_timestamp_is_found_wherever_it_lies(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store, cordwood.open(tmp_path, read_only=True) as beside:
        topic = store.create_topic("t", config=CONFIG)
        for timestamp_ms in (50, 90, 70, 95, 60):
            topic.append(b"value", timestamp_ms=timestamp_ms)

        assert beside.topic("t").partition(0).offset_for_time(-3) == 3

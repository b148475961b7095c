"""Counting by headers gives what reading gives, and reads far less."""

import random
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import CorruptSegmentError
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.record_count import count_records
from cordwood.log.store.store import Store
from cordwood.storage.disk.real_file import RealFile

CONFIG = {"segment.records": "100", "retention.ms": "-1", "durability": "os"}


def fill(store: Store, sizes: list[int], *, value: bytes = b"v") -> LogReader:
    topic = store.create_topic("a", config=CONFIG)
    for size in sizes:
        topic.append_many([(b"k", value)] * size)
    return topic.partition(0)


def test_a_count_of_any_range_is_the_number_of_records_that_a_read_returns(tmp_path: Path) -> None:
    chance = random.Random(3)
    with cordwood.open(tmp_path) as store:
        log = fill(store, [chance.randint(1, 40) for _ in range(30)])
        end = log.high_watermark
        for _ in range(40):
            start, stop = sorted((chance.randint(0, end), chance.randint(0, end)))

            assert count_records(log.source, start, stop) == len(list(log.read(start, stop=stop)))


def test_large_batches_are_skipped_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    whole = RealFile.read_into

    def counted(self: RealFile, position: int, buffer: memoryview) -> int:
        nonlocal read
        if self._name.startswith(str(tmp_path)):  # others read their files meanwhile
            read += len(buffer)
        return whole(self, position, buffer)

    with cordwood.open(tmp_path) as store:
        log = fill(store, [10] * 20, value=b"x" * 50_000)
        monkeypatch.setattr(RealFile, "read_into", counted)

        assert count_records(log.source, 0, 200) == 200

    assert log.size_bytes > 10_000_000
    assert read < 200_000


def test_a_damaged_header_is_reported_as_a_read_reports_it(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        fill(store, [10] * 30)
    segment = min((tmp_path / "a-0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    second = int.from_bytes(content[8:12], "big") + 12
    content[second + 16] = 9  # the magic of the second batch
    segment.write_bytes(content)

    with cordwood.open(tmp_path, read_only=True) as store:
        log = store.topic("a").partition(0)
        with pytest.raises(CorruptSegmentError) as by_reading:
            list(log.read())
        with pytest.raises(CorruptSegmentError) as by_counting:
            count_records(log.source, 0, 300)

    assert str(by_counting.value) == str(by_reading.value)

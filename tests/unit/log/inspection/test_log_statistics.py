"""The figures of a log are those of its records, whatever its batches are like."""

from pathlib import Path

import crc32c
import pytest

import cordwood
from cordwood.format.batch_builder import BatchStyle, build_batch
from cordwood.format.record import Record
from cordwood.log.compaction.key_sample import KeySample
from cordwood.log.inspection.log_statistics import LogStatistics, survey_log
from cordwood.log.reading.log_reader import LogReader
from cordwood.quantities import TimestampMs

START_MS = 1_700_000_000_000
CONFIG = {"segment.records": 50, "durability": "os", "retention.ms": -1}


def survey(log: LogReader) -> LogStatistics:
    return survey_log(log, KeySample(), lambda count: None)


@pytest.mark.parametrize("codec", ["producer", "zstd", "gzip"])
def test_figures_are_those_of_the_records(tmp_path: Path, codec: str) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t", config={**CONFIG, "compression.type": codec})
        for n in range(40):
            topic.append_many(
                [
                    Record(b"v" * n, b"k%d" % (n % 7), timestamp_ms=START_MS + n),
                    Record(b"keyless", timestamp_ms=START_MS + n),
                    Record(None, b"gone%d" % (n % 3), timestamp_ms=START_MS - n),
                ]
            )
        log = topic.partition(0)
        records = list(log.read())
        size = log.size_bytes

        found = survey(log)

    assert found.records == 120
    assert (found.batches, found.bytes) == (40, size)
    assert found.key_sizes.count == 80
    assert found.key_sizes.bytes == sum(len(r.key) for r in records if r.key is not None)
    assert (found.key_sizes.smallest, found.key_sizes.largest) == (2, 5)
    assert found.value_sizes.bytes == sum(len(r.value) for r in records if r.value is not None)
    assert (found.value_sizes.smallest, found.value_sizes.largest) == (0, 39)
    assert found.tombstones == 40
    assert (found.first_timestamp_ms, found.last_timestamp_ms) == (START_MS - 39, START_MS + 39)
    newest = {r.key: r for r in records if r.key is not None}
    assert found.keys == len(newest) == 10
    assert found.newest_bytes == sum(
        len(r.key or b"") + len(r.value or b"") for r in newest.values()
    )
    assert found.newest_tombstones == 3
    assert found.superseded == 70
    assert found.compressed_batches == (0 if codec == "producer" else 40)
    assert (found.raw_bytes == size) == (codec == "producer")
    assert found.unreadable == []


def test_what_lies_before_the_start_of_the_log_does_not_count(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t", config=CONFIG)
        topic.append_many([(b"k%d" % n, b"v") for n in range(30)])
        topic.append_many([(b"k%d" % n, b"v") for n in range(30)])
        log = topic.partition(0)
        log.delete_before(45)

        found = survey(log)

    assert (found.records, found.keys) == (15, 15)


def test_an_empty_log_has_no_figures(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        found = survey(store.create_topic("t").partition(0))

    assert found == LogStatistics()
    assert found.superseded_share is None


def test_progress_is_told_in_bytes(tmp_path: Path) -> None:
    told: list[int] = []
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t", config=CONFIG)
        for n in range(200):
            topic.append(b"v%d" % n)

        survey_log(topic.partition(0), KeySample(), told.append)

        assert sum(told) == topic.partition(0).size_bytes


def test_damage_is_passed_over_and_told(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t", config=CONFIG)
        for n in range(100):
            topic.append(b"value %d" % n, key=b"k%d" % n)
        path = Path(topic.partition(0).segments()[0].path)
    content = bytearray(path.read_bytes())
    content[75] ^= 0xFF
    path.write_bytes(content)

    with cordwood.open(tmp_path, read_only=True) as store:
        found = survey(store.topic("t").partition(0))

    assert found.records == 99
    assert len(found.unreadable) == 1


def test_a_batch_whose_records_cannot_be_read_is_told_and_others_count_once(
    tmp_path: Path,
) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("t", config=CONFIG).partition(0)
        for _ in range(3):
            log.append(b"one", key=b"k")
        path = Path(log.segments()[0].path)
    batch = bytearray(
        build_batch([Record(b"two", b"k")], TimestampMs(5), BatchStyle(bytes_max=1000)).data
    )
    batch[61] = 0x7E  # the size of its only record
    batch[17:21] = crc32c.crc32c(batch[21:]).to_bytes(4, "big")
    batch[:8] = (3).to_bytes(8, "big")
    path.write_bytes(path.read_bytes() + batch)
    (path.parent / "high-watermark").unlink()

    with cordwood.open(tmp_path, read_only=True) as store:
        found = survey(store.topic("t").partition(0))

    assert (found.records, found.batches) == (3, 4)
    assert len(found.unreadable) == 1
    assert "offset 3" in found.unreadable[0]


def test_segments_that_are_taken_away_meanwhile_do_not_count(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t", config=CONFIG)
        for n in range(200):
            topic.append(b"v%d" % n)
    with cordwood.open(tmp_path, read_only=True) as store:
        log = store.topic("t").partition(0)
        log.view()
        for path in (tmp_path / "t-0").glob("00000000000000000050.*"):
            path.unlink()

        found = survey(log)

    assert found.records == 150
    assert found.unreadable == []


def test_figures_of_several_logs_add_up() -> None:
    one = LogStatistics(records=3, first_timestamp_ms=5, last_timestamp_ms=9, unreadable=["a"])
    other = LogStatistics(records=4, first_timestamp_ms=2, superseded=1, unreadable=["b"])
    other.key_sizes.add(other.key_sizes)

    one.add(other)

    assert (one.records, one.first_timestamp_ms, one.last_timestamp_ms) == (7, 2, 9)
    assert (one.superseded, one.unreadable) == (1, ["a", "b"])

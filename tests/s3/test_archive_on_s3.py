"""The archive over the S3 protocol, with real files and a real server."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cordwood
from cordwood.archive.objects.content_checksum import content_checksum
from cordwood.archive.objects.object_store import ArrowObjects, ObjectStore
from cordwood.archive.opened_archive import open_archive
from cordwood.log.reading.log_reader import LogReader
from cordwood.quantities import MIB
from fakes.object_store_rules import ObjectStoreRules

CONFIG: dict[str, object] = {
    "segment.records": 50,
    "retention.ms": -1,
    "local.retention.bytes": 0,
    "file.delete.delay.ms": 0,
}


class TestS3(ObjectStoreRules):
    @pytest.fixture
    def objects(self, s3_url: str) -> ObjectStore:
        return ArrowObjects(s3_url)


def values(log: LogReader) -> list[bytes | None]:
    return [record.value for record in log.read()]


def numbers(end: int) -> list[bytes]:
    return [b"%d" % number for number in range(end)]


def fill(path: Path, url: str, count: int = 220) -> None:
    """A topic of one partition whose offset n holds n, at timestamp n."""
    with cordwood.open(path) as store:
        topic = store.create_topic(
            "orders", config={**CONFIG, "archive.url": url, "durability": "os"}
        )
        for number in range(count):
            topic.append(b"%d" % number, key=b"k%d" % number, timestamp_ms=number)
        topic.partition(0).sync()
        store.group("billing").commit({("orders", 0): 210})
        for status in store.archive_now():
            assert status.last_error is None, status
        store.maintain()


def test_a_log_is_read_across_s3_and_disk(tmp_path: Path, s3_url: str) -> None:
    fill(tmp_path / "data", s3_url)

    with cordwood.open(tmp_path / "data") as store:
        log = store.topic("orders").partition(0)

        assert (log.start_offset, log.state.start) == (0, 200)
        assert values(log) == numbers(220)
        assert log.offset_for_time(77) == 77
        assert sum(batch.num_rows for batch in log.scan(threads=2)) == 220


def test_readers_need_no_writer_and_no_disk(tmp_path: Path, s3_url: str) -> None:
    fill(tmp_path / "data", s3_url)

    with cordwood.open(tmp_path / "data", read_only=True) as reader:
        assert values(reader.topic("orders").partition(0)) == numbers(220)
    with open_archive(s3_url) as archive:
        assert archive.topics() == ["orders"]
        assert values(archive.topic("orders").partition(0)) == numbers(200)


def test_a_lost_store_is_restored(tmp_path: Path, s3_url: str) -> None:
    fill(tmp_path / "data", s3_url)

    with cordwood.open(tmp_path / "new") as store:
        topic = store.restore_topic("orders", s3_url, take_over=True)

        assert values(topic.partition(0)) == numbers(200)
        assert store.group("billing").committed("orders", 0) == 200
        for number in range(200, 320):
            topic.append(b"%d" % number)
        store.archive_now()
        store.maintain()
        assert topic.partition(0).state.start == 300
        assert values(topic.partition(0)) == numbers(320)


@pytest.mark.parametrize("timestamp_ms", [0, 99, 100, 149, 500])
def test_a_lost_store_is_restored_to_a_point_in_time(
    tmp_path: Path, s3_url: str, timestamp_ms: int
) -> None:
    fill(tmp_path / "data", s3_url)

    with cordwood.open(tmp_path / "new") as store:
        topic = store.restore_topic("orders", s3_url, to_timestamp_ms=timestamp_ms)

        assert values(topic.partition(0)) == numbers(min(timestamp_ms + 1, 200))


# --- how many requests it takes -------------------------------------------------------------


LARGE_MIB = 256


def fill_large(path: Path, url: str) -> None:
    """One archived segment of 256 MiB, in batches of 1 MiB: offset n holds n and zeros."""
    config = {**CONFIG, "archive.url": url, "durability": "os", "segment.records": 4 * LARGE_MIB}
    with cordwood.open(path) as store:
        topic = store.create_topic("large", config={**config, "segment.bytes": 2 * LARGE_MIB << 20})
        for number in range(0, 4 * LARGE_MIB, 4):
            topic.append_many(
                [(None, b"%09d" % n + bytes((1 << 18) - 9)) for n in range(number, number + 4)]
            )
        topic.append(b"the next segment")
        topic.partition(0).sync()
        for status in store.archive_now():
            assert status.last_error is None, status
        store.maintain()
        assert topic.partition(0).local_start_offset == 4 * LARGE_MIB


@pytest.mark.slow
def test_one_record_of_a_segment_of_256_mib_costs_four_requests(
    tmp_path: Path, s3_url: str, s3_requests: Callable[[], list[tuple[str, str]]]
) -> None:
    fill_large(tmp_path / "data", s3_url)

    for offset in (0, 123, 700, 4 * LARGE_MIB - 1):
        with cordwood.open(tmp_path / "data") as store:
            log = store.topic("large").partition(0)
            s3_requests()

            record = log[offset]

            asked = s3_requests()
            assert record.value is not None
            assert record.value[:9] == b"%09d" % offset
            assert asked == [("HEAD", "packed"), ("GET", "packed"), ("HEAD", "log"), ("GET", "log")]
            cached = sum(f.stat().st_blocks for f in (tmp_path / "data").glob("remote*/*/*.log"))
            assert cached * 512 < 8 << 20, "most of the segment was not fetched"


def test_archiving_a_small_segment_costs_six_requests(
    tmp_path: Path, s3_url: str, s3_requests: Callable[[], list[tuple[str, str]]]
) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("orders", config={**CONFIG, "archive.url": s3_url})
        topic.append_many([(b"k", b"%d" % number) for number in range(60)])
        store.archive_now()
        s3_requests()
        counts = []
        for segments in (0, 1, 3):
            for _ in range(segments):
                topic.append_many([(b"k", b"%d" % number) for number in range(50)])
            (status,) = store.archive_now()
            assert status.last_error is None
            counts.append(len(s3_requests()))

    assert counts[1] - counts[0] <= 6
    assert counts[2] - counts[0] <= 3 * 6


@pytest.mark.parametrize("size", [0, 1, 10 * MIB - 1, 10 * MIB, 10 * MIB + 1, 25 * MIB])
def test_the_checksum_of_s3_is_the_one_we_compute(s3_url: str, size: int) -> None:
    objects = ArrowObjects(s3_url)
    content = random.Random(size).randbytes(size)
    pieces = [content[at : at + 3 * MIB] for at in range(0, size, 3 * MIB)]
    objects.put("some/key", pieces)

    assert objects.checksum_part_bytes is not None
    wanted = content_checksum(content, objects.checksum_part_bytes)
    assert objects.checksum("some/key") == wanted


def test_ranges_of_an_object_ask_for_its_size_once(
    s3_url: str, s3_requests: Callable[[], list[tuple[str, str]]]
) -> None:
    objects = ArrowObjects(s3_url)
    objects.put("a.key", [b"0123456789"])
    s3_requests()

    assert [objects.get_range("a.key", at, 2, whole=10) for at in (0, 4, 8)] == [
        b"01",
        b"45",
        b"89",
    ]

    assert s3_requests() == [("HEAD", "key"), ("GET", "key"), ("GET", "key"), ("GET", "key")]


def test_an_object_that_was_deleted_meanwhile_is_not_found(s3_url: str) -> None:
    objects, others = ArrowObjects(s3_url), ArrowObjects(s3_url)
    objects.put("key", [b"0123456789"])
    objects.get_range("key", 0, 2)
    others.delete("key")

    with pytest.raises(FileNotFoundError):
        objects.get_range("key", 4, 2)


KILLED_COPIER = """
import sys, cordwood
store = cordwood.open(sys.argv[1])
log = store.topic("orders").partition(0)
print("begin", flush=True)
store.archive_now()
print("end", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("objects_seen", [1, 4, 9])
def test_a_copier_killed_on_its_way_is_finished_by_the_next(
    tmp_path: Path, s3_url: str, objects_seen: int
) -> None:
    path = tmp_path / "data"
    with cordwood.open(path) as store:
        topic = store.create_topic("orders", config={**CONFIG, "archive.url": s3_url})
        for number in range(0, 420, 10):
            topic.append_many([(None, b"%d" % n) for n in range(number, number + 10)])
    objects = ArrowObjects(s3_url)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_COPIER, str(path)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
    ) as copier:
        while len(objects.listing("")) < objects_seen:
            assert copier.poll() is None
        copier.send_signal(signal.SIGKILL)

    with cordwood.open(path) as store:
        for status in store.archive_now():
            assert status.last_error is None, status
        store.maintain()
        log = store.topic("orders").partition(0)

        assert log.state.start == 400
        assert values(log) == numbers(420)
        named = 1 + 1 + sum(2 for s in log.segments() if s.state == "archived")
        assert len(objects.listing("")) <= named, "nothing is left of the interrupted copy"


@pytest.mark.slow
def test_an_unreachable_store_is_an_error_in_the_status(tmp_path: Path) -> None:
    url = "s3://bucket/dir?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic(
            "orders", config={**CONFIG, "archive.url": url, "segment.records": 1}
        )
        topic.append(b"0")
        topic.append(b"1")

        (status,) = store.archive_now()

        assert status.last_error is not None
        assert values(topic.partition(0)) == numbers(2)

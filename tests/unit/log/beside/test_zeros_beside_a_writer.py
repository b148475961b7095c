"""A reader beside a writer that has zeros ahead of its log: it never sees or counts them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.cli.dump.file_kinds import plan_dump
from cordwood.cli.dump.lines import DumpOptions, Soundness
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.compaction.key_sample import KeySample
from cordwood.log.inspection.log_statistics import survey_log
from cordwood.log.inspection.segment_check import check_segment
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import Offset
from cordwood.spark.source.compaction_guard import CompactionGuard
from cordwood.spark.source.log_extent import pieces_between, size_between
from cordwood.storage.files import RealFileSystem

COUNT = 50
VALUE = b"x" * 100


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[PartitionLog]:
    config = {"preallocate": "true", "cleanup.policy": "compact", "segment.ms": str(2**60)}
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("events", config=config).partition(0)
        for number in range(COUNT):
            log.append(VALUE, key=b"%d" % number, timestamp_ms=1000 + number)
        assert log_file(tmp_path).stat().st_size > log.size_bytes
        yield log


@pytest.fixture
def reader(tmp_path: Path, writer: PartitionLog) -> Iterator[ReadOnlyLog]:
    with cordwood.open(tmp_path, read_only=True) as store:
        yield store.topic("events").partition(0)


def log_file(tmp_path: Path) -> Path:
    return tmp_path / "events-0" / "00000000000000000000.log"


def test_it_reads_what_was_acknowledged(reader: ReadOnlyLog) -> None:
    assert len(list(reader.read())) == COUNT
    assert list(reader.read(COUNT)) == []
    assert reader.find_damages() == []


def test_it_counts_the_bytes_of_batches_alone(writer: PartitionLog, reader: ReadOnlyLog) -> None:
    assert reader.size_bytes == writer.size_bytes
    assert [s.size_bytes for s in reader.segments()] == [s.size_bytes for s in writer.segments()]


def test_it_notices_batches_that_take_the_place_of_zeros(
    tmp_path: Path, writer: PartitionLog, reader: ReadOnlyLog
) -> None:
    assert reader.high_watermark == COUNT
    size = log_file(tmp_path).stat().st_size

    writer.append(VALUE, key=b"last")

    assert log_file(tmp_path).stat().st_size == size
    assert reader.high_watermark == COUNT + 1
    assert [record.key for record in reader.read(COUNT)] == [b"last"]
    assert reader.size_bytes == writer.size_bytes


def test_a_batch_that_is_being_written_over_the_zeros_is_not_counted(
    tmp_path: Path, writer: PartitionLog, reader: ReadOnlyLog
) -> None:
    with log_file(tmp_path).open("r+b") as file:
        file.seek(-100, 2)
        file.write(b"x" * 100)  # the middle of a batch that goes on behind the size that was seen

    assert reader.size_bytes == writer.size_bytes
    assert [s.size_bytes for s in reader.segments()] == [s.size_bytes for s in writer.segments()]


def test_it_follows_the_log(writer: PartitionLog, reader: ReadOnlyLog) -> None:
    found: list[bytes | None] = []

    def follow() -> None:
        for record in reader.follow(start=COUNT):
            found.append(record.key)
            if record.key == b"99":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    for number in range(100):
        writer.append(VALUE, key=b"%d" % number)
    thread.join(timeout=60)

    assert found == [b"%d" % number for number in range(100)]


def test_it_goes_on_over_a_roll(writer: PartitionLog, reader: ReadOnlyLog) -> None:
    assert reader.high_watermark == COUNT
    writer.roll()
    writer.append(VALUE, key=b"last")

    assert len(list(reader.read())) == COUNT + 1
    assert reader.size_bytes == writer.size_bytes
    assert reader.find_damages() == []


def test_times_are_found_up_to_the_end_and_not_behind_it(
    writer: PartitionLog, reader: ReadOnlyLog
) -> None:
    assert reader.offset_for_time(1000 + COUNT - 1) == COUNT - 1
    assert reader.offset_for_time(1000 + COUNT) is None

    writer.delete_before(COUNT)

    assert reader.offset_for_time(0) is None


def test_a_check_finds_nothing_wrong(reader: ReadOnlyLog, writer: PartitionLog) -> None:
    findings = check_segment(reader, Offset(0))

    assert findings is not None
    assert findings.problems == []
    assert (findings.records, findings.size) == (COUNT, writer.size_bytes)


def test_a_check_finds_zeros_where_records_were_promised(
    tmp_path: Path, reader: ReadOnlyLog, writer: PartitionLog
) -> None:
    with log_file(tmp_path).open("r+b") as file:
        file.seek(writer.size_bytes - 300)
        file.write(bytes(300))

    findings = check_segment(reader, Offset(0))

    assert findings is not None
    assert findings.problems


def test_statistics_count_the_batches_alone(reader: ReadOnlyLog, writer: PartitionLog) -> None:
    found = survey_log(reader, KeySample(), lambda _size: None)

    assert (found.records, found.bytes) == (COUNT, writer.size_bytes)
    assert found.unreadable == []


def test_spark_plans_for_the_batches_alone(reader: ReadOnlyLog, writer: PartitionLog) -> None:
    assert size_between(reader, 0, COUNT) == writer.size_bytes
    pieces = list(pieces_between(reader, 0, COUNT, target_bytes=1000))
    assert sum(piece.size_bytes for piece in pieces) == writer.size_bytes


def test_a_guard_of_a_query_holds_when_the_zeros_are_gone(
    reader: ReadOnlyLog, writer: PartitionLog
) -> None:
    guard = CompactionGuard.over(reader, 0, COUNT, end=COUNT)
    assert guard is not None

    writer.append(VALUE, key=b"another")
    writer.roll()
    writer.append(VALUE, key=b"last")

    assert guard.holds(reader)


def dumped(path: Path) -> Soundness:
    lines = list(plan_dump(str(path), None).run(RealFileSystem(), DumpOptions()))
    last = lines[-1]
    assert isinstance(last, Soundness)
    return last


def test_a_dump_tells_zeros_that_were_written_ahead_from_damage(
    tmp_path: Path, writer: PartitionLog
) -> None:
    found = dumped(log_file(tmp_path))
    assert (found.position, found.offset, found.is_torn) == (writer.size_bytes, COUNT, True)

    with log_file(tmp_path).open("r+b") as file:
        file.seek(writer.size_bytes - 300)
        file.write(bytes(300))

    assert not dumped(log_file(tmp_path)).is_torn


def test_a_log_without_marks_goes_on_in_the_place_of_zeros(
    tmp_path: Path, writer: PartitionLog
) -> None:
    """As beside a Kafka that preallocates: the size of the file tells nothing."""
    marks = tmp_path / "events-0" / "high-watermark"
    marks.rename(tmp_path / "elsewhere")
    with cordwood.open(tmp_path, read_only=True) as store:
        reader = store.topic("events").partition(0)
        assert reader.high_watermark == COUNT

        writer.append(VALUE, key=b"last")

        assert reader.high_watermark == COUNT + 1
        assert reader.size_bytes == writer.size_bytes
    (tmp_path / "elsewhere").rename(marks)
